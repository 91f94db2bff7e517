"""N-grams of a corpus from files to a folder in one call: what `pearl-qdrant train ngrams` does."""

from __future__ import annotations

import errno
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pearl_qdrant.errors import InputError, OptionError, TrainingError
from training.examples.files import opened_sources, texts_of
from training.ngrams.counts import (
    Block,
    Indices,
    Levels,
    Records,
    TokenStore,
    count_levels,
    keep_best,
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


@dataclass(slots=True)
class NgramReport:
    """Counts of the n-grams of a corpus.

    Attributes:
        documents: Documents that were read.
        sequences: Their sequences.
        marked_sequences: Those that have an n-gram.
        words: Occurrences of words.
        ngrams: Rows of ngrams.tsv, by number of words.
        spans: Occurrences of n-grams in sequences.
        skipped: Bad rows, by reason.
        seconds: Wall-clock time.
    """

    documents: int = 0
    sequences: int = 0
    marked_sequences: int = 0
    words: int = 0
    ngrams: Counter[int] = field(default_factory=Counter)
    spans: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def _write_files(folder: Path, levels: Levels, options: NgramOptions, report: NgramReport) -> None:
    """Score the n-grams of each block, write all files but meta.json, and count what is written."""
    with ExitStack() as stack:
        texts = stack.enter_context((folder / SEQUENCES_TEXT).open("rb"))
        rows = stack.enter_context((folder / NGRAMS).open("w", encoding="utf-8", newline="\n"))
        sequences = stack.enter_context((folder / SEQUENCES).open("wb"))
        marks = stack.enter_context((folder / SPANS).open("wb"))
        rows.write("ngram\tcount\tpmi\n")
        for block in levels.tokens.blocks():
            ngrams = score_ngrams(levels, block, options)
            first = ngrams[_is_first(ngrams, levels.seen)]
            of_block = [texts.readline().decode("utf-8") for _ in range(len(block.sequences))]
            rows.writelines(_rows(first, block, of_block))
            report.ngrams.update(first["words"].tolist())
            spans = keep_best(ngrams, block, options.max_per_document)
            records = np.zeros(len(spans), dtype=SPAN)
            records["start"] = block.tokens["start"][spans["position"]]
            records["end"] = block.tokens["end"][spans["position"] + spans["words"] - 1]
            records["pmi"], records["words"] = spans["pmi"], spans["words"]
            marks.write(records.tobytes())
            n_spans = np.bincount(block.sequence_of(spans["position"]), minlength=len(block.sequences))
            sequences.write(_sequences(block, report.spans + np.cumsum(n_spans) - n_spans).tobytes())
            report.spans += len(records)
            report.marked_sequences += int((n_spans > 0).sum())
        end = np.zeros(1, SEQUENCE)
        end["text"], end["first_span"] = texts.tell(), report.spans
        sequences.write(end.tobytes())


def _is_first(ngrams: Records, seen: list[npt.NDArray[np.bool_]]) -> npt.NDArray[np.bool_]:
    """Return which n-grams occur here for the first time, and note them."""
    is_first = np.zeros(len(ngrams), dtype=bool)
    for n in np.unique(ngrams["words"]).tolist():
        rows = np.flatnonzero(ngrams["words"] == n)
        ids, at = np.unique(ngrams["id"][rows], return_index=True)
        new = ~seen[n - 1][ids]
        is_first[rows[at[new]]] = True
        seen[n - 1][ids] = True
    return is_first


def _rows(ngrams: Records, block: Block, texts: list[str]) -> Iterator[str]:
    """Yield the rows of ngrams.tsv."""
    sequences = block.sequence_of(ngrams["position"]).tolist()
    for (position, n, _, count, pmi), sequence in zip(ngrams.tolist(), sequences, strict=True):
        here = slice(position, position + n)
        places = block.tokens[["start", "end"]][here].tolist()
        ngram = " ".join(normalise_word(texts[sequence][start:end]) for start, end in places)
        yield f"{ngram}\t{count}\t{pmi:.6f}\n"


def _sequences(block: Block, first_span: Indices) -> Records:
    """Return the records of the sequences of a block."""
    found = np.zeros(len(block.sequences), dtype=SEQUENCE)
    for name in ("text", "document"):
        found[name] = block.sequences[name]
    found["first_span"] = first_span
    of_words = block.sequence_of(np.flatnonzero(block.tokens["word"]))
    found["words"] = np.bincount(of_words, minlength=len(found))
    return found


_FILES = (NGRAMS, SEQUENCES_TEXT, SEQUENCES, SPANS, META)  # the last one says that the others are complete


def find_ngrams(  # long: its arguments, and what they mean
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
        refuse_overwriting(folder / name, *paths)
    start, report = time.monotonic(), NgramReport()
    with ExitStack() as stack:
        sources = stack.enter_context(opened_sources(paths))
        work = stack.enter_context(_working_folder(folder))
        (arrays := work / "arrays").mkdir()
        (finished := work / "out").mkdir()
        tokens = TokenStore(arrays)
        texts = texts_of(
            sources, report.skipped, field=options.field, max_errors=options.max_errors, limit=options.limit
        )

        def reported() -> Iterator[str]:
            for text in texts:
                yield text
                on_texts(1)

        tokens.write(reported(), finished, options)
        report.documents, report.sequences, report.words = tokens.n_documents, tokens.n_sequences, tokens.n_words
        if not tokens.n_words:
            raise InputError(" ".join(paths), None, "no text has a word. Nothing can be counted")
        levels = count_levels(tokens, options, on_level=on_level)
        _write_files(finished, levels, options, report)
        given = {one.name: getattr(options, one.name) for one in fields(options) if one.name != "max_errors"}
        counts = {one.name: getattr(report, one.name) for one in fields(report) if one.name != "seconds"}
        counts["ngrams"] = {str(n): count for n, count in sorted(report.ngrams.items())}
        meta = {"version": VERSION, **counts, "options": given}
        (finished / META).write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
        folder.mkdir(exist_ok=True)
        (folder / META).unlink(missing_ok=True)  # first, so that no mixture looks complete
        for name in _FILES:
            (finished / name).replace(folder / name)
    report.seconds = time.monotonic() - start
    return report


@contextmanager
def _working_folder(out: Path) -> Iterator[Path]:
    """Make a folder beside the result, and remove it at the end; errors of the disk become ours."""
    if out.exists() and not out.is_dir():
        raise OptionError("out", f"{out} is a file. Name a folder.")
    try:
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{out.name}-", dir=out.absolute().parent, ignore_cleanup_errors=True
        ) as work:
            yield Path(work)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            message = f"{out}: no space is left on its disk. What was written is removed. Free some space, or write to "
            raise TrainingError(
                message + "a larger disk: with the defaults it takes about 10 times the size of the text"
            ) from error
        raise OptionError("out", f"{out} cannot be written: {error}") from error
