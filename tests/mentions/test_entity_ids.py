"""Mentions that are ids of entities: which strings are ids, how bases write them, and how they are found. What stands
for nothing: `n/a`, `-`, `Mr.`, a number alone. What lists and pages put around a name: it is linked as without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import starmap
from pathlib import Path

import pytest
from linker_base import linker_over
from pair_table import other_outcomes
from store_cases import manifest_of, point, put

from pearl_qdrant import Entity, EntityLinker, NilReason
from pearl_qdrant.linking.mentions import find_by_ids, id_forms, is_no_name, looks_like_id
from pearl_qdrant.linking.plain_mentions import bare_mention, plain_mention
from pearl_qdrant.linking.ranking import explain_link
from pearl_qdrant.store import open_store
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint


def filled(path: Path, *points: NamePoint, name: str = "base") -> Collection:
    """A collection of these points."""
    collection = open_store(path).create(manifest_of(name))
    put(collection, *((one, [1.0, float(i)]) for i, one in enumerate(points)))
    return collection


def test_which_mentions_may_be_ids() -> None:
    """Letters with a digit, and IRIs, look like ids. Of a word nothing says so: it has no form but itself.
    A number alone, a name with spaces, or what stands for nothing is no id, and nothing is searched for it.
    """

    def outcome(mention: str) -> str:
        forms = id_forms(mention, kb="test")
        if looks_like_id(mention):
            assert id_forms(mention)[0] == mention.strip("<>")
            return "an id" if len(forms) > 1 else "as it stands"
        return "as it stands" if forms == [mention] else "none"

    assert other_outcomes(__file__, "form", outcome) == []
    assert outcome("") == outcome("a1" * 5000) == "none"


def test_the_forms_of_an_id_find_each_other() -> None:
    """However a base writes an id, the usual other forms of it are tried; `test` is the short name of the base. A
    prefix is left out only where what remains belongs to the same vocabulary.
    """

    def outcome(stored: str, written: str) -> str:
        return "tried" if stored in id_forms(written, kb="test") else "not tried"

    assert other_outcomes(__file__, "id form", outcome) == []


def test_a_mention_that_is_an_id_is_linked_to_it(shares: EntityLinker) -> None:
    """Tickers, numbers of a register and identifiers of a stock, in another case where only one has it; a name of the
    base goes before an id.
    """

    def outcome(written: str) -> str:
        link = shares.link(written)
        by_name = written in ("Ford", "react")
        assert link.rule == ("exact name" if by_name else "entity id" if link.entity_id else None)
        assert list(shares.link_batch(["Ford", written, written]))[1:] == [link, link]
        return link.entity_id or "none"

    assert other_outcomes(__file__, "id", outcome) == []


IDS = "AAPL F 64-17-5 550e8400-e29b-41d4-a716-446655440000 sku-00123 SKU-7 twin-1 TWIN-1 5844 react lib".split()
OF_IDS = "Apple,Motor Company,ethanol,Some Part,Screw,Nut,Bolt,Other Bolt,Ford,Reactive Library,react".split(",")
shares = linker_over(starmap(Entity, zip(IDS, OF_IDS, strict=True)), model="model", collection="shares", threshold=0.9)


@pytest.mark.parametrize("include_nil", [False, True])
def test_a_word_of_a_running_text_is_no_id(shares: EntityLinker, include_nil: bool) -> None:
    """Words that are ids of other names mention nothing; a span that the caller gives may be an id."""
    text = "They lib at twin-1, and F with AAPL."
    found = shares.annotate(text, include_nil=include_nil)
    (given,) = shares.annotate(text, spans=[(text.index("AAPL"), text.index("AAPL") + 4)])

    assert [one.text for one in found if one.link.entity_id] == []
    assert given.link.entity_id == "AAPL"


def entity_of(bases: Sequence[Collection], mention: str, types: Sequence[str] = ()) -> NamePoint | None:
    """The entity of some bases whose id a mention is."""
    return find_by_ids(bases, [mention], types).get(mention)


def test_an_id_finds_the_canonical_name_of_its_entity(tmp_path: Path) -> None:
    """An id of the base is looked up as itself, whatever its form."""
    base = filled(
        tmp_path,
        point("DOID:5844", "heart attack", canonical=False, canonical_name="myocardial infarction"),
        point("DOID:5844", "myocardial infarction"),
        point("DOID:1", "other"),
    )
    for mention in ("DOID:5844", "doid:5844", "http://purl.obolibrary.org/obo/DOID_5844"):
        found = entity_of([base], mention)
        assert found is not None
        assert (found.entity_id, found.name, found.is_canonical) == ("DOID:5844", "myocardial infarction", True)
    assert entity_of([base], "DOID:9999") is None
    assert entity_of([base], "5844") is None


def test_a_type_filter_holds_for_ids_too(tmp_path: Path) -> None:
    """An entity of another type is not found; one alias of the type is enough."""
    base = filled(
        tmp_path,
        point("E1", "one", kb_types=("city",), types=()),
        point("E2", "two", kb_types=(), types=(), predicted_type="GPE"),
        point("E2", "deux", canonical=False, canonical_name="two", kb_types=(), types=(), predicted_type="ORG"),
    )
    assert entity_of([base], "E1", ["city"]) is not None
    assert entity_of([base], "E1", ["company"]) is None
    found = entity_of([base], "E2", ["ORG"])
    assert found is not None
    assert found.name == "two"


def test_the_id_as_written_goes_before_its_other_forms(tmp_path: Path) -> None:
    """If several entities have a form of the id, only the very id decides; without it there is no answer. Of several
    bases any may have the id; if two of them have it, the mention is ambiguous.
    """
    base = filled(tmp_path, point("x:E1", "small"), point("X:E1", "large"))
    found = entity_of([base], "x:E1")
    assert found is not None
    assert found.name == "small"
    assert entity_of([base], "x_E1") is None
    one = filled(tmp_path, point("Q1", "universe"), name="one")
    two = filled(tmp_path, point("Q2", "Earth"), NamePoint("else", "Q1", "other", "other", True), name="two")
    found = entity_of([one, two], "wd:Q2")
    assert found is not None
    assert found.name == "Earth"
    assert entity_of([one, two], "Q1") is None


BASE = [
    {"id": "NAM", "name": "Namibia", "aliases": ["NA"], "types": ["GPE"]},
    {"id": "orwell", "name": "1984", "types": ["WORK_OF_ART"]},
    {"id": "bean", "name": "Mr. Bean", "types": ["PERSON"]},
    {"id": "none", "name": "None So Blind"},
    {"id": "feist", "name": "1, 2, 3, 4"},
]


linker = linker_over(BASE, model="model")


@pytest.mark.parametrize("mention", ["N.A.", "none", "-", "unknown", "Mr.", "1985", "12.5 %", "NA", " n/a "])
def test_it_is_nil(linker: EntityLinker, mention: str) -> None:
    """Whatever is near, in one answer and in a batch; with a reason of its own."""
    alone, (in_batch,) = linker.link(mention), linker.link_batch([mention])

    assert (alone.entity_id, alone.nil_reason) == (None, NilReason.NO_NAME)
    assert in_batch == alone
    assert explain_link(alone, linker.calibration)[0].startswith("NIL: this stands for nothing")


def test_it_is_linked_if_the_letters_and_case_are_a_name_s_own(linker: EntityLinker) -> None:
    """A number that is a name, and `NA` where its type is asked for."""
    assert linker.link("1984").entity_id == "orwell"
    assert linker.link("NA", types=["GPE"]).entity_id == "NAM"
    assert linker.link("n/a", types=["GPE"]).entity_id is None
    assert linker.link("Mr. Bean").entity_id == "bean"
    assert [one.entity_id for one in linker.link_batch(["1 2 3 4", "1-2-3-4", "12 34", "1 2 3"])] == ["feist"] * 2 + [
        None
    ] * 2
    names = ("Nana", "Route 66", "X", "NaN Ltd", "Dr. No", "Missing Persons", "4711 Cologne")
    assert not any(map(is_no_name, names)), "words beside it make it one"


NAMES = (
    *("insulin glargine", "valsartan", "Apple Pie", "Fish and Chips", "“Heroes”", "Heroes", "Acme Inc."),
    *("Acme Incorporated Works", "Washington, D.C.", "Yahoo!", "Yahoo", "The Who", "Who", "3. Liga", "Liga"),
)
MARKS = ('""', "''", "“”", "‘’", "„“", "«»", "»«", "‹›", "「」")


drugs = linker_over([*(Entity(f"e{i}", name) for i, name in enumerate(NAMES)), Entity("the_id", "a thing with an id")])
species = linker_over([Entity("alba", "Abies alba"), Entity("s", "Acta medica"), Entity("a", "Acta medica Scand.")])


@pytest.mark.parametrize("limit", [None, 5])
@pytest.mark.parametrize("mention", ["salmon burger", "Valsartan HCT", "Grandma's apple pie", "fish & chip", "AC-12"])
def test_marks_around_and_a_full_stop_change_nothing(drugs: EntityLinker, mention: str, limit: int | None) -> None:
    """The answer has the probabilities of the plain mention, and the mention as it was given."""
    written = [*(marks[0] + mention + marks[1] for marks in MARKS), f"{mention}.", f'"{mention}".', f'"{mention}."']
    if mention.endswith(("chip", "HCT", "pie")):  # its last word may be an abbreviation
        written = [one for one in written if "." not in one]
    plain, *others = drugs.link_batch([mention, *written], limit=limit)

    assert [one.mention for one in others] == written
    for one in others:
        assert replace(one, mention=mention) == plain


AROUND = (
    *(
        "<b>{}</b>",
        '<a href="/x">{}</a>',
        "**{}**",
        "_{}_",
        "[[{}]]",
        "[[Page|{}]]",
        "[{}](https://example.org/x)",
        "({})",
    ),
    *("- {}", "• {}", "3) {}", "(a) {}", "{};", "{}:", "{}...", "{}*", "{} [1]", "{}[2][3]", "{}/", "{} -", "{}!"),
    *(
        "{} (12%)",
        "{} (n=12)",
        "{} (?)",
        "{} $12.99",
        "{} 12,345",
        "2 x {}",
        "{}, etc.",
        "{} et al.",
        "e.g. {}",
        "aka {}",
    ),
    *('"{}"@en', "{}@de-AT", "<b>{}&nbsp;</b>", "https://example.org/wiki/{}", "{} \U0001f44d", "{} 12 €"),
    *("{}®", "{} ™", "\u00ad{}", "“{}”;", "- **{}**:"),
)


@pytest.mark.parametrize("around", AROUND)
def test_what_stands_around_a_name_changes_nothing(drugs: EntityLinker, around: str) -> None:
    """Markup, bullets, signs and trademarks are no part of a mention, whether it is nearly a name or one."""
    plain = ["Grandma's apple pie", "insulin glargin 3 ml", "salmon burgers"]
    written = [around.format(one.replace(" ", "_") if "//" in around else one) for one in plain]

    links = list(drugs.link_batch([*plain, *written]))
    for one, other in zip(links[: len(plain)], links[len(plain) :], strict=True):
        assert replace(other, mention=one.mention) == one
    assert drugs.link(around.format("valsartan")).entity_id == "e1"


@pytest.mark.parametrize("limit", [None, 5])
def test_names_and_ids_keep_their_signs(drugs: EntityLinker, limit: int | None) -> None:
    """What is a name or an id as it stands is that, before anything is taken off, and stays it in quotation marks."""
    assert other_outcomes(__file__, "signs", lambda one: str(drugs.link(one, limit=limit).entity_id)) == []


@pytest.mark.parametrize(
    "authors",
    ["Mill.", "(L.) H.Karst.", "Mill. ex Steud.", "Miller, 1768", "(Temminck & Schlegel, 1844)", "Linnaeus 1758", "L."],
)
def test_who_named_a_species_is_no_part_of_its_name(species: EntityLinker, authors: str) -> None:
    """Where what is left is a name of the base; another species stays another."""
    link, other, japanese = species.link_batch([f"Abies {one} {authors}" for one in ("alba", "cephalonica", "firma")])
    assert (link.entity_id, link.rule) == ("alba", species.link("Abies alba").rule)
    assert (other.entity_id, japanese.entity_id) == (None, None)
    assert species.link("Acta medica Scand.").entity_id == "a"


@pytest.mark.parametrize("mention", ["Treaty with Spain, 1819", "Munich Agreement, 1938", "Apple pie Inc.", "Zhu 2019"])
def test_nobody_named_a_species_so(mention: str) -> None:
    """A word of English, a legal form, or a single word before it."""
    assert bare_mention(mention) == mention


def test_what_stands_for_nothing_does_so_in_quotation_marks(drugs: EntityLinker) -> None:
    """`"n/a"` is no name."""
    assert [drugs.link(one).nil_reason for one in ('"n/a"', "“1985”", "'-'")] == [NilReason.NO_NAME] * 3


def test_what_is_taken_off() -> None:
    """Marks around the whole alone, and no full stop of an abbreviation."""
    assert other_outcomes(__file__, "plain", plain_mention) == []
