"""Records of a CSV file through the standard library's parser, with bounded memory and no row lost to a stray quote.

A quote that is never closed would make one cell of all that follows. So a record has at most
`limits.MAX_LINE_BYTES` characters (and a cell at most those of `csv.field_size_limit`, 131,072 by default), and a
record of several lines that turns out to be damaged costs its first line only: the others are read again, each from
its own start. Reading again is limited by a budget, the number of characters read so far, so that a file full of
stray quotes takes at most twice the time.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator
from itertools import islice

from ingest.io import limits
from ingest.io.lines import BadLine
from ingest.io.report import LINE_TOO_LONG

BAD_QUOTING = "bad_quoting"

_EXCERPT_LENGTH = 1 << 8


class _BadRecordError(Exception):
    """A line inside a record that cannot be read."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Lines(Iterator[str]):
    """The lines that `csv.reader` takes; remembers those of the current record."""

    def __init__(self, lines: Iterator[tuple[int, str | BadLine]], grace: int) -> None:
        self._lines = lines
        self._again: deque[tuple[int, str | BadLine]] = deque()
        self._budget = grace
        self._size = 0
        self.record: list[tuple[int, str | BadLine]] = []

    def __next__(self) -> str:
        if self._again:
            numbered = self._again.popleft()
        else:
            numbered = next(self._lines)
            self._budget += _size(numbered)
        self.record.append(numbered)
        line = numbered[1]
        if isinstance(line, BadLine):
            raise _BadRecordError(line.reason)
        self._size += len(line)
        if self._size > limits.MAX_LINE_BYTES:
            raise _BadRecordError(LINE_TOO_LONG)
        return line + "\n"

    def start_record(self) -> None:
        self.record = []
        self._size = 0

    def give_back(self) -> None:
        """Read all lines of the record but the first again, if the budget allows it."""
        rest = self.record[1:]
        cost = sum(map(_size, rest))
        if cost <= self._budget:
            self._budget -= cost
            self._again.extendleft(reversed(rest))


def _size(numbered: tuple[int, str | BadLine]) -> int:
    line = numbered[1]
    return len(line.text if isinstance(line, BadLine) else line) + 1


def read_records(
    lines: Iterator[tuple[int, str | BadLine]], delimiter: str, *, grace: int = 1 << 20
) -> Iterator[tuple[int, list[str] | BadLine]]:
    """Line numbers of the first line of each record, and its cells; blank lines give no cells.

    Args:
        lines: From `read_lines`.
        delimiter: One character.
        grace: Characters that may be read again beside as many as the file had so far.
    """
    feed = _Lines(lines, grace)
    records = csv.reader(feed, delimiter=delimiter, strict=True)
    while True:
        feed.start_record()
        try:
            cells = next(records)
        except StopIteration:
            return
        except (_BadRecordError, csv.Error) as error:
            number, first = feed.record[0]
            if isinstance(first, BadLine):
                yield number, first
            else:
                yield number, BadLine(_reason(error), first[:_EXCERPT_LENGTH])
            feed.give_back()
        else:
            yield feed.record[0][0], cells


def _reason(error: Exception) -> str:
    if isinstance(error, _BadRecordError):
        # The bad line itself is read again and counted on its own: what is wrong here is the open quote before it.
        return error.reason if error.reason == LINE_TOO_LONG else BAD_QUOTING
    return LINE_TOO_LONG if "field limit" in str(error) else BAD_QUOTING


def first_records(text: str, delimiter: str, n_records: int) -> list[list[str]]:
    """The first records of a text that are sound and not blank."""
    lines = enumerate(text.split("\n"), start=1)
    records = (cells for _, cells in read_records(iter(lines), delimiter, grace=0) if not isinstance(cells, BadLine))
    return list(islice((cells for cells in records if any(map(str.strip, cells))), n_records))
