"""`Reader`, the interface of every format, and what all have in common: merging, the limit, giving back what they hold.

A reader turns files into entities, as a stream. Adjacent rows of one id become one entity at once; rows that are
scattered over the input are joined by `ingest.base.merge`, for any reader.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING

from ingest.base.merge import merge_adjacent, merge_scattered
from ingest.base.scan import Hashes, find_scattered
from ingest.base.type_map import TypeMap
from ingest.io.report import ReadReport
from ingest.io.source import ByteSource
from ingest.io.streams import open_sources

if TYPE_CHECKING:
    from typing_extensions import Self

    from ingest.base.format import PathLike
    from pearl_qdrant.records import Entity


class Reader(ABC):
    """A base that can be read any number of times, with the same result. Used as a context manager.

    A format needs only `read_rows`.

    Attributes:
        type_map: From the base's own types to coarse types.
        held: Closed with the reader, in reverse order.
    """

    def __init__(self, *, type_map: TypeMap | None, limit: int | None) -> None:
        """Start a reader.

        Args:
            type_map: From types in the input to coarse types; the shipped one by default.
            limit: Read at most this many runs of rows of one id: that many entities, if none is scattered.
        """
        self.type_map = type_map or TypeMap.load()
        self.held = ExitStack()
        self._limit = limit

    @abstractmethod
    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        """One entity for each good row, in the order of the input; rows of one id are not joined. Raises as `read`."""

    def read(self, report: ReadReport, *, scattered: Hashes | None = None) -> Iterator[Entity]:
        """Entities, each id once: in the order of the input, those with scattered rows last.

        Args:
            report: Filled while reading.
            scattered: `ScanResult.scattered` of the same input; without it, one more pass finds the scattered ids.

        Raises:
            InputError: If the input cannot be read.
            FormatError: If it is not of the format, or is damaged.
            TooManyErrorsError: If there are more bad rows than the report allows.
        """
        if scattered is None:
            scattered = find_scattered(self)
        yield from merge_scattered(self.read_runs(report), scattered, report)

    def read_runs(self, report: ReadReport) -> Iterator[Entity]:
        """Entities in the order of the input; an id whose rows are scattered is yielded several times.

        Fills `rows`, `skipped` and `notes` of the report, and the merged rows within a run. Raises as `read`.
        """
        return self.join_runs(self.read_rows(report), report)

    def join_runs(self, rows: Iterable[Entity], report: ReadReport) -> Iterator[Entity]:
        """Join rows of one id that follow each other, up to the limit."""
        return islice(merge_adjacent(rows, report), self._limit)

    def open_sources(self, paths: Sequence[PathLike]) -> tuple[ByteSource, ...]:
        """Open files that are closed with the reader. Raises as `streams.open_sources`."""
        sources = open_sources(paths)
        for source in sources:
            self.held.callback(source.close)
        return sources

    def close(self) -> None:
        """Close the files and remove temporary ones."""
        self.held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
