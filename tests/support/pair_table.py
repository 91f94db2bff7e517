"""Tables of pairs of names: files `pairs.tsv` beside the tests that read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pearl_qdrant import EntityLinker


def other_outcomes(test: str, kind: str, outcome: Callable[[str, str], str]) -> list[tuple[str, ...]]:
    """Rows of a kind with another outcome: both names, what the table says, and what was found.

    A row has its kind, the outcome and both names; `test` is the file of the test.
    """
    lines = Path(test).with_name("pairs.tsv").read_text("utf-8").splitlines()
    rows = [line.split("\t")[1:] for line in lines if line.startswith(f"{kind}\t")]
    assert rows
    found = [(one, other, expected, outcome(one, other)) for expected, one, other in rows]
    return [row for row in found if row[2] != row[3]]


def linked(linker: EntityLinker) -> Callable[[str, str], str]:
    """The outcome of a mention beside the id of an entity: "linked" to it, "NIL", or another id."""

    def outcome(mention: str, entity_id: str) -> str:
        found = linker.link(mention).entity_id
        return "NIL" if found is None else "linked" if found == entity_id else found

    return outcome
