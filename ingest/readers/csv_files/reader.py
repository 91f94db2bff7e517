"""Bases as comma-separated values: one row an entity, or several.

RFC 4180: cells may be quoted, and a quoted cell may have delimiters, line breaks and doubled quotes; a line break
inside a cell becomes one space. The delimiter is a comma, semicolon, tab or bar, found in the first rows, or any
character that is given. The rest is as in TSV: columns by header, options or position
(`ingest.readers.tables.columns`), and aliases and several types in one cell joined by ``|``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import BinaryIO

from ingest.base.format import PathLike
from ingest.base.type_map import TypeMap
from ingest.io.lines import BadLine, read_lines
from ingest.io.report import ReadReport
from ingest.io.streams import ByteSource
from ingest.io.text_check import HEAD_BYTES, check_is_text
from ingest.readers.csv_files.delimiter import find_delimiter, read_head
from ingest.readers.csv_files.records import first_records, read_records
from ingest.readers.tables.columns import TableColumns, find_layout
from ingest.readers.tables.reader import TableReader
from ingest.readers.tables.rows import BREAKS, TEXT_CELLS, TypeFinder, check_rows, make_entities
from ingest.readers.tables.suspicions import header_warning, looks_like_header
from pearl_qdrant.errors import FormatError
from pearl_qdrant.records import Entity

_N_ROWS = 50  # read to see whether the first one is a header


class CsvReader(TableReader):
    """A base in one or several CSV files; a `Reader`."""

    def __init__(
        self,
        paths: Sequence[PathLike],
        columns: TableColumns | None = None,
        *,
        delimiter: str | None = None,
        type_map: TypeMap | None = None,
        limit: int | None = None,
        stdin: BinaryIO | None = None,
    ) -> None:
        r"""Open the files.

        Args:
            paths, columns, type_map, limit, stdin: See `TableReader`.
            delimiter: One character, ``tab`` or ``\t``; None: found for each file.

        Raises:
            FormatError: As `TableReader`.
            ValueError: If the delimiter is not one character, or is a quote or a line break.
        """
        self._delimiter = None if delimiter is None else _check_delimiter(delimiter)
        super().__init__(paths, columns, type_map=type_map, limit=limit, stdin=stdin)

    def read_table(self, source: ByteSource, report: ReadReport) -> Iterator[Entity]:
        """One entity for each good record of a file."""
        path = source.path
        check_is_text(path, source.head(HEAD_BYTES))
        delimiter = self._delimiter or find_delimiter(path, read_head(source), self.columns)
        records = read_records(read_lines(source), delimiter)
        for number, first in records:  # noqa: B007 - used after the loop
            if isinstance(first, BadLine) or any(map(str.strip, first)):
                break
        else:
            raise FormatError(path, None, "holds nothing but blank lines")
        if isinstance(first, BadLine):
            raise FormatError(path, number, f"the first row is damaged: {first.reason}")
        layout = find_layout(path, number, first, self.columns)
        if layout.header is None:
            others = first_records(read_head(source), delimiter, _N_ROWS)[1:]
            if not self.columns.given() and looks_like_header(first, others):
                report.warnings.append(header_warning(path, number, first))
            records = chain(((number, first),), records)
        shown = {"\t": "tab"}.get(delimiter, delimiter)
        report.notes.append(f"{path}: CSV, delimiter '{shown}'; {layout.describe()}")
        rows = check_rows(path, records, layout, report, split=_join_lines, show=delimiter.join)
        yield from make_entities(rows, layout, TypeFinder(self.type_map, TEXT_CELLS), report)


def _check_delimiter(given: str) -> str:
    delimiter = "\t" if given in ("tab", "\\t") else given
    if len(delimiter) != 1 or delimiter in '"\r\n\0 ':
        raise ValueError(f"the delimiter is one character that is not a quote, space or line break, not {given!r}")
    return delimiter


def _join_lines(cells: list[str]) -> list[str]:
    """The cells of a record, each on one line."""
    return [BREAKS.sub(" ", cell) if "\n" in cell or "\t" in cell or "\r" in cell else cell for cell in cells]
