"""Mentions in quotation marks, and with a final full stop: they are linked as without."""

from __future__ import annotations

from dataclasses import replace

import pytest
from linker_base import linker_over
from pair_table import other_outcomes

from pearl_qdrant import Entity, EntityLinker, NilReason
from pearl_qdrant.linking.mentions import plain_mention

NAMES = (
    *("insulin glargine", "valsartan", "Apple Pie", "Fish and Chips", "“Heroes”", "Heroes", "Acme Inc."),
    *("Acme Incorporated Works", "Washington, D.C."),
)
MARKS = ('""', "''", "“”", "‘’", "„“", "«»", "»«", "‹›", "「」")


linker = linker_over(Entity(f"e{i}", name) for i, name in enumerate(NAMES))


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


@pytest.mark.parametrize(
    "written, entity_id", [("“Heroes”", "e4"), ("Heroes", "e5"), ('"Acme Inc."', "e6"), ("Washington, D.C.", "e8")]
)
@pytest.mark.parametrize("limit", [None, 5])
def test_names_stay_as_they_are_written(linker: EntityLinker, written: str, entity_id: str, limit: int | None) -> None:
    """Names with marks and full stops are found by their own letters, and stay what they are in quotation marks."""
    assert linker.link(written, limit=limit).entity_id == entity_id


def test_what_stands_for_nothing_does_so_in_quotation_marks(linker: EntityLinker) -> None:
    """`"n/a"` is no name."""
    assert [linker.link(one).nil_reason for one in ('"n/a"', "“1985”", "'-'")] == [NilReason.NO_NAME] * 3


def test_what_is_taken_off() -> None:
    """Marks around the whole alone, and no full stop of an abbreviation."""
    assert other_outcomes(__file__, "plain", plain_mention) == []
