"""Make a corpus from texts and bases in one call: what `pearl-qdrant train corpus` does.

    bases -> entities.jsonl -> typed names
    texts -> parser -> counts -> phrases seen often enough -> typer -> freq_phrase.txt, phrase_with_etype.txt

Everything streams: memory holds the parser, the typed names (9 bytes each) and `max_keys` counts; more are spilled to
sorted runs in temporary files and merged. A file appears under its name when it is complete.
"""

from __future__ import annotations

import heapq
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, islice
from multiprocessing import get_context
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeVar

from ingest.base.format import ReadOptions, TableColumns
from ingest.formats import open_reader
from pearl_qdrant.cores import count_workers
from pearl_qdrant.errors import OptionError
from training.corpus.chunking import ChunkParser, Lexicon, Phrase, PhraseParser, PhraseTyper
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
from training.options import DEFAULT_MAX_KEYS, MIN_COUNT, CorpusOptions, Paths, StrPath, as_paths, check_bounds

if TYPE_CHECKING:
    from typing_extensions import Self


_MAX_RUNS = 64
_TYPED_AT_ONCE = 8192
_TEXTS_AT_ONCE = 64
_IN_FLIGHT = 3  # chunks of texts per worker

UNTYPED = "untyped"

T = TypeVar("T")

Count = tuple[str, str, int]
"""A phrase, its class, and the number of its occurrences."""


class PhraseCounter:
    """Counts phrases by class in bounded memory: counts are spilled to sorted runs, which are merged at the end.

    A context manager, which removes its temporary files.

    Args:
        max_keys: Distinct phrases in memory, about.
    """

    def __init__(self, *, max_keys: int = DEFAULT_MAX_KEYS) -> None:
        self._max_keys = max_keys
        self._counts: Counter[Phrase] = Counter()
        self._runs: list[TextIO] = []
        self._files = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._files.close()

    def add(self, counted: Mapping[Phrase, int]) -> None:
        """Add the counts of some texts."""
        self._counts.update(counted)
        if len(self._counts) > self._max_keys:
            self._write(_in_order(self._counts))
            self._counts.clear()
            if len(self._runs) > _MAX_RUNS:
                old, self._runs = self._runs, []
                self._write(_merged(map(_read, old)))
                for run in old:
                    run.close()

    def seen_at_least(self, min_count: int) -> Iterator[Count]:
        """Yield the phrases with at least this many occurrences, ordered by phrase and class."""
        counts = _merged([*map(_read, self._runs), _in_order(self._counts)])
        return (count for count in counts if count[2] >= min_count)

    def _write(self, rows: Iterable[Count]) -> None:
        run = tempfile.TemporaryFile("w+", encoding="utf-8", errors="surrogatepass", newline="\n")  # noqa: SIM115
        self._files.push(run)
        for text, lexical_class, count in rows:
            run.write(f"{text}\t{lexical_class}\t{count}\n")
        self._runs.append(run)


def _in_order(counts: Mapping[Phrase, int]) -> Iterator[Count]:
    return ((*phrase, counts[phrase]) for phrase in sorted(counts))


def _read(run: TextIO) -> Iterator[Count]:
    run.seek(0)
    for line in run:
        text, lexical_class, count = line[:-1].split("\t")
        yield text, lexical_class, int(count)


