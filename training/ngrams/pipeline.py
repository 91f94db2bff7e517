"""N-grams of a corpus from files to a folder in one call: what `pearl-qdrant train ngrams` does.

from pearl_qdrant import find_ngrams

find_ngrams("articles.jsonl.gz", "ngrams/")
"""

from __future__ import annotations

import errno
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path

from ingest.io.report import ReadReport
from ingest.io.source import ByteSource
from ingest.io.streams import open_sources
from pearl_qdrant.errors import InputError, OptionError, TrainingError
from training.corpus.texts import read_texts
from training.ngrams.blocks import BlockStore
from training.ngrams.entities import read_entity_names
from training.ngrams.files import META, NGRAMS, SEQUENCES, SEQUENCES_TEXT, SPANS, VERSION
from training.ngrams.levels import count_levels
from training.ngrams.writing import MarkWriter
from training.options import NgramOptions, Paths, StrPath, as_paths, refuse_overwriting

_FILES = (NGRAMS, SEQUENCES_TEXT, SEQUENCES, SPANS, META)  # the last one says that the others are complete


@dataclass(slots=True)
class NgramReport:
    """Counts of the n-grams of a corpus.

    Attributes:
        documents: Documents that were read; one of more words than a block counts as several.
        sequences: Their sequences.
        marked_sequences: Those that have an n-gram.
        words: Occurrences of words.
        ngrams: Rows of ngrams.tsv, by number of words.
        spans: Occurrences of n-grams in sequences, entity mentions included.
        entity_names: Names whose mentions were looked for.
        entity_mentions: Their mentions.
        skipped: Bad rows, by reason.
        seconds: Wall-clock time.
    """

    documents: int = 0
    sequences: int = 0
    marked_sequences: int = 0
    words: int = 0
    ngrams: Counter[int] = field(default_factory=Counter)
    spans: int = 0
    entity_names: int = 0
    entity_mentions: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def find_ngrams(
    inputs: Paths,
    out: StrPath,
    options: NgramOptions | None = None,
    *,
    on_texts: Callable[[int], None] = lambda n: None,
    on_level: Callable[[int], None] = lambda level: None,
) -> NgramReport:
    """Count the n-grams of texts, keep those of high PMI, and mark them in the sequences of the texts.

    Memory is bounded for any input: see docs/ulr.md. Equal inputs and options give equal files.

    Args:
        inputs: Files of plain text (a document on each line) or JSON Lines, compressed or not; ``-`` is standard input.
        out: Folder of the result, described in `training.ngrams.files`; created if absent. Temporary files are in a
            folder beside it, which is removed in any case but a kill.
        options: How n-grams are found.
        on_texts: Called with the number of documents read since the last call.
        on_level: Called with the number of words of the n-grams that are counted, from 1 on.

    Raises:
        OptionError: If an option is out of range, there is nothing to read, or `out` cannot be written.
        InputError: If an input cannot be read, has too many bad rows, or no words.
        TrainingError: If the disk is full; nothing is left of the run.
    """
    options, folder, paths = options or NgramOptions(), Path(out), [str(path) for path in as_paths(inputs)]
    options.check()
    if not paths:
        raise OptionError("inputs", "There is nothing to read: give texts.")
    for name in _FILES:
        refuse_overwriting(folder / name, *paths, *as_paths(options.entities))
    start, report = time.monotonic(), NgramReport()
    with ExitStack() as stack:
        sources = open_sources(paths)
        for source in sources:
            stack.callback(source.close)
        rows = ReadReport(max_errors=options.max_errors)
        names = read_entity_names(options.entities, rows, keep_case=options.keep_case)
        report.entity_names = names.n_names
        work = stack.enter_context(_working_folder(folder))
        (blocks_folder := work / "blocks").mkdir()
        (finished := work / "out").mkdir()
        blocks = BlockStore(blocks_folder)
        blocks.write(_texts(sources, options, report, on_texts), finished, options)
        report.skipped.update(rows.skipped)
        report.documents, report.sequences, report.words = blocks.n_documents, blocks.n_sequences, blocks.n_words
        if not blocks.n_words:
            raise InputError(" ".join(paths), None, "no text has a word. Nothing can be counted")
        levels = None
        if options.scope == "corpus":
            levels = count_levels(blocks, max_words=options.max_words, min_count=options.min_count, on_level=on_level)
        with MarkWriter(finished, blocks, levels, names, options) as writer:
            writer.write()
        report.ngrams, report.spans = writer.n_rows, writer.n_spans
        report.entity_mentions, report.marked_sequences = writer.n_mentions, writer.n_marked
        _write_meta(finished / META, options, report)
        _publish(finished, folder)
    report.seconds = time.monotonic() - start
    return report


def _texts(
    sources: tuple[ByteSource, ...], options: NgramOptions, report: NgramReport, on_texts: Callable[[int], None]
) -> Iterator[str]:
    n_texts = 0
    for source in sources:
        rows = ReadReport(max_errors=options.max_errors)
        try:
            for text in read_texts(source, rows, field=options.field):
                if n_texts == options.limit:
                    return
                n_texts += 1
                yield text
                on_texts(1)
        finally:
            report.skipped.update(rows.skipped)


@contextmanager
def _working_folder(out: Path) -> Iterator[Path]:
    """Make a folder beside the result, and remove it at the end; errors of the disk become ours."""
    if out.exists() and not out.is_dir():
        raise OptionError("out", f"{out} is a file. Name a folder.")
    work = None
    try:
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.absolute().parent))
        yield work
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            message = f"{out}: no space is left on its disk. What was written is removed. Free some space, or write to "
            raise TrainingError(
                message + "a larger disk: with the defaults it takes about 10 times the size of the text"
            ) from error
        raise OptionError("out", f"{out} cannot be written: {error}") from error
    finally:
        if work is not None:
            shutil.rmtree(work, ignore_errors=True)


def _write_meta(path: Path, options: NgramOptions, report: NgramReport) -> None:
    given = {
        one.name: getattr(options, one.name) for one in fields(options) if one.name not in ("entities", "max_errors")
    }
    given["entities"] = [str(name) for name in as_paths(options.entities)]
    counts = {one.name: getattr(report, one.name) for one in fields(report) if one.name != "seconds"}
    counts["ngrams"] = {str(n): count for n, count in sorted(report.ngrams.items())}
    path.write_text(json.dumps({"version": VERSION, **counts, "options": given}, indent=2) + "\n", encoding="utf-8")


def _publish(finished: Path, folder: Path) -> None:
    """Move the files to their folder; an older meta.json goes first, so that no mixture looks complete."""
    folder.mkdir(exist_ok=True)
    (folder / META).unlink(missing_ok=True)
    for name in _FILES:
        (finished / name).replace(folder / name)
