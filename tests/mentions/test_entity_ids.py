"""Mentions that are ids of entities: which strings are ids, how bases write them, and how they are found. And what
stands for nothing: `n/a`, `-`, `Mr.`, a number alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from pathlib import Path

import pytest
from linker_base import linker_over
from pair_table import other_outcomes
from store_cases import manifest_of, point, put

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.linking.mentions import find_by_ids, id_forms, is_no_name, looks_like_id
from pearl_qdrant.linking.ranking import explain_link
from pearl_qdrant.records import NilReason
from pearl_qdrant.store import open_store
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint


def filled(path: Path, *points: NamePoint, name: str = "base") -> Collection:
    """A collection of these points."""
    collection = open_store(path).create(manifest_of(name))
    put(collection, *((one, [1.0, float(i)]) for i, one in enumerate(points)))
    return collection


@pytest.mark.parametrize(
    "mention",
    "DOID:5844 DOID_5844 doid:5844 Q64 wd:Q64 C0027051 D009203 ent-001 I21.9 /m/02mjmr NCBITaxon:9606 "
    "http://www.wikidata.org/entity/Q64 <https://yago-knowledge.org/resource/Berlin>".split(),
)
def test_ids_look_like_ids(mention: str) -> None:
    """Letters with a digit, and IRIs, may be ids."""
    assert looks_like_id(mention)
    assert id_forms(mention)[0] == mention.strip("<>")


@pytest.mark.parametrize(
    "mention",
    [*"5844 12:30 é1 1.1.1.1 n/a unknown".split(), "", "type 2 diabetes", "Q64 Q65", "a1" * 5000],
)
def test_other_mentions_have_no_forms(mention: str) -> None:
    """A number alone, a name with spaces, or what stands for nothing is no id, and nothing is searched for it."""
    assert not looks_like_id(mention)
    assert id_forms(mention) == []


def test_the_forms_of_an_id_find_each_other() -> None:
    """However a base writes an id, the usual other forms of it are tried; `test` is the short name of the base. A
    prefix is left out only where what remains belongs to the same vocabulary.
    """

    def outcome(stored: str, written: str) -> str:
        return "tried" if stored in id_forms(written, kb="test") else "not tried"

    assert other_outcomes(__file__, "id form", outcome) == []


@pytest.mark.parametrize("mention", "AAPL F react Re:Zero C++ 64-17-5 2024-01-31".split())
def test_a_word_may_be_an_id_as_it_stands_alone(mention: str) -> None:
    """Nothing says that it is an id: so it has no form but itself."""
    assert id_forms(mention, kb="test") == [mention]


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