def _merged(runs: Iterable[Iterable[Count]]) -> Iterator[Count]:
    for (text, lexical_class), same in groupby(heapq.merge(*runs), key=itemgetter(0, 1)):
        yield text, lexical_class, sum(one[2] for one in same)


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
    texts: Iterable[str], open_parser: Callable[[], PhraseParser], *, workers: int = 1
) -> Iterator[tuple[int, Counter[Phrase]]]:
    """Parse texts; yields numbers of texts with the counts of their phrases.

    Args:
        open_parser: Makes a parser; with several workers it must be picklable, and is called once in each.
        workers: Processes; 1 parses in this process. The counts do not depend on their number.
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


_worker_parser: PhraseParser | None = None
"""Parser of a worker process; set when the worker starts."""


def _start_worker(open_parser: Callable[[], PhraseParser]) -> None:
    global _worker_parser  # noqa: PLW0603  (a process pool has no other place for per-worker state)
    _worker_parser = open_parser()


def _count(texts: list[str], parser: PhraseParser | None = None) -> tuple[int, Counter[Phrase]]:
    parser = parser or _worker_parser
    assert parser is not None
    return len(texts), Counter(chain.from_iterable(parser.parse(texts)))


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
    """Write freq_phrase.txt and phrase_with_etype.txt from texts; arguments as for `CorpusOptions`. Raises InputError
    as the texts raise.
    """
    with PhraseCounter(max_keys=max_keys) as counter:
        for n_texts, counts in count_phrases(texts, open_parser, workers=workers):
            counter.add(counts)
            on_texts(n_texts)
        return write_phrases(counter.seen_at_least(min_count), typer, folder)


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

    def parsed(n_texts: int) -> None:
        report.texts += n_texts
        on_texts(n_texts)

    with opened_sources(texts) as sources:
        if options.bases:
            with whole_file(folder / ENTITIES) as file:
                for row in _entity_rows(options, report):
                    file.write(encode_row(row))
                    report.entities += 1
        if sources:
            lexicon = Lexicon(Path(options.wordnet)) if options.wordnet else None
            report.counts = build_corpus(
                texts_of(
                    sources, report.skipped, field=options.field, max_errors=options.max_errors, limit=options.limit
                ),
                folder,
                open_parser=_parser(options, lexicon),
                typer=_typer(options, folder, lexicon, report),
                min_count=options.min_count,
                max_keys=options.max_keys,
                workers=options.workers,
                on_texts=parsed,
            )
    report.seconds = time.monotonic() - start
    return report


def _check(inputs: Sequence[str], options: CorpusOptions) -> None:
    """Refuse options that cannot work, before anything is read."""
    check_bounds(options)
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


def _parser(options: CorpusOptions, lexicon: Lexicon | None) -> Callable[[], PhraseParser]:
    """Return what makes the parser, in this process or in another."""
    assert options.wordnet is not None
    assert lexicon is not None
    # Each worker reads the lexicon again: sending it would take as long.
    given = Path(options.wordnet) if options.workers > 1 else lexicon
    return partial(ChunkParser, given, max_words=options.max_words)


def _typer(options: CorpusOptions, folder: Path, lexicon: Lexicon | None, report: CorpusReport) -> PhraseTyper:
    if options.typer == "ner":
        assert options.ner_model is not None
        model, _, revision = options.ner_model.partition("@")
        return NerTyper(model, revision=revision or None, device=options.device)
    names: list[Iterable[tuple[str, str]]] = []
    if options.bases:
        rows = counted(partial(read_entities, folder / ENTITIES), options.max_errors, report.skipped)
        names.append((name, kind) for row in rows for kind in row.types for name in row.names)
    names += [
        counted(partial(read_typed_names, path), options.max_errors, report.skipped)
        for path in as_paths(options.typed_names)
    ]
    if options.wordnet is not None:
        names.append(wordnet_names(read_synsets(Path(options.wordnet))))
    types = name_types(chain.from_iterable(names))
    return DistantTyper(types) if lexicon is None else DistantTyper(types, is_common=lexicon.is_common)


def _entity_rows(options: CorpusOptions, report: CorpusReport) -> Iterator[EntityRow]:
    """Yield the entities of all bases that have a type or a second name."""
    for path in as_paths(options.bases):
        columns = TableColumns(types=options.type_columns) if options.type_columns else None
        with open_reader([path], options=ReadOptions(columns=columns)) as reader:
            for entity in counted(reader.read, options.max_errors, report.skipped):
                row = entity_row(entity, kb=base_key(path))
                if row is not None and (row.types or len(row.names) > 1):
                    yield row
