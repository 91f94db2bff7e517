"""Parts of text files that several processes read: ranges of bytes that end at line borders, between two ids.

A range ends where a row has another id than the row before it, so that rows of one id that follow each other are joined
as in one pass. Files that are compressed or pipes have no ranges.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.io.decompress import CHUNK, detect_compression
from ingest.io.report import ReadReport
from ingest.io.streams import STDIN, ByteSource, Source
from pearl_qdrant.errors import FormatError, InputError

if TYPE_CHECKING:
    from pearl_qdrant.records import Entity

_SEARCHED_BYTES = 1 << 20
"""Behind a place, in which a border is looked for; the rows of one id are rarely longer."""

_OF_THIS_PROCESS = ("/dev/std", "/dev/fd/", "/proc/")
"""Where a path begins that means another file in another process."""

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Range:
    """A part of a file.

    Attributes:
        file: Number of the file.
        start, end: Its bytes; both are at the start of a line, or `end` is that of the file. Of Parquet: its rows.
    """

    file: int
    start: int
    end: int


class RangeSource(ByteSource):
    """The bytes of a range; its head is that of the file."""

    def __init__(self, whole: Source, one: Range) -> None:
        self.path = whole.path
        self.size = one.end - one.start
        self._whole = whole
        self._range = one

    def chunks(self) -> Iterator[bytes]:
        """See `ByteSource.chunks`."""
        left = self.size
        try:
            with Path(self.path).open("rb") as file:
                file.seek(self._range.start)
                while left and (chunk := file.read(min(CHUNK, left))):
                    if left == self.size and self._range.start and chunk.startswith(_BOM):
                        raise FormatError(self.path, None, "has a byte order mark within")  # it is part of a name
                    left -= len(chunk)
                    yield chunk
        except OSError as error:
            raise InputError(self.path, None, f"reading failed: {error.strerror or error}") from error

    def head(self, n_bytes: int) -> bytes:
        """The first bytes of the file."""
        return self._whole.head(n_bytes)

    def close(self) -> None:
        """Nothing is held."""


def find_ranges(
    sources: Sequence[Source],
    read: Callable[[Range, ReadReport], Iterator[Entity]],
    n_ranges: int,
    least_bytes: int,
) -> list[Range] | None:
    """Cut files into ranges of about the same size; see `LineTableReader.find_ranges`.

    Args:
        sources: The files.
        read: Reads the rows of a range; the report's place is that of the row which came last.
        n_ranges, least_bytes: As there.
    """
    if n_ranges < 2 or not all(map(_can_be_cut, sources)):
        return None
    size = max(least_bytes, -(-sum(source.size for source in sources) // n_ranges))
    ranges: list[Range] = []
    for number, source in enumerate(sources):
        wanted = range(size, source.size - least_bytes // 2, size)
        places = [_border(Range(number, place, source.size), source, read) for place in wanted]
        borders = sorted({0, source.size, *(place for place in places if place is not None)})
        ranges += [Range(number, start, end) for start, end in pairwise(borders)]
    return ranges if len(ranges) > 1 else None


def _can_be_cut(source: Source) -> bool:
    """Whether a source is a file whose stored bytes are its text."""
    path = Path(source.path)
    try:
        if source.path == STDIN or not stat.S_ISREG(path.stat().st_mode) or not source.size:
            return False
        if str(path.absolute()).startswith(_OF_THIS_PROCESS):
            return False
        with path.open("rb") as file:
            return detect_compression(file.read(CHUNK)) is None
    except (OSError, ValueError):
        return False


def _border(one: Range, source: Source, read: Callable[[Range, ReadReport], Iterator[Entity]]) -> int | None:
    """The first place in a range where a row with another id than the one before starts; None if it is far."""
    with Path(source.path).open("rb") as file:
        file.seek(one.start)
        start = one.start + len(file.readline(_SEARCHED_BYTES))
        data = file.read(min(_SEARCHED_BYTES, source.size - start))
    if data[-1:] != b"\n":
        data = data[: data.rfind(b"\n") + 1]
    report = ReadReport(max_errors=None)
    before: str | None = None
    try:
        for entity in read(Range(one.file, start, start + len(data)), report):
            if before is not None and entity.entity_id != before:
                lines = data.split(b"\n", report.place[1] - 1)
                return start + len(data) - len(lines[-1])
            before = entity.entity_id
    except InputError:  # of a whole file it is told with its line
        return None
    return None
