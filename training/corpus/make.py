"""The corpus stage from files to files: what `pearl-qdrant train corpus` runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal, TypeVar

from ingest.formats import ReadOptions, open_reader
from ingest.io.report import ReadReport
from ingest.io.streams import Source, open_sources
from ingest.readers.tsv.layout import TsvColumns
from pearl_qdrant.errors import SettingsError
from pearl_qdrant.settings import DEFAULT_MAX_ERRORS
from training.corpus.bases import base_key, entity_row, typed_names
from training.corpus.build import MIN_COUNT, CorpusCounts, build_corpus, write_entities
from training.corpus.chunking.chunker import ChunkParser
from training.corpus.chunking.constituency import DEFAULT_BENEPAR, DEFAULT_SPACY, BeneparParser
from training.corpus.chunking.lexicon import Lexicon
from training.corpus.chunking.phrases import DEFAULT_MAX_WORDS, PhraseParser, PhraseTyper
from training.corpus.counting import DEFAULT_MAX_KEYS
from training.corpus.files import ENTITIES, EntityRow, read_entities
from training.corpus.texts import DEFAULT_FIELD, read_texts
from training.corpus.typing.distant import DistantTyper, NameTypes, wordnet_names
from training.corpus.typing.ner import NerTyper
from training.corpus.typing.typed_lists import read_typed_names
from training.examples.wordnet import read_synsets

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CorpusOptions:
    """How to make a corpus.

    Attributes:
        parser: "builtin" wants `wordnet`; "benepar" wants the extra `corpus` and its models.
        typer: "distant" types by names and rules; "ner" by the model `ner_model`.
        wordnet: A WordNet `dict` folder.
        field: Of JSON Lines.
        min_count: Rarer phrases are left out.
        max_words: Longer phrases are left out.
        max_keys: Distinct phrases counted in memory.
        workers: Processes that parse.
        limit: So many texts at most.
        bases: Bases of entities, each read by the `ingest` reader that fits it.
        type_columns: Columns of the types, in bases that are TSV.
        typed_names: Lists of names with their types.
        max_errors: Bad rows that each input may have; None for any number.
        spacy_model, benepar_model, ner_model: Names, folders or ids.
        device: Of the NER model, as torch names it.
    """

    parser: Literal["builtin", "benepar"] = "builtin"
    typer: Literal["distant", "ner"] = "distant"
    wordnet: Path | None = None
    field: str = DEFAULT_FIELD
    min_count: int = MIN_COUNT
    max_words: int = DEFAULT_MAX_WORDS
    max_keys: int = DEFAULT_MAX_KEYS
    workers: int = 1
    limit: int | None = None
    bases: tuple[Path, ...] = ()
    type_columns: tuple[str, ...] = ()
    typed_names: tuple[Path, ...] = ()
    max_errors: int | None = DEFAULT_MAX_ERRORS
    spacy_model: str = DEFAULT_SPACY
    benepar_model: str = DEFAULT_BENEPAR
    ner_model: str | None = None
    device: str = "cpu"


@dataclass(slots=True)
class CorpusReport:
    """What was made.

    Attributes:
        texts: Texts parsed.
        counts: Phrases and types; None if there was no text.
        entities: Rows of entities.jsonl.
        skipped: Bad rows of all inputs, by reason.
        seconds: Of wall clock.
    """

    texts: int = 0
    counts: CorpusCounts | None = None
    entities: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def make_corpus(
    inputs: tuple[str, ...],
    folder: Path,
    options: CorpusOptions,
    *,
    on_texts: Callable[[int], None] = lambda n: None,
) -> CorpusReport:
    """Read texts and bases, and write the files of a corpus into a folder.

    Raises:
        SettingsError: If an option is missing, or there is nothing to read.
        InputError: If an input cannot be read.
        ModelError: If a parser or model is not installed or not there.
    """
    _check(inputs, options)
    start = time.monotonic()
    report = CorpusReport()

    def parsed(n_texts: int) -> None:
        report.texts += n_texts
        on_texts(n_texts)

    with ExitStack() as stack:
        sources = open_sources(inputs) if inputs else ()
        for source in sources:
            stack.callback(source.close)
        if options.bases:
            report.entities = write_entities(_entity_rows(options, report), folder)
        if sources:
            lexicon = Lexicon(options.wordnet) if options.wordnet else None
            report.counts = build_corpus(
                _texts(sources, options, report),
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


def _check(inputs: tuple[str, ...], options: CorpusOptions) -> None:
    if not inputs and not options.bases:
        raise SettingsError("There is nothing to read: give texts, or a base with --base")
    if inputs and options.parser == "builtin" and options.wordnet is None:
        raise SettingsError(
            "The built-in parser needs WordNet: give its folder with --wordnet "
            "(Debian: apt install wordnet-base, then --wordnet /usr/share/wordnet)"
        )
    if inputs and options.typer == "ner" and not options.ner_model:
        raise SettingsError("--typer ner needs a model: --ner-model FOLDER or a hub id of one trained on OntoNotes")


def _parser(options: CorpusOptions, lexicon: Lexicon | None) -> Callable[[], PhraseParser]:
    """What makes the parser, in this process or in another."""
    if options.parser == "benepar":
        return partial(
            BeneparParser,
            spacy_model=options.spacy_model,
            model=options.benepar_model,
            max_words=options.max_words,
        )
    assert options.wordnet is not None
    assert lexicon is not None
    # A lexicon is read again in each worker: sending it would take as long.
    given = options.wordnet if options.workers > 1 else lexicon
    return partial(ChunkParser, given, max_words=options.max_words)


def _typer(options: CorpusOptions, folder: Path, lexicon: Lexicon | None, report: CorpusReport) -> PhraseTyper:
    if options.typer == "ner":
        assert options.ner_model is not None
        model, _, revision = options.ner_model.partition("@")
        return NerTyper(model, revision=revision or None, device=options.device)
    sources: list[Iterable[tuple[str, str]]] = []
    if options.bases:
        sources.append(typed_names(_counted(partial(read_entities, folder / ENTITIES), options, report)))
    sources.extend(_counted(partial(read_typed_names, path), options, report) for path in options.typed_names)
    if options.wordnet is not None:
        sources.append(wordnet_names(read_synsets(options.wordnet)))
    names = NameTypes(chain.from_iterable(sources))
    return DistantTyper(names) if lexicon is None else DistantTyper(names, is_common=lexicon.is_common)


def _texts(sources: Iterable[Source], options: CorpusOptions, report: CorpusReport) -> Iterator[str]:
    n_texts = 0
    for source in sources:
        for text in _counted(partial(read_texts, source, field=options.field), options, report):
            if options.limit is not None and n_texts >= options.limit:
                return
            n_texts += 1
            yield text


def _entity_rows(options: CorpusOptions, report: CorpusReport) -> Iterator[EntityRow]:
    for path in options.bases:
        columns = TsvColumns(types=options.type_columns) if options.type_columns else None
        with open_reader([path], options=ReadOptions(columns=columns)) as reader:
            kb = base_key(path)
            for entity in _counted(reader.read, options, report):
                row = entity_row(entity, kb=kb)
                if row is not None:
                    yield row


def _counted(read: Callable[[ReadReport], Iterator[T]], options: CorpusOptions, report: CorpusReport) -> Iterator[T]:
    """What a reader gives, its bad rows added to the report."""
    own = ReadReport(max_errors=options.max_errors)
    try:
        yield from read(own)
    finally:
        report.skipped.update(own.skipped)
