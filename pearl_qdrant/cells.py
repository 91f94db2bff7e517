"""Cells of tables that have several items, such as aliases, joined by bars."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_ESCAPE = re.compile(r"\\([\\|])")
_BAR_OR_ESCAPE = re.compile(r"\||\\[\\|]")


def split_list(cell: str) -> tuple[str, ...]:
    r"""Items of a cell joined by ``|``, with ``\|`` and ``\\`` unescaped; empty ones and repetitions are dropped."""
    if "|" not in cell:
        item = cell.strip().replace("\\\\", "\\")
        return (item,) if item else ()
    items = [_ESCAPE.sub(r"\1", item) for item in _split_at_bars(cell)] if "\\" in cell else cell.split("|")
    return tuple(dict.fromkeys(filter(None, map(str.strip, items))))


def _split_at_bars(cell: str) -> Iterator[str]:
    """Items of a cell that may have escaped bars, as written."""
    start = 0
    for found in _BAR_OR_ESCAPE.finditer(cell):
        if found[0] == "|":
            yield cell[start : found.start()]
            start = found.end()
    yield cell[start:]


def join_list(items: Iterable[str]) -> str:
    """The cell that `split_list` splits into these items."""
    return "|".join(item.replace("\\", "\\\\").replace("|", "\\|") for item in items)
