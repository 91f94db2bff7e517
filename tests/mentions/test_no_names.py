"""What stands for nothing is no name: `n/a`, `-`, `Mr.`, a number alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pearl_qdrant import EntityLinker
from pearl_qdrant.linking.mentions import is_no_name
from pearl_qdrant.linking.ranking import explain_link
from pearl_qdrant.records import NilReason

BASE = [
    {"id": "NAM", "name": "Namibia", "aliases": ["NA"], "types": ["GPE"]},
    {"id": "orwell", "name": "1984", "types": ["WORK_OF_ART"]},
    {"id": "bean", "name": "Mr. Bean", "types": ["PERSON"]},
    {"id": "none", "name": "None So Blind"},
]


@pytest.fixture(scope="module")
def linker(model: Path) -> Iterator[EntityLinker]:
    """A linker over four names."""
    with EntityLinker.build(BASE, model=str(model)) as opened:
        yield opened


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
    names = ("Nana", "Route 66", "X", "NaN Ltd", "Dr. No", "Missing Persons", "4711 Cologne")
    assert not any(map(is_no_name, names)), "words beside it make it one"
