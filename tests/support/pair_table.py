"""Tables of names, mostly of pairs: files `pairs.tsv` beside the tests that read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pearl_qdrant import EntityLinker


def other_outcomes(test: str, kind: str, outcome: Callable[..., str]) -> list[tuple[str, ...]]:
    """Rows of a kind with another outcome: the names, what the table says, and what was found.

    A row has its kind, the outcome and one or more names, which `outcome` gets; `test` is the file of the test.
    """
    lines = Path(test).with_name("pairs.tsv").read_text("utf-8").splitlines()
    rows = [line.split("\t")[1:] for line in lines if line.startswith(f"{kind}\t")]
    assert rows
    found = [(*names, expected, outcome(*names)) for expected, *names in rows]
    return [row for row in found if row[-2] != row[-1]]


def linked(linker: EntityLinker) -> Callable[[str, str], str]:
    """The outcome of a mention beside the id of an entity: "linked" to it, "NIL", or another id."""

    def outcome(mention: str, entity_id: str) -> str:
        found = linker.link(mention).entity_id
        return "NIL" if found is None else "linked" if found == entity_id else found

    return outcome
