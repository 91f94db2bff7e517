"""Make a corpus from texts and bases in one call: what `pearl-qdrant train corpus` does.

    bases -> entities.jsonl -> typed names
    texts -> parser -> counts -> phrases seen often enough -> typer -> freq_phrase.txt, phrase_with_etype.txt

Everything streams: memory holds the parser, the typed names (9 bytes each) and `max_keys` counts; more go to a
temporary database. A file appears under its name when it is complete.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, islice
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from ingest.formats import open_reader
from pearl_qdrant.errors import OptionError
from pearl_qdrant.settings import count_workers
from training.corpus.chunking import ChunkParser, Lexicon, Phrase, PhraseTyper
from training.corpus.typing import DistantTyper, NerTyper, name_types, wordnet_names
from training.examples.files import (
    ENTITIES,
    ENTITY_TYPES_FILE,
    FREQUENCIES,
    EntityRow,
    base_key,
    counted,
    encode_row,
    entity_row,
    opened_sources,
    read_entities,
    read_typed_names,
    texts_of,
    whole_file,
)
from training.examples.wordnet import read_synsets
from training.options import DEFAULT_MAX_KEYS, CorpusOptions, Paths, StrPath, as_paths

_TYPED_AT_ONCE = 8192
_TEXTS_AT_ONCE = 64
_IN_FLIGHT = 3  # chunks of texts per worker

UNTYPED = "untyped"

T = TypeVar("T")

Count = tuple[str, str, int]
"""A phrase, its class, and the number of its occurrences."""


class PhraseCounter:
    """Counts phrases by class: about `max_keys` of them in memory, all others in a temporary database."""

    def __init__(self, *, max_keys: int = DEFAULT_MAX_KEYS) -> None:
        self._max_keys = max_keys
        self._counts: Counter[Phrase] = Counter()
        self._others = sqlite3.connect("")  # a temporary file of SQLite's own
        self._others.execute("CREATE TABLE counts (text BLOB, class, n, PRIMARY KEY (text, class)) WITHOUT ROWID")

    def close(self) -> None:
        """Remove the database."""
        self._others.close()

    def add(self, counted: Mapping[Phrase, int]) -> None:
        """Add the counts of some texts."""
        self._counts.update(counted)
        if len(self._counts) > self._max_keys:
            self._write()

    def seen_at_least(self, min_count: int) -> Iterator[Count]:
        """Yield the phrases with at least this many occurrences, ordered by phrase and class."""
        self._write()
        chosen = "SELECT text, class, n FROM counts WHERE n >= ? ORDER BY text, class"
        for text, lexical_class, n in self._others.execute(chosen, (min_count,)):
            yield text.decode("utf-8", "surrogatepass"), lexical_class, n

    def _write(self) -> None:
        rows = ((key[0].encode("utf-8", "surrogatepass"), key[1], n) for key, n in sorted(self._counts.items()))
        self._others.executemany(
            "INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT (text, class) DO UPDATE SET n = n + excluded.n", rows
        )
        self._counts.clear()


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


def write_phrases(counts: Iterable[Count], typer: PhraseTyper, folder: Path) -> CorpusCounts:
    """Write freq_phrase.txt and phrase_with_etype.txt of phrases in order, each with the type that `typer` assigns."""
    found = CorpusCounts()
    with whole_file(folder / FREQUENCIES) as frequencies, whole_file(folder / ENTITY_TYPES_FILE) as types:
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
    texts: Iterable[str], open_parser: Callable[[], ChunkParser], *, workers: int = 1
) -> Iterator[tuple[int, Counter[Phrase]]]:
    """Parse texts; yields numbers of texts with the counts of their phrases. `open_parser`: makes a parser; with
    several workers it must be picklable, and is called once in each. `workers`: processes; 1 parses in this process.
    The counts do not depend on their number.
    """
    workers = count_workers(workers)
    if workers < 2:
        parser = open_parser()
        yield from (_count(some, parser) for some in _chunks(texts, _TEXTS_AT_ONCE))
        return
    with ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=_start_worker, initargs=(open_parser,)
    ) as pool:
        waiting: deque[Future[tuple[int, Counter[Phrase]]]] = deque()
        for some in _chunks(texts, _TEXTS_AT_ONCE):
            waiting.append(pool.submit(_count, some))
            # An unbounded queue would hold the whole corpus in memory.
            while len(waiting) > _IN_FLIGHT * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


_worker_parser: ChunkParser | None = None
"""Parser of a worker process; set when the worker starts."""


def _start_worker(open_parser: Callable[[], ChunkParser]) -> None:
    global _worker_parser  # noqa: PLW0603  (a process pool has no other place for per-worker state)
    _worker_parser = open_parser()


def _count(texts: list[str], parser: ChunkParser | None = None) -> tuple[int, Counter[Phrase]]:
    parser = parser or _worker_parser
    assert parser is not None
    return len(texts), Counter(chain.from_iterable(parser.parse(texts)))


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while some := list(islice(iterator, size)):
        yield some


@dataclass(slots=True)
class CorpusReport:
    """Counts of a corpus.

    Attributes:
        texts: Parsed texts.
        counts: Phrases and types; None if there was no text.
        entities: Rows of entities.jsonl.
        skipped: Bad rows of all inputs, by reason.
        seconds: Wall-clock time.
    """

    texts: int = 0
    counts: CorpusCounts | None = None
    entities: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def make_corpus(
    inputs: Paths,
    out: StrPath,
    options: CorpusOptions | None = None,
    *,
    on_texts: Callable[[int], None] = lambda n: None,
) -> CorpusReport:
    """Read texts and bases, and write the files of a corpus into a folder.

    Args:
        inputs: Files of plain text or JSON Lines, compressed or not; ``-`` is standard input. None are needed if there
            are bases.
        out: The folder; created if absent.
        options: How the corpus is made.
        on_texts: Called with the number of texts parsed since the last call.

    Raises:
        OptionError: If an option is missing, or there is nothing to read.
        InputError: If an input cannot be read.
        ModelError: If a model is not installed or does not exist.
    """
    options, folder, texts = options or CorpusOptions(), Path(out), [str(path) for path in as_paths(inputs)]
    _check(texts, options)
    start = time.monotonic()
    report = CorpusReport()
    with opened_sources(texts) as sources:
        if options.bases:
            with whole_file(folder / ENTITIES) as file:
                for row in _entity_rows(options, report):
                    file.write(encode_row(row))
                    report.entities += 1
        if sources:
            assert options.wordnet is not None
            lexicon = Lexicon(Path(options.wordnet))
            limits = {"max_errors": options.max_errors, "limit": options.limit}
            read = texts_of(sources, report.skipped, field=options.field, **limits)
            typer = _typer(options, folder, lexicon, report)
            # Each worker reads the lexicon again: sending it would take as long.
            given = Path(options.wordnet) if options.workers > 1 else lexicon
            open_parser = partial(ChunkParser, given, max_words=options.max_words)
            with closing(PhraseCounter(max_keys=options.max_keys)) as counter:
                for n_texts, counts in count_phrases(read, open_parser, workers=options.workers):
                    counter.add(counts)
                    report.texts += n_texts
                    on_texts(n_texts)
                report.counts = write_phrases(counter.seen_at_least(options.min_count), typer, folder)
    report.seconds = time.monotonic() - start
    return report


def _check(inputs: Sequence[str], options: CorpusOptions) -> None:
    """Refuse options that cannot work, before anything is read."""
    if not inputs and not as_paths(options.bases):
        raise OptionError("inputs", "There is nothing to read: give texts, or 'bases'.")
    if inputs and options.wordnet is None:
        raise OptionError(
            "wordnet",
            "The parser needs the folder of WordNet as 'wordnet' "
            "(Debian: apt install wordnet-base; the folder is /usr/share/wordnet).",
        )
    if inputs and options.typer == "ner" and not options.ner_model:
        raise OptionError(
            "ner_model", "'typer' ner needs a 'ner_model': a folder or hub id of a model trained on OntoNotes."
        )


def _typer(options: CorpusOptions, folder: Path, lexicon: Lexicon, report: CorpusReport) -> PhraseTyper:
    if options.typer == "ner":
        assert options.ner_model is not None
        return NerTyper(options.ner_model, device=options.device)
    names: list[Iterable[tuple[str, str]]] = []
    if options.bases:
        rows = counted(partial(read_entities, folder / ENTITIES), options.max_errors, report.skipped)
        names.append((name, kind) for row in rows for kind in row.types for name in row.names)
    names += [
        counted(partial(read_typed_names, path), options.max_errors, report.skipped)
        for path in as_paths(options.typed_names)
    ]
    assert options.wordnet is not None
    names.append(wordnet_names(read_synsets(Path(options.wordnet))))
    return DistantTyper(name_types(chain.from_iterable(names)), is_common=lexicon.is_common)


def _entity_rows(options: CorpusOptions, report: CorpusReport) -> Iterator[EntityRow]:
    """Yield the entities of all bases that have a type or a second name."""
    for path in as_paths(options.bases):
        with open_reader([path]) as reader:
            for entity in counted(reader.read, options.max_errors, report.skipped):
                row = entity_row(entity, kb=base_key(path))
                if row is not None and (row.types or len(row.names) > 1):
                    yield row
