"""The common part of the readers of tables in text files (TSV, CSV, JSON Lines)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import BinaryIO

from ingest.base.format import PathLike
from ingest.base.reader_base import ReaderBase
from ingest.base.type_map import TypeMap
from ingest.io.report import ReadReport
from ingest.io.streams import ByteSource, Source
from ingest.readers.tables.columns import TableColumns
from ingest.readers.tables.ranges import Range, RangeSource, find_ranges
from pearl_qdrant.errors import FormatError
from pearl_qdrant.records import Entity


class TableReader(ReaderBase):
    """A base in one or several tables, read one after the other."""

    def __init__(
        self,
        paths: Sequence[PathLike],
        columns: TableColumns | None = None,
        *,
        type_map: TypeMap | None = None,
        limit: int | None = None,
        stdin: BinaryIO | None = None,
    ) -> None:
        """Open the files; standard input and pipes are copied to a temporary file now.

        Args:
            paths: Files; ``-`` is standard input.
            columns: Which column is what, in each of them.
            type_map: From types in the file to coarse types; the shipped one by default.
            limit: See `ReaderBase`.
            stdin: What ``-`` means; the process's own by default.

        Raises:
            FormatError: If a file does not exist, is a directory, or may not be read.
        """
        super().__init__(type_map=type_map, limit=limit)
        self.columns = columns or TableColumns()
        self._sources = self.open_sources(paths, stdin)

    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        """One entity for each good row of all files."""
        # Chained in C, since each generator between a row and its reader costs time.
        return chain.from_iterable(
            chain(self.read_table(source, report), _refuse_empty(source.path, report, report.rows))
            for source in self._sources
        )

    @abstractmethod
    def read_table(self, source: ByteSource, report: ReadReport) -> Iterator[Entity]:
        """One entity for each good row of a file; none for an empty table, which is an error then."""


class LineTableReader(TableReader):
    """A base in tables whose rows are lines, so that a file can be cut at any line border."""

    @property
    def paths(self) -> list[str]:
        """The files, as they were given."""
        return [source.path for source in self._sources]

    def find_ranges(self, n_ranges: int, least_bytes: int) -> list[Range] | None:
        """Ranges of the files that can be read apart; together they have the rows of all files, in order.

        Args:
            n_ranges: How many ranges, about.
            least_bytes: Of a range.

        Returns:
            At least two ranges, or None: there is a limit, a file is compressed or a pipe, they are too small, or rows
            of one id go on for long where a file would be cut.
        """
        if self._limit is not None:
            return None
        return find_ranges(self._sources, self.read_range, n_ranges, least_bytes)

    def read_range(self, one: Range, report: ReadReport) -> Iterator[Entity]:
        """One entity for each good row of a range; lines count from its start. Raises as `read`."""
        source = self._sources[one.file]
        part = RangeSource(source, one)
        return self.read_table(part, report) if one.start == 0 else self.read_lines(source, part, report)

    @abstractmethod
    def read_lines(self, whole: Source, part: ByteSource, report: ReadReport) -> Iterator[Entity]:
        """One entity for each good row of a part of a file, which begins behind its header."""


def _refuse_empty(path: str, report: ReadReport, rows_before: int) -> Iterator[Entity]:
    """Nothing, after the rows of a file; an error if there were none."""
    if report.rows == rows_before:
        raise FormatError(path, None, "has a header and no rows")
    yield from ()
