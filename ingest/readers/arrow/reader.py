"""Bases as Parquet files, Arrow IPC files (Feather) and Arrow streams: one row an entity, or several.

The schema is the header; columns are found as in TSV (`ingest.readers.tables.columns`), and list columns give aliases
and types item by item. Numbers, booleans, dates and times are taken as text, and null as an empty cell. Columns of
other types (structs, maps, binary data) are not read; the report has a note about them. A line break inside a value
becomes one space. Errors and skips state the number of the row, from 1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, dropwhile, pairwise, takewhile
from typing import TYPE_CHECKING

from ingest.base.format import PathLike
from ingest.base.reader_base import ReaderBase
from ingest.base.type_map import TypeMap
from ingest.io.lines import BadLine
from ingest.io.report import ReadReport, make_excerpt
from ingest.readers.arrow.cells import is_list, make_rows, text_type
from ingest.readers.arrow.files import ArrowTable, Container, check_installed, check_path, group_sizes, open_table
from ingest.readers.tables.columns import Layout, TableColumns, find_layout
from ingest.readers.tables.ranges import Range
from ingest.readers.tables.rows import LIST_CELLS, Cell, TypeFinder, check_rows, make_entities
from pearl_qdrant.errors import FormatError
from pearl_qdrant.records import Entity

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_SHOWN = 10  # columns in a note

_SEARCHED_ROWS = 10_000
"""Behind the start of a row group, in which a border between two ids is looked for."""


class ArrowReader(ReaderBase):
    """A base in one or several Parquet or Arrow files; a `Reader`."""

    def __init__(
        self,
        paths: Sequence[PathLike],
        columns: TableColumns | None = None,
        *,
        type_map: TypeMap | None = None,
        limit: int | None = None,
    ) -> None:
        """Look at the files; they are opened for each pass.

        Args:
            paths: Files to read one after the other.
            columns: Which column is what, in each of them.
            type_map: From types in the file to coarse types; the shipped one by default.
            limit: See `ReaderBase`.

        Raises:
            FormatError: If a file cannot be opened or is of another kind, or pyarrow is not installed.
            ValueError: If there is no path.
        """
        if not paths:
            raise ValueError("nothing to read: no path was given")
        super().__init__(type_map=type_map, limit=limit)
        self.columns = columns or TableColumns()
        self._files = [(os.fspath(path), check_path(os.fspath(path))) for path in paths]
        check_installed(self._files[0][0])

    @property
    def paths(self) -> list[str]:
        """The files, as they were given."""
        return [path for path, _ in self._files]

    def find_ranges(self, n_ranges: int, least_bytes: int) -> list[Range] | None:
        """Ranges of rows that can be read apart, as in `LineTableReader`; of Parquet files with several row groups.

        Args:
            n_ranges: How many, about.
            least_bytes: Of a range, without compression.
        """
        if n_ranges < 2 or self._limit is not None or any(one is not Container.PARQUET for _, one in self._files):
            return None
        groups = [group_sizes(path) for path, _ in self._files]
        if not all(n_rows for _, _, n_rows in groups):
            return None
        size = max(least_bytes, -(-sum(sum(n_bytes) for _, n_bytes, _ in groups) // n_ranges))
        ranges: list[Range] = []
        for number, (starts, n_bytes, n_rows) in enumerate(groups):
            wanted, since = [], 0
            for start, group_bytes in zip(starts, n_bytes, strict=True):
                if since >= size:
                    wanted.append(start)
                    since = 0
                since += group_bytes
            borders = {0, n_rows, *(self._border(Range(number, start, n_rows)) for start in wanted)}
            ranges += [Range(number, *rows) for rows in pairwise(sorted(borders - {-1}))]
        return ranges if len(ranges) > 1 else None

    def read_range(self, one: Range, report: ReadReport) -> Iterator[Entity]:
        """One entity for each good row of a range; rows have their numbers in the file. Raises as `read`."""
        return self._read_file(*self._files[one.file], report, one)

    def _border(self, one: Range) -> int:
        """The first row of a range with another id than the row before it; -1 if it is far."""
        report, before = ReadReport(max_errors=None), None
        end = min(one.end, one.start + _SEARCHED_ROWS)
        for entity in self.read_range(Range(one.file, one.start, end), report):
            if before is not None and entity.entity_id != before:
                return report.place[1] - 1
            before = entity.entity_id
        return -1

    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        """One entity for each good row of all files."""
        return chain.from_iterable(self._read_file(path, container, report) for path, container in self._files)

    def _read_file(
        self, path: str, container: Container, report: ReadReport, part: Range | None = None
    ) -> Iterator[Entity]:
        """One entity for each good row of a file, or of a part of it."""
        with open_table(path, container, first_row=part.start if part else 0) as table:
            layout = find_layout(path, None, table.schema.names, self.columns, is_header=True)
            unread = [i for i, field in enumerate(table.schema) if text_type(field.type) is None]
            _check_readable(path, table.schema, layout, unread)
            if part is None or not part.start:
                report.notes.append(f"{path}: {container.value}; {layout.describe()}{_describe(table.schema, unread)}")
            rows_before = report.rows
            rows = _read_rows(table, layout, set(unread))
            if part is not None:
                rows = takewhile(partial(_is_until, part.end), dropwhile(partial(_is_until, part.start), rows))
            good = check_rows(path, rows, layout, report, split=list, show=_show)
            yield from make_entities(good, layout, TypeFinder(self.type_map, LIST_CELLS), report)
        if report.rows == rows_before and part is None:
            raise FormatError(path, None, "has columns and no rows")


def _read_rows(table: ArrowTable, layout: Layout, unread: set[int]) -> Iterator[tuple[int, list[Cell] | BadLine]]:
    """Row numbers and cells."""
    lists = [i in (*layout.types, layout.alias) for i in range(len(table.schema))]
    for batch in table.batches():
        columns = [None if i in unread else column for i, column in enumerate(batch.columns)]
        rows = make_rows(columns, lists)
        yield from enumerate(rows, start=table.n_done + 1)


def _is_until(row: int, numbered: tuple[int, object]) -> bool:
    """Whether a row, with its number from 1, is one of the first ones."""
    return numbered[0] <= row


def _check_readable(path: str, schema: pa.Schema, layout: Layout, unread: Sequence[int]) -> None:
    """Refuse a column with a meaning whose values are no text.

    Raises:
        FormatError: If there is one.
    """
    meant = (layout.alias, layout.description, layout.alias_name, layout.popularity)
    for i in (layout.id, layout.name, *layout.types, *meant):
        if i in unread or (i in (layout.id, layout.name) and is_list(schema.field(i).type)):
            field = schema.field(i)
            message = f"the column '{make_excerpt(field.name)}' has the type {make_excerpt(str(field.type))}, which is "
            raise FormatError(path, None, f"{message}not text. Name another column, or convert it")


def _describe(schema: pa.Schema, unread: Sequence[int]) -> str:
    """The columns that are not read, for the note."""
    if not unread:
        return ""
    shown = [f"{make_excerpt(schema.field(i).name)} ({make_excerpt(str(schema.field(i).type))})" for i in unread]
    more = f" and {len(shown) - _MAX_SHOWN} more" if len(shown) > _MAX_SHOWN else ""
    return f"; not read, since they are not text: {', '.join(shown[:_MAX_SHOWN])}{more}"


def _show(cells: list[Cell]) -> str:
    return "\t".join(cell if isinstance(cell, str) else "|".join(cell) for cell in cells)
