"""Cells of tables: which are null, their text, several items joined by bars, such as aliases, and tables of cells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

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


def is_null(cell: Any) -> bool:
    """Whether a cell is null in the table that it is from, by its type; text never is.

    None, NaN (of Python, numpy and `decimal`), NA and NaT of pandas, NaT of numpy, and null scalars of pyarrow.
    """
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(cell, Decimal):
        return cell.is_nan()
    if isinstance(cell, float) or (type(cell).__module__ == "numpy" and getattr(cell, "ndim", 1) == 0):
        return bool(cell != cell)  # NaN and NaT differ from themselves
    return getattr(cell, "is_valid", True) is False  # a scalar of pyarrow


def text_of(cell: Any) -> str:
    """A cell as text; a whole number without its `.0`, which pandas gives numbers beside null cells."""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell)


def table_line(cells: Iterable[str]) -> str:
    """A row of a table without quotes (TSV), without its end; what would end a cell or row becomes a space."""
    return "\t".join(text if text.isprintable() else " ".join(text.replace("\0", " ").split()) for text in cells)
