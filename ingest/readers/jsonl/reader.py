"""Bases as JSON Lines: one object a line, an entity or one of its names.

Keys are the columns, found by the same words and options as in TSV (`ingest.readers.tables.columns`), for each object
by itself: keys may be missing or differ from line to line. Aliases and types are lists, or text joined by ``|`` as in
TSV. Numbers and booleans are taken as text, null as an empty cell. In further fields, lists become text joined by
``|`` and objects stay JSON. A line break inside a value becomes one space.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Any

from ingest.io.lines import BadLine, read_lines
from ingest.io.report import NO_ID, NO_NAME, NUL_CHARACTER, TOO_MANY_COLUMNS, ReadReport
from ingest.io.streams import ByteSource, Source
from ingest.io.text_check import HEAD_BYTES, check_is_text
from ingest.readers.jsonl.objects import (
    INVALID_JSON,
    NESTED_TOO_DEEP,
    decode_object,
    first_objects,
    is_nested,
    to_cell,
    to_text,
)
from ingest.readers.tables.columns import MAX_COLUMNS, Layout, TableColumns, find_layout, find_missing
from ingest.readers.tables.reader import LineTableReader
from ingest.readers.tables.rows import BREAKS, LIST_CELLS, Cell, TypeFinder, make_entities
from pearl_qdrant.errors import FormatError
from pearl_qdrant.records import Entity

NOT_TEXT = "not_text"

_MAX_LAYOUTS = 1 << 10
_MAX_KEYS_LENGTH = 1 << 12  # characters of the keys of a layout that is remembered

Keys = tuple[str, ...]
Row = tuple[Keys, list[Cell]]


class JsonLinesReader(LineTableReader):
    """A base in one or several files of JSON Lines; a `Reader`."""

    def read_table(self, source: ByteSource, report: ReadReport) -> Iterator[Entity]:
        """One entity for each good object of a file."""
        path = source.path
        check_is_text(path, source.head(HEAD_BYTES))
        usable = (found for found in first_objects(source) if len(found) <= MAX_COLUMNS)
        keys = tuple(islice(dict.fromkeys(chain.from_iterable(usable)), MAX_COLUMNS))
        if not keys:
            message = "no JSON object in its first lines. One object a line is read; to convert an array: jq -c '.[]'"
            raise FormatError(path, 1, message)
        whole = find_layout(path, 1, keys, self.columns, is_header=True, has_numbers=False)
        report.notes.append(f"{path}: JSON Lines; {whole.describe_by_name()}")
        yield from self._read_objects(source, report)

    def read_lines(self, whole: Source, part: ByteSource, report: ReadReport) -> Iterator[Entity]:
        """See `LineTableReader.read_lines`; each object has its own columns."""
        return self._read_objects(part, report)

    def _read_objects(self, source: ByteSource, report: ReadReport) -> Iterator[Entity]:
        types_of = TypeFinder(self.type_map, LIST_CELLS)
        layouts = _Layouts(source.path, self.columns)
        # Objects with the same keys have the same layout, so runs of them become entities together.
        for keys, run in groupby(_read_rows(source, layouts, report), itemgetter(0)):
            layout = layouts.find(keys)
            if isinstance(layout, Layout):
                yield from make_entities((cells for _, cells in run), layout, types_of, report)


class _Layouts:
    """The layout for each set of keys."""

    def __init__(self, path: str, columns: TableColumns) -> None:
        self._path = path
        self._columns = columns
        self._named = tuple(value for values in columns.given().values() for value in values)
        self._known: dict[Keys, Layout | str] = {}

    def find(self, keys: Keys) -> Layout | str:
        """The layout, or the reason why objects with these keys are bad rows."""
        layout = self._known.get(keys)
        if layout is None:
            layout = self._make(keys)
            if sum(map(len, keys)) <= _MAX_KEYS_LENGTH:
                if len(self._known) >= _MAX_LAYOUTS:
                    self._known.clear()
                self._known[keys] = layout
        return layout

    def _make(self, keys: Keys) -> Layout | str:
        if len(keys) + len(self._named) > MAX_COLUMNS:
            return TOO_MANY_COLUMNS
        if any("\0" in key for key in keys):
            return NUL_CHARACTER
        folded = {key.strip().casefold() for key in keys}
        # What an option names and the object lacks is an empty cell at its end.
        header = (*keys, *(name for name in self._named if name.casefold() not in folded))
        reason = find_missing(tuple(key.strip() for key in header), self._columns)
        if reason is not None:
            return reason
        return find_layout(self._path, None, header, self._columns, is_header=True, has_numbers=False)


def _read_rows(source: ByteSource, layouts: _Layouts, report: ReadReport) -> Iterator[Row]:
    """Keys and cells of each good object; the others are counted."""
    path = source.path
    for number, line in read_lines(source):
        if isinstance(line, BadLine):
            report.rows += 1
            report.skip(line.reason, path=path, line=number, text=line.text)
            continue
        if not line or line.isspace():
            continue
        report.rows += 1
        row = _make_row(line, layouts)
        if isinstance(row, str):
            report.skip(row, path=path, line=number, text=line)
        else:
            report.place = path, number
            yield row


def _make_row(line: str, layouts: _Layouts) -> Row | str:
    """The row of a line, or the reason why it is skipped."""
    found = decode_object(line)
    if isinstance(found, str):
        return found
    keys = tuple(found)
    layout = layouts.find(keys)
    if isinstance(layout, str):
        return layout
    try:
        cells = _make_cells(found, layout)
    except RecursionError:
        return NESTED_TOO_DEEP
    except ValueError:
        return INVALID_JSON
    if isinstance(cells, str):
        return cells
    # JSON has control characters only as escapes.
    if "\\" in line:
        if "\\u0000" in line and any(map(_has_nul, cells)):
            return NUL_CHARACTER
        cells = [_join_lines(cell) for cell in cells]
    id_, name = (str(cells[i]).strip() for i in (layout.id, layout.name))
    cells[layout.id], cells[layout.name] = id_, name
    if id_ and name:
        return keys, cells
    return NO_NAME if id_ else NO_ID


def _make_cells(found: dict[str, Any], layout: Layout) -> list[Cell] | str:
    """The values as cells, or `NOT_TEXT`; an empty cell for each column that the object lacks."""
    lists = {*layout.types, layout.alias}
    cells: list[Cell] = []
    for i, value in enumerate(found.values()):
        if type(value) is str:
            cells.append(value)
        elif i in lists:
            cell = to_cell(value)
            if cell is None:
                return NOT_TEXT
            cells.append(cell)
        elif is_nested(value) and i in (layout.id, layout.name, layout.alias_name):
            return NOT_TEXT
        else:
            cells.append(to_text(value))
    n_columns = len(layout.header or ())
    return cells + [""] * (n_columns - len(cells))


def _has_nul(cell: Cell) -> bool:
    return "\0" in cell if isinstance(cell, str) else any("\0" in item for item in cell)


def _join_lines(cell: Cell) -> Cell:
    """A cell on one line."""
    if isinstance(cell, str):
        return BREAKS.sub(" ", cell)
    return tuple(dict.fromkeys(filter(None, (BREAKS.sub(" ", item).strip() for item in cell))))
