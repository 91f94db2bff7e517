"""Write the files of a corpus from texts and bases, in bounded memory.

Count more phrases than fit into memory: a dict of counts is spilled to sorted runs, which are merged at the end.

Memory is bounded by `max_keys` entries for any text. The runs are temporary files in the system's folder for these.
The merge yields phrases in order, so that equal phrases are adjacent.

    bases -> entities.jsonl -> typed names
    texts -> parser -> counts -> phrases seen often enough -> typer -> freq_phrase.txt, phrase_with_etype.txt

Everything streams: memory holds the parser, the typed names (9 bytes each) and `max_keys` counts. A file appears under
its name when it is complete.
"""

from __future__ import annotations

import heapq
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import groupby, islice
from multiprocessing import get_context
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TextIO, TypeVar

from pearl_qdrant.cores import count_workers
from training.corpus.chunking import Phrase, PhraseParser, PhraseTyper
from training.corpus.files import ENTITIES, ENTITY_TYPES_FILE, FREQUENCIES, EntityRow, encode_row
from training.options import DEFAULT_MAX_KEYS, MIN_COUNT

if TYPE_CHECKING:
    from typing_extensions import Self


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


T = TypeVar("T")
_Counted = list[tuple[Phrase, int]]

UNTYPED = "untyped"

_TYPED_AT_ONCE = 8192
_TEXTS_AT_ONCE = 64
_IN_FLIGHT = 3  # chunks of texts per worker


@dataclass(slots=True)
class CorpusCounts:
    """Counts of the rows of a corpus.

    Attributes:
        phrases: Rows of freq_phrase.txt by lexical class.
        types: Rows of phrase_with_etype.txt by entity type; phrases without a type under `UNTYPED`.
    """

    phrases: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)

    def share(self, lexical_class: str) -> float:
        """Return the share of the phrases that are of a class, in [0, 1]."""
        return self.phrases[lexical_class] / max(1, self.phrases.total())


def write_entities(rows: Iterable[EntityRow], folder: Path) -> int:
    """Write entities.jsonl; returns the number of entities."""
    n_rows = 0
    with _whole(folder / ENTITIES) as file:
        for row in rows:
            file.write(encode_row(row) + "\n")
            n_rows += 1
    return n_rows


def write_phrases(counts: Iterable[Count], typer: PhraseTyper, folder: Path) -> CorpusCounts:
    """Write freq_phrase.txt and phrase_with_etype.txt.

    Args:
        counts: Phrases in order, as `PhraseCounter.seen_at_least` gives them.
        typer: Assigns a type to each phrase.
        folder: Created if absent.
    """
    found = CorpusCounts()
    with _whole(folder / FREQUENCIES) as frequencies, _whole(folder / ENTITY_TYPES_FILE) as types:
        for some in _chunks(counts, _TYPED_AT_ONCE):
            for phrase, lexical_class, count in some:
                frequencies.write(f"{lexical_class}__{phrase}\t{count}\n")
                found.phrases[lexical_class] += 1
            phrases = [phrase for phrase, _ in groupby(phrase for phrase, _, _ in some)]
            for phrase, kind in zip(phrases, typer.type_phrases(phrases), strict=True):
                found.types[kind or UNTYPED] += 1
                if kind is not None:
                    types.write(f"{phrase}\t{kind}\n")
    return found


def count_phrases(
    texts: Iterable[str],
    open_parser: Callable[[], PhraseParser],
    counter: PhraseCounter,
    *,
    workers: int = 1,
    on_texts: Callable[[int], None] = lambda n: None,
) -> None:
    """Parse texts and count their phrases.

    Args:
        texts: Any number of texts.
        open_parser: Makes a parser; with several workers it must be picklable, and is called once in each.
        counter: Gets the counts, which do not depend on the number of workers.
        workers: Processes; 1 parses in this process.
        on_texts: Called with the number of texts parsed since the last call.
    """
    workers = count_workers(workers)
    if workers < 2:
        parser = open_parser()
        for some in _chunks(texts, _TEXTS_AT_ONCE):
            for phrases in parser.parse(some):
                counter.add(phrases)
            on_texts(len(some))
        return
    with ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=_start_worker, initargs=(open_parser,)
    ) as pool:
        waiting: deque[tuple[int, Future[_Counted]]] = deque()
        for some in _chunks(texts, _TEXTS_AT_ONCE):
            waiting.append((len(some), pool.submit(_count_in_worker, some)))
            # An unbounded queue would hold the whole corpus in memory.
            while len(waiting) > _IN_FLIGHT * workers:
                _take(waiting, counter, on_texts)
        while waiting:
            _take(waiting, counter, on_texts)


def _take(
    waiting: deque[tuple[int, Future[_Counted]]],
    counter: PhraseCounter,
    on_texts: Callable[[int], None],
) -> None:
    n_texts, future = waiting.popleft()
    counter.add_counts(future.result())
    on_texts(n_texts)


_parser: PhraseParser | None = None
"""Parser of a worker process; set when the worker starts."""


def _start_worker(open_parser: Callable[[], PhraseParser]) -> None:
    global _parser  # noqa: PLW0603  (a process pool has no other place for per-worker state)
    _parser = open_parser()


def _count_in_worker(texts: list[str]) -> _Counted:
    assert _parser is not None
    counts: Counter[Phrase] = Counter()
    for phrases in _parser.parse(texts):
        counts.update(phrases)
    return list(counts.items())


def build_corpus(
    texts: Iterable[str],
    folder: Path,
    *,
    open_parser: Callable[[], PhraseParser],
    typer: PhraseTyper,
    min_count: int = MIN_COUNT,
    max_keys: int = DEFAULT_MAX_KEYS,
    workers: int = 1,
    on_texts: Callable[[int], None] = lambda n: None,
) -> CorpusCounts:
    """Write freq_phrase.txt and phrase_with_etype.txt from texts; arguments as of the functions above.

    Args:
        min_count: Phrases that occur less often are skipped. PEARL: 2.
        max_keys: Distinct phrases counted in memory; more go to temporary files.

    Raises:
        ValueError: If a number is out of range.
        InputError: As the texts raise.
    """
    if min_count < 1:
        raise ValueError(f"min_count is {min_count}, but must be at least 1")
    with PhraseCounter(max_keys=max_keys) as counter:
        count_phrases(texts, open_parser, counter, workers=workers, on_texts=on_texts)
        return write_phrases(counter.seen_at_least(min_count), typer, folder)


@contextmanager
def _whole(path: Path) -> Iterator[TextIO]:
    """Open a file that gets its name when it is complete; an older file of that name stays until then."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w", encoding="utf-8", errors="replace", newline="\n") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while some := list(islice(iterator, size)):
        yield some
