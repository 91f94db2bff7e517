"""Count more phrases than fit into memory: a dict of counts is spilled to sorted runs, which are merged at the end.

Memory is bounded by `max_keys` entries for any text. The runs are temporary files in the system's folder for these.
The merge yields phrases in order, so that equal phrases are adjacent.
"""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import groupby
from operator import itemgetter
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from typing_extensions import Self

from training.corpus.chunking.phrases import Phrase
from training.options import DEFAULT_MAX_KEYS

_MAX_RUNS = 64

Count = tuple[str, str, int]
"""A phrase, its class, and the number of its occurrences."""


class PhraseCounter:
    """Counts phrases by class. A context manager, which removes its temporary files."""

    def __init__(self, *, max_keys: int = DEFAULT_MAX_KEYS) -> None:
        if max_keys < 1:
            raise ValueError(f"max_keys is {max_keys}, but must be at least 1: one phrase must fit into memory")
        self._max_keys = max_keys
        self._counts: dict[Phrase, int] = {}
        self._runs: list[TextIO] = []
        self._files = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._files.close()

    def add(self, phrases: Iterable[Phrase]) -> None:
        """Add one occurrence of each of these phrases."""
        counts = self._counts
        for phrase in phrases:
            counts[phrase] = counts.get(phrase, 0) + 1
        if len(counts) > self._max_keys:
            self._spill()

    def add_counts(self, counted: Iterable[tuple[Phrase, int]]) -> None:
        """Add the counts of another process."""
        counts = self._counts
        for phrase, count in counted:
            counts[phrase] = counts.get(phrase, 0) + count
        if len(counts) > self._max_keys:
            self._spill()

    def seen_at_least(self, min_count: int) -> Iterator[Count]:
        """Yield the phrases with at least this many occurrences, ordered by phrase and class."""
        runs: list[Iterator[Count]] = [_read(run) for run in self._runs]
        runs.append(_in_order(self._counts))
        for (text, lexical_class), same in groupby(heapq.merge(*runs), key=itemgetter(0, 1)):
            count = sum(one[2] for one in same)
            if count >= min_count:
                yield text, lexical_class, count

    def _spill(self) -> None:
        """Write the counts to a sorted run; if there are too many runs, they are merged into one."""
        self._write(_in_order(self._counts))
        self._counts.clear()
        if len(self._runs) >= _MAX_RUNS:
            old, self._runs = self._runs, []
            merged = heapq.merge(*(_read(run) for run in old))
            self._write(
                (text, lexical_class, sum(one[2] for one in same))
                for (text, lexical_class), same in groupby(merged, key=itemgetter(0, 1))
            )
            for run in old:
                run.close()

    def _write(self, rows: Iterable[Count]) -> None:
        run = tempfile.TemporaryFile("w+", encoding="utf-8", errors="surrogatepass", newline="\n")  # noqa: SIM115
        self._files.push(run)
        for text, lexical_class, count in rows:
            run.write(f"{text}\t{lexical_class}\t{count}\n")
        self._runs.append(run)


def _in_order(counts: dict[Phrase, int]) -> Iterator[Count]:
    for phrase in sorted(counts):
        yield phrase.text, phrase.lexical_class, counts[phrase]


def _read(run: TextIO) -> Iterator[Count]:
    run.seek(0)
    for line in run:
        text, lexical_class, count = line[:-1].split("\t")
        yield text, lexical_class, int(count)
