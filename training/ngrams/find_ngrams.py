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
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from ingest.io.report import ReadReport
from pearl_qdrant.errors import InputError, OptionError, TrainingError
from training.examples.files import opened_sources, texts_of
from training.ngrams.counts import (
    Block,
    BlockStore,
    EntityNames,
    Floats,
    Indices,
    LevelStore,
    Ngrams,
    Records,
    Spans,
    count_in_documents,
    count_levels,
    join_spans,
    keep_best,
    read_entity_names,
    read_texts_of,
    score_ngrams,
)
from training.ngrams.files import (
    META,
    NGRAMS,
    SEQUENCE,
    SEQUENCES,
    SEQUENCES_TEXT,
    SPAN,
    SPANS,
    VERSION,
    normalise_word,
)
from training.options import NgramOptions, Paths, StrPath, as_paths, check_bounds, refuse_overwriting

if TYPE_CHECKING:
    from typing_extensions import Self


_ROWS_AT_ONCE = 1 << 16


class MarkWriter:
    """Scores the n-grams of each block and writes all files but meta.json. A context manager, which closes them."""

    def __init__(
        self, folder: Path, blocks: BlockStore, levels: LevelStore | None, names: EntityNames, options: NgramOptions
    ) -> None:
        self._folder, self._blocks, self._levels, self._names, self._options = folder, blocks, levels, names, options
        self.n_rows: Counter[int] = Counter()
        self.n_spans = self.n_mentions = self.n_marked = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        enter, folder = self._stack.enter_context, self._folder
        self._texts = enter((folder / SEQUENCES_TEXT).open("rb"))
        self._rows = enter((folder / NGRAMS).open("w", encoding="utf-8", newline="\n"))
        self._sequences = enter((folder / SEQUENCES).open("wb"))
        self._spans = enter((folder / SPANS).open("wb"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def write(self) -> None:
        """Write the files."""
        in_documents = self._levels is None
        self._rows.write("ngram\tcount\tpmi\tdocument\n" if in_documents else "ngram\tcount\tpmi\n")
        for number in range(self._blocks.n_blocks):
            block = self._blocks.read(number)
            levels, log_total = self._counts(block, number)
            ngrams = score_ngrams(levels, len(block.tokens), log_total, self._options)
            self._write_rows(ngrams.take(ngrams.first), block)
            ngrams = keep_best(ngrams, block, self._options.max_per_document)
            mentions = self._names.find(block)
            self.n_mentions += len(mentions[0])
            self._write_spans(join_spans(ngrams, mentions, block), block)
        end = np.zeros(1, SEQUENCE)
        end["text"] = (self._folder / SEQUENCES_TEXT).stat().st_size
        end["first_span"] = self.n_spans
        self._sequences.write(end.tobytes())

    def _counts(self, block: Block, number: int) -> tuple[list[Records], float | Floats]:
        """Return the occurrences of each level, and the logarithm of the number of words that they are of."""
        longest = self._options.max_words
        if self._levels is not None:
            levels = [self._levels.read(level, number) for level in range(1, longest + 1)]
            return levels, float(np.log(self._blocks.n_words))
        documents = np.repeat(block.documents - block.documents.min(), block.lengths)
        n_words = np.bincount(documents, weights=block.tokens != 0)
        log_totals = np.log(np.maximum(n_words, 1))[documents]
        return count_in_documents(block, max_words=longest, min_count=self._options.min_count), log_totals

    def _write_rows(self, ngrams: Ngrams, block: Block) -> None:
        """Write the rows of n-grams at their first occurrences, and read the texts of the block."""
        texts = list(read_texts_of(self._texts, block))
        for start in range(0, len(ngrams.positions), _ROWS_AT_ONCE):
            self._write_some(ngrams.take(slice(start, start + _ROWS_AT_ONCE)), block, texts)

    def _write_some(self, ngrams: Ngrams, block: Block, texts: list[str]) -> None:
        sequences = block.sequence_of(ngrams.positions)
        starts, ends = block.starts, block.ends
        keep_case, in_documents = self._options.keep_case, self._levels is None
        columns = (ngrams.positions, ngrams.words, ngrams.counts, ngrams.pmi, sequences)
        for position, n, count, pmi, sequence in zip(*(column.tolist() for column in columns), strict=True):
            text = texts[sequence]
            bounds = zip(starts[position : position + n].tolist(), ends[position : position + n].tolist(), strict=True)
            ngram = " ".join(normalise_word(text[start:end], keep_case=keep_case) for start, end in bounds)
            row = f"{ngram}\t{count}\t{pmi:.6f}"
            self._rows.write(f"{row}\t{block.documents[sequence]}\n" if in_documents else f"{row}\n")
        self.n_rows.update(ngrams.words.tolist())

    def _write_spans(self, spans: Spans, block: Block) -> None:
        records = np.zeros(len(spans.first), dtype=SPAN)
        records["start"], records["end"] = block.starts[spans.first], block.ends[spans.last]
        records["pmi"], records["words"], records["entity"] = spans.pmi, spans.words, spans.entity
        self._spans.write(records.tobytes())
        n_spans: Indices = np.bincount(block.sequence_of(spans.first), minlength=len(block.lengths))
        sequences = np.zeros(len(block.lengths), dtype=SEQUENCE)
        sequences["text"], sequences["document"] = block.offsets, block.documents
        sequences["first_span"] = self.n_spans + np.cumsum(n_spans) - n_spans
        is_word = np.concatenate(([0], np.cumsum(block.tokens != 0)))
        before = block.words_before()
        sequences["words"] = is_word[before + block.lengths] - is_word[before]
        self._sequences.write(sequences.tobytes())
        self.n_spans += len(records)
        self.n_marked += int((n_spans > 0).sum())


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
    check_bounds(options)
    if not paths:
        raise OptionError("inputs", "There is nothing to read: give texts.")
    for name in _FILES:
        refuse_overwriting(folder / name, *paths, *as_paths(options.entities))
    start, report = time.monotonic(), NgramReport()
    with ExitStack() as stack:
        sources = stack.enter_context(opened_sources(paths))
        rows = ReadReport(max_errors=options.max_errors)
        names = read_entity_names(options.entities, rows, keep_case=options.keep_case)
        report.entity_names = names.n_names
        work = stack.enter_context(_working_folder(folder))
        (blocks_folder := work / "blocks").mkdir()
        (finished := work / "out").mkdir()
        blocks = BlockStore(blocks_folder)
        texts = texts_of(
            sources, report.skipped, field=options.field, max_errors=options.max_errors, limit=options.limit
        )
        blocks.write(_reported(texts, on_texts), finished, options)
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


def _reported(texts: Iterable[str], on_texts: Callable[[int], None]) -> Iterator[str]:
    for text in texts:
        yield text
        on_texts(1)


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
