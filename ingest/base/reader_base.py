"""What all readers have in common: merging, the limit, and giving back what they hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING

from ingest.base.merge import merge_adjacent, merge_scattered
from ingest.base.reader import Hashes
from ingest.base.scan import find_scattered
from ingest.base.type_map import TypeMap
from ingest.io.report import ReadReport
from ingest.io.source import ByteSource
from ingest.io.streams import open_sources

if TYPE_CHECKING:
    from typing_extensions import Self

    from ingest.base.format import PathLike
    from pearl_qdrant.records import Entity


class ReaderBase(ABC):
    """A `Reader` that needs only `read_rows`.

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
        """Entities, each id once; see `Reader.read`."""
        if scattered is None:
            scattered = find_scattered(self)
        yield from merge_scattered(self.read_runs(report), scattered, report)

    def read_runs(self, report: ReadReport) -> Iterator[Entity]:
        """Entities in the order of the input; see `Reader.read_runs`."""
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
