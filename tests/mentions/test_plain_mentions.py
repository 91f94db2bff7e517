"""Mentions with what lists and pages put around a name: they are linked as without."""

from __future__ import annotations

from dataclasses import replace

import pytest
from linker_base import linker_over
from pair_table import other_outcomes

from pearl_qdrant import Entity, EntityLinker, NilReason
from pearl_qdrant.linking.plain_mentions import bare_mention, plain_mention

NAMES = (
    *("insulin glargine", "valsartan", "Apple Pie", "Fish and Chips", "“Heroes”", "Heroes", "Acme Inc."),
    *("Acme Incorporated Works", "Washington, D.C.", "Yahoo!", "Yahoo", "The Who", "Who", "3. Liga", "Liga"),
)
MARKS = ('""', "''", "“”", "‘’", "„“", "«»", "»«", "‹›", "「」")


linker = linker_over([*(Entity(f"e{i}", name) for i, name in enumerate(NAMES)), Entity("the_id", "a thing with an id")])
species = linker_over([Entity("alba", "Abies alba"), Entity("s", "Acta medica"), Entity("a", "Acta medica Scand.")])


@pytest.mark.parametrize("limit", [None, 5])
@pytest.mark.parametrize("mention", ["salmon burger", "Valsartan HCT", "Grandma's apple pie", "fish & chip", "AC-12"])
def test_marks_around_and_a_full_stop_change_nothing(linker: EntityLinker, mention: str, limit: int | None) -> None:
    """The answer has the probabilities of the plain mention, and the mention as it was given."""
    written = [*(marks[0] + mention + marks[1] for marks in MARKS), f"{mention}.", f'"{mention}".', f'"{mention}."']
    if mention.endswith(("chip", "HCT", "pie")):  # its last word may be an abbreviation
        written = [one for one in written if "." not in one]
    plain, *others = linker.link_batch([mention, *written], limit=limit)

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
def test_what_stands_around_a_name_changes_nothing(linker: EntityLinker, around: str) -> None:
    """Markup, bullets, signs and trademarks are no part of a mention, whether it is nearly a name or one."""
    plain = ["Grandma's apple pie", "insulin glargin 3 ml", "salmon burgers"]
    written = [around.format(one.replace(" ", "_") if "//" in around else one) for one in plain]

    links = list(linker.link_batch([*plain, *written]))
    for one, other in zip(links[: len(plain)], links[len(plain) :], strict=True):
        assert replace(other, mention=one.mention) == one
    assert linker.link(around.format("valsartan")).entity_id == "e1"


@pytest.mark.parametrize(
    "written, entity_id",
    [
        *(("insulin_glargine", "e0"), ("insulin%20glargine", "e0"), ("#InsulinGlargine", "e0"), ("3. valsartan", "e1")),
        *(("Fish_and_Chips", "e3"), ("the_id", "the_id")),
        *(("Yahoo!", "e9"), ("Yahoo", "e10"), ("The Who", "e11"), ("Who", "e12"), ("3. Liga", "e13")),
    ],
)
def test_names_and_ids_keep_their_signs(linker: EntityLinker, written: str, entity_id: str) -> None:
    """What is a name or an id as it stands is that, before anything is taken off."""
    assert linker.link(written).entity_id == entity_id


@pytest.mark.parametrize(
    "written, entity_id", [("“Heroes”", "e4"), ("Heroes", "e5"), ('"Acme Inc."', "e6"), ("Washington, D.C.", "e8")]
)
@pytest.mark.parametrize("limit", [None, 5])
def test_names_stay_as_they_are_written(linker: EntityLinker, written: str, entity_id: str, limit: int | None) -> None:
    """Names with marks and full stops are found by their own letters, and stay what they are in quotation marks."""
    assert linker.link(written, limit=limit).entity_id == entity_id


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


def test_what_stands_for_nothing_does_so_in_quotation_marks(linker: EntityLinker) -> None:
    """`"n/a"` is no name."""
    assert [linker.link(one).nil_reason for one in ('"n/a"', "“1985”", "'-'")] == [NilReason.NO_NAME] * 3


def test_what_is_taken_off() -> None:
    """Marks around the whole alone, and no full stop of an abbreviation."""
    assert other_outcomes(__file__, "plain", plain_mention) == []
