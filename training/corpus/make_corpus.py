"""Make a corpus from texts and bases in one call: what `pearl-qdrant train corpus` does.

Texts are plain text, or JSON Lines with a text field; compressed or not.

from pearl_qdrant import CorpusOptions, make_corpus

make_corpus("articles.jsonl.gz", "corpus", CorpusOptions(wordnet="/usr/share/wordnet"))
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

import msgspec

from ingest.formats import ReadOptions, open_reader
from ingest.io.lines import BadLine, byte_lines
from ingest.io.report import INVALID_UTF8, ReadReport
from ingest.io.source import ByteSource
from ingest.io.streams import open_sources
from ingest.readers.columns import TableColumns
from pearl_qdrant.errors import FormatError, OptionError
from training.corpus.chunking import ChunkParser, Lexicon, PhraseParser, PhraseTyper
from training.corpus.constituency import BeneparParser
from training.corpus.counting import CorpusCounts, build_corpus, write_entities
from training.corpus.files import ENTITIES, EntityRow, base_key, entity_row, read_entities, typed_names
from training.corpus.typing import DistantTyper, NameTypes, NerTyper, read_typed_names, wordnet_names
from training.examples.wordnet import read_synsets
from training.options import DEFAULT_FIELD, CorpusOptions, Paths, StrPath, as_paths

MAX_TEXT_BYTES = 64 << 20
"""A longer line is skipped: no article is as long."""

NOT_JSON = "not_json"
NO_TEXT = "no_text"

_HEAD_BYTES = 1 << 12


def read_texts(source: ByteSource, report: ReadReport, *, field: str = DEFAULT_FIELD) -> Iterator[str]:
    """Yield the texts of a file: the field of each row of JSON Lines, or each line of plain text.

    The first character that is not white space decides: a file that starts with `{` is JSON Lines.

    Args:
        source: A file, a pipe or standard input, plain or compressed.
        report: Counts rows, and those skipped.
        field: Name of the text field in JSON Lines.

    Raises:
        FormatError: If the file is empty or not text, or no row has the field.
        TooManyErrorsError: If more rows are bad than the report allows.
    """
    is_json = source.head(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{"
    report.notes.append(f"{source.path}: " + (f"JSON Lines, field '{field}'" if is_json else "plain text"))
    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    n_texts = 0
    for number, line in byte_lines(source, max_bytes=MAX_TEXT_BYTES):
        if isinstance(line, BadLine):
            report.rows += 1
            report.skip(line.reason, path=source.path, line=number, text=line.text)
            continue
        if not line.strip():
            continue
        report.rows += 1
        text, reason = _field(decoder, line, field) if is_json else _decoded(line)
        if text is None:
            report.skip(reason, path=source.path, line=number, text=line[:200].decode("utf-8", "replace"))
            continue
        n_texts += 1
        yield text
    if is_json and not n_texts:
        raise FormatError(
            source.path, None, f"no row has the field '{field}'. Give the name of the text field as 'field'"
        )


def _decoded(line: bytes) -> tuple[str | None, str]:
    try:
        return line.decode("utf-8").rstrip("\r"), ""
    except UnicodeDecodeError:
        return None, INVALID_UTF8


def _field(decoder: msgspec.json.Decoder[dict[str, msgspec.Raw]], line: bytes, field: str) -> tuple[str | None, str]:
    """Return the text of a row; or None and the reason."""
    try:
        row = decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None, NOT_JSON
    try:
        return msgspec.json.decode(row[field], type=str), ""
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None, NO_TEXT


T = TypeVar("T")


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
        ModelError: If a parser or model is not installed or does not exist.
    """
    options, folder, texts = options or CorpusOptions(), Path(out), [str(path) for path in as_paths(inputs)]
    _check(texts, options)
    start = time.monotonic()
    report = CorpusReport()

    def parsed(n_texts: int) -> None:
        report.texts += n_texts
        on_texts(n_texts)

    with ExitStack() as stack:
        sources = open_sources(texts) if texts else ()
        for source in sources:
            stack.callback(source.close)
        if options.bases:
            report.entities = write_entities(_entity_rows(options, report), folder)
        if sources:
            lexicon = Lexicon(Path(options.wordnet)) if options.wordnet else None
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


def _check(inputs: Sequence[str], options: CorpusOptions) -> None:
    """Refuse options that cannot work, before anything is read."""
    if not inputs and not as_paths(options.bases):
        raise OptionError("inputs", "There is nothing to read: give texts, or 'bases'.")
    if inputs and options.parser == "builtin" and options.wordnet is None:
        raise OptionError(
            "wordnet",
            "The built-in parser needs the folder of WordNet as 'wordnet' "
            "(Debian: apt install wordnet-base; the folder is /usr/share/wordnet).",
        )
    if inputs and options.typer == "ner" and not options.ner_model:
        raise OptionError(
            "ner_model", "'typer' ner needs a 'ner_model': a folder or hub id of a model trained on OntoNotes."
        )


def _parser(options: CorpusOptions, lexicon: Lexicon | None) -> Callable[[], PhraseParser]:
    """Return what makes the parser, in this process or in another."""
    if options.parser == "benepar":
        return partial(
            BeneparParser,
            spacy_model=options.spacy_model,
            model=options.benepar_model,
            max_words=options.max_words,
        )
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
    sources: list[Iterable[tuple[str, str]]] = []
    if options.bases:
        sources.append(typed_names(_counted(partial(read_entities, folder / ENTITIES), options, report)))
    sources.extend(_counted(partial(read_typed_names, path), options, report) for path in as_paths(options.typed_names))
    if options.wordnet is not None:
        sources.append(wordnet_names(read_synsets(Path(options.wordnet))))
    names = NameTypes(chain.from_iterable(sources))
    return DistantTyper(names) if lexicon is None else DistantTyper(names, is_common=lexicon.is_common)


def _texts(sources: Iterable[ByteSource], options: CorpusOptions, report: CorpusReport) -> Iterator[str]:
    n_texts = 0
    for source in sources:
        for text in _counted(partial(read_texts, source, field=options.field), options, report):
            if options.limit is not None and n_texts >= options.limit:
                return
            n_texts += 1
            yield text


def _entity_rows(options: CorpusOptions, report: CorpusReport) -> Iterator[EntityRow]:
    for path in as_paths(options.bases):
        columns = TableColumns(types=options.type_columns) if options.type_columns else None
        with open_reader([path], options=ReadOptions(columns=columns)) as reader:
            kb = base_key(path)
            for entity in _counted(reader.read, options, report):
                row = entity_row(entity, kb=kb)
                if row is not None:
                    yield row


def _counted(read: Callable[[ReadReport], Iterator[T]], options: CorpusOptions, report: CorpusReport) -> Iterator[T]:
    """Yield what a reader yields, and add its bad rows to the report."""
    own = ReadReport(max_errors=options.max_errors)
    try:
        yield from read(own)
    finally:
        report.skipped.update(own.skipped)
