"""Rows of a table to entities: checks, lists in cells, types.

A row needs its id and its name. Its popularity, if it has one, is a finite number of at least 0. Cells that are missing
at its end count as empty. Space around a cell is dropped. Of the types the first `limits.MAX_KB_TYPES` are kept.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import Any, TypeVar

from ingest.base.type_map import TypeMap
from ingest.io import limits
from ingest.io.lines import BadLine
from ingest.io.report import BAD_POPULARITY, NO_ID, NO_NAME, TOO_FEW_COLUMNS, TOO_MANY_COLUMNS, ReadReport
from ingest.readers.tables.columns import Layout
from pearl_qdrant.cells import split_list
from pearl_qdrant.records import Entity

Cell = str | tuple[str, ...]
"""A value of a row. A tuple only in columns of aliases and types; its items are stripped, not empty and different."""

BREAKS = re.compile(r"[\t\n\r]+")
"""What becomes one space inside a cell, in formats whose cells can have line breaks."""

_MAX_CACHED_LENGTH = 1 << 10  # of the cells with types

T = TypeVar("T")


def _cell_items(cell: Cell) -> tuple[str, ...]:
    return cell if isinstance(cell, tuple) else split_list(cell)


def _cell_size(cell: Cell) -> int:
    return sum(map(len, cell)) if isinstance(cell, tuple) else len(cell)


@dataclass(frozen=True, slots=True)
class CellKind:
    """How cells of aliases and types are understood.

    Attributes:
        items: The items of a cell.
        size: Its characters.
    """

    items: Callable[[Any], tuple[str, ...]]
    size: Callable[[Any], int]


TEXT_CELLS = CellKind(split_list, len)
"""Cells are text, several values joined by ``|``."""

LIST_CELLS = CellKind(_cell_items, _cell_size)
"""Cells are text or tuples."""


class TypeFinder:
    """Native and coarse types of the type cells of a row. Most rows share a few combinations, which are remembered."""

    def __init__(self, type_map: TypeMap, kind: CellKind) -> None:
        self.kind = kind
        self._type_map = type_map
        self.find_known = lru_cache(maxsize=65_536)(self.find)

    def find(self, *cells: Cell) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Native and coarse types. `find_known` gives the same from memory, for cells of bounded size."""
        each = dict.fromkeys(chain.from_iterable(map(self.kind.items, cells)))
        kb_types = tuple(islice(each, limits.MAX_KB_TYPES))
        return kb_types, self._type_map.map_types(kb_types)


def check_rows(
    path: str,
    rows: Iterable[tuple[int, T | BadLine]],
    layout: Layout,
    report: ReadReport,
    *,
    split: Callable[[T], list[Any]],
    show: Callable[[T], str],
) -> Iterator[list[Any]]:
    """Cells of the good rows, at least `layout.width` of them; id and name are stripped and not empty.

    Args:
        path: For the report.
        rows: Each with its number from 1.
        layout: Where the columns are.
        report: Counts rows and skips; its `place` is that of the row which was given out last.
        split: A new list of a row's cells.
        show: A row as text, for the excerpt of a skip.
    """
    i_id, i_name, width = layout.id, layout.name, layout.width
    n_needed = 1 + max(i_id, i_name)
    n_header = sys.maxsize if layout.header is None else len(layout.header)
    for number, row in rows:
        if isinstance(row, BadLine):
            report.rows += 1
            report.skip(row.reason, path=path, line=number, text=row.text)
            continue
        cells = split(row)
        n_cells = len(cells)
        if n_cells < width:
            cells += [""] * (width - n_cells)
        cells[i_id], cells[i_name] = cells[i_id].strip(), cells[i_name].strip()
        if cells[i_id] and cells[i_name] and n_cells <= n_header:
            report.rows += 1
            report.place = path, number
            yield cells
        elif any(map(_is_filled, cells)):
            report.rows += 1
            reason = _find_fault(cells, layout, n_cells < n_needed)
            if reason is None:
                report.place = path, number
                yield cells
            else:
                report.skip(reason, path=path, line=number, text=show(row))


def _is_filled(cell: Cell) -> bool:
    return bool(cell.strip() if isinstance(cell, str) else cell)


def _find_fault(cells: Sequence[Cell], layout: Layout, is_short: bool) -> str | None:
    """Why a row is skipped; None if it only has empty cells too many at its end."""
    if is_short:
        return TOO_FEW_COLUMNS
    if not cells[layout.id]:
        return NO_ID
    if not cells[layout.name]:
        return NO_NAME
    # A separator inside a name shifts all that follows: types would become aliases.
    is_shifted = layout.header is not None and any(map(_is_filled, cells[len(layout.header) :]))
    return TOO_MANY_COLUMNS if is_shifted else None


def make_entities(
    rows: Iterable[list[Any]], layout: Layout, types_of: TypeFinder, report: ReadReport
) -> Iterator[Entity]:
    """One entity for each row of cells, as `check_rows` gives them."""
    i_name, i_alias, i_alias_name = layout.name, layout.alias, layout.alias_name
    i_id, i_description, extra_columns = layout.id, layout.description, layout.extra
    i_popularity = layout.popularity
    items, size, find, find_known = types_of.kind.items, types_of.kind.size, types_of.find, types_of.find_known
    aliases: tuple[str, ...]
    popularity: float | None = None
    for cells in rows:
        name = cells[i_name]
        if i_popularity is not None:
            try:
                popularity = _read_popularity(cells[i_popularity])
            except ValueError:
                shown = f"{cells[i_popularity]!r} of {cells[i_id]} is no finite number of at least 0"
                report.skip_here(BAD_POPULARITY, shown)
                continue
        aliases = items(cells[i_alias]) if i_alias is not None and cells[i_alias] else ()
        if i_alias_name is not None:
            aliases = tuple(dict.fromkeys(filter(None, (cells[i_alias_name].strip(), *aliases))))
        if name in aliases:
            aliases = tuple(alias for alias in aliases if alias != name)
        if len(aliases) >= limits.MAX_NAMES:
            aliases = report.bound_names(cells[i_id], (name, *aliases))[1:]
        type_cells = [cells[i] for i in layout.types]
        is_small = sum(map(size, type_cells)) <= _MAX_CACHED_LENGTH
        kb_types, types = (find_known if is_small else find)(*type_cells)
        description = (cells[i_description].strip() or None) if i_description is not None else None
        extra = {}
        for i, key in extra_columns:
            if i >= len(cells):
                break
            if value := cells[i].strip():
                extra[key] = value
        yield Entity(cells[i_id], name, aliases, kb_types, types, description, extra, popularity)


def _read_popularity(cell: str) -> float | None:
    """The number in a cell; None if it is blank.

    Raises:
        ValueError: If it is no finite number of at least 0.
    """
    if not cell.strip():
        return None
    number = float(cell) + 0.0  # not -0
    if not 0 <= number < math.inf or "_" in cell:
        raise ValueError(cell)
    return number
