"""N-grams of a corpus from files to a folder in one call: what `pearl-qdrant train ngrams` does.

They are counted level by level, words, then pairs, and so on. An n-gram that occurs often enough consists of two
shorter ones that do. So each level numbers its n-grams, and writes the number of the one that begins at each token (0:
none). The next level has as key the numbers at a token and at the following one: 64 bits, equal for equal n-grams only.
Keys are distributed to files by a hash, each counted in pieces.

Memory: a block of documents, a piece, and the distinct keys of one partition. Disk: 16 bytes for each occurrence of a
level while it is counted, and until the end 4 for each token and level, and 9 for each n-gram.
"""

from __future__ import annotations

import errno
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from pearl_qdrant.errors import InputError, OptionError, TrainingError
from training.examples.files import opened_sources, texts_of
from training.ngrams.files import (
    BREAK,
    META,
    NGRAMS,
    SEQUENCE,
    SEQUENCES,
    SEQUENCES_TEXT,
    SPAN,
    SPANS,
    VERSION,
    WordNumbers,
    normalise_word,
    split_sentences,
    word_pattern,
)
from training.options import NgramOptions, Paths, StrPath, as_paths, refuse_overwriting


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
        given = options.model_dump(exclude={"max_errors"})
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


Numbers = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]
Records = npt.NDArray[Any]

TOKEN = np.dtype([("word", "<u8"), ("start", "<u4"), ("end", "<u4")])
"""The number of a word, and where it begins and ends in its sequence, in characters; `BREAK` after each sequence."""

OF_SEQUENCE = np.dtype([("text", "<u8"), ("length", "<u4"), ("document", "<u4")])
"""Where its text begins in the file, in bytes; its tokens, its `BREAK` included; its document, numbered from 0."""


@dataclass(frozen=True, slots=True)
class Block:
    """Some whole documents."""

    first: int  # number of its first token in the corpus
    tokens: Records  # (t,) of `TOKEN`
    sequences: Records  # (s,) of `OF_SEQUENCE`

    def sequence_of(self, positions: npt.NDArray[np.integer]) -> Indices:
        """Return the sequence of each token, counted from 0 in the block."""
        sequences: Indices = np.repeat(np.arange(len(self.sequences)), self.sequences["length"])[positions]
        return sequences


@dataclass(slots=True)
class TokenStore:
    """Writes the tokens of a corpus and the texts of its sequences, and reads them again in blocks."""

    folder: Path  # of the arrays, which are temporary
    n_documents: int = 0
    n_sequences: int = 0
    n_words: int = 0
    ends: list[tuple[int, int]] = field(default_factory=list)  # tokens and sequences up to the end of each block

    def write(self, texts: Iterable[str], out: Path, options: NgramOptions) -> None:
        """Split texts, one a document, into sequences and words; the texts of the sequences go to the folder `out`."""
        numbers, pattern, offset = WordNumbers(), word_pattern(), 0
        tokens: list[tuple[int, int, int]] = []
        sequences: list[tuple[int, int, int]] = []
        with ExitStack() as stack:
            files = [stack.enter_context((self.folder / name).open("wb")) for name in ("tokens", "sequences")]
            texts_file = stack.enter_context((out / SEQUENCES_TEXT).open("wb"))

            def save() -> None:
                n_tokens, n_sequences = self.ends[-1] if self.ends else (0, 0)
                self.ends.append((n_tokens + len(tokens), n_sequences + len(sequences)))
                for file, rows, kind in zip(files, (tokens, sequences), (TOKEN, OF_SEQUENCE), strict=True):
                    np.array(rows, dtype=kind).tofile(file)
                    rows.clear()

            for text in texts:
                for sentence in split_sentences(text):
                    words = [(numbers[found[0]], *found.span()) for found in pattern.finditer(sentence)]
                    for (shift, piece), first, last in _pieces(sentence, words, options.max_sequence_words):
                        tokens += ((number, start - shift, end - shift) for number, start, end in words[first:last])
                        tokens.append((BREAK, 0, 0))
                        sequences.append((offset, last - first + 1, self.n_documents))
                        offset += texts_file.write(piece.encode("utf-8", "replace") + b"\n")
                        self.n_words += last - first
                        self.n_sequences += 1
                self.n_documents += 1
                if len(tokens) >= options.block_words:
                    save()
            save()

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks that have a sequence."""
        at_token, at_sequence = 0, 0
        for token, sequence in self.ends:
            if sequence > at_sequence:
                tokens = self.read("tokens", TOKEN, at_token, token)
                yield Block(at_token, tokens, self.read("sequences", OF_SEQUENCE, at_sequence, sequence))
            at_token, at_sequence = token, sequence

    def read(self, name: str, kind: Any, start: int, end: int) -> Any:
        """Return a part of an array on disk."""
        return np.fromfile(self.folder / name, dtype=kind, count=end - start, offset=start * np.dtype(kind).itemsize)


def _pieces(
    sentence: str, words: list[tuple[int, int, int]], longest: int
) -> Iterator[tuple[tuple[int, str], int, int]]:
    """Yield the pieces of a sentence that has words: where each begins, its text, and its first and last token."""
    for first in range(0, len(words), longest):
        last = min(first + longest, len(words))
        start = words[first][1] if len(words) > longest else 0
        end = words[last][1] if last < len(words) else len(sentence)
        yield (start, sentence[start:end].rstrip()), first, last


_ENTRY = np.dtype([("key", "<u8"), ("place", "<u8")])
_PIECE = 1 << 20  # entries held in memory at a time
_MOST_PARTITIONS = 128  # open files; macOS allows 256
_MOST_NGRAMS = (1 << 32) - 1
_ODD = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing: Knuth, volume 3, section 6.4


@dataclass(frozen=True, slots=True)
class Levels:
    """The counted levels of a corpus, on disk."""

    tokens: TokenStore  # what was counted
    counts: list[Indices]  # how often each n-gram of a level occurs, by its number, from 1 on; (1 + n,) each
    seen: list[npt.NDArray[np.bool_]]  # whether it was written already, as `counts`

    def ids(self, level: int, block: Block) -> npt.NDArray[np.uint32]:
        """Return the number of the n-gram that begins at each token of a block, (t,); 0 where it is too rare."""
        found: npt.NDArray[np.uint32] = self.tokens.read(
            f"ids{level}", "<u4", block.first, block.first + len(block.tokens)
        )
        return found

    def keys(self, level: int, block: Block) -> tuple[Numbers, Indices]:
        """Return the keys of the n-grams of a block that can be frequent enough, and their positions in it."""
        if level == 1:
            positions = np.flatnonzero(block.tokens["word"])
            return block.tokens["word"][positions], positions
        ids = self.ids(level - 1, block).astype(np.uint64)
        positions = np.flatnonzero((ids[:-1] != 0) & (ids[1:] != 0))
        return (ids[positions] << np.uint64(32)) | ids[positions + 1], positions


def count_levels(
    tokens: TokenStore, options: NgramOptions, *, on_level: Callable[[int], None] = lambda level: None
) -> Levels:
    """Count the n-grams of a corpus. Raises OptionError if a level has more than 2^32 distinct n-grams; OSError if the
    disk is full. `options`: how many words the longest n-gram has, how often it must occur, and where. `on_level`:
    called with each level that is counted.
    """
    levels = Levels(tokens, [], [])
    n_partitions = 1
    while n_partitions * _PIECE < tokens.n_words and n_partitions < _MOST_PARTITIONS:
        n_partitions *= 2
    paths = [tokens.folder / f"partition.{p}" for p in range(n_partitions)]
    for level in range(1, options.max_words + 1):
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("wb")) for path in paths]
            for block in tokens.blocks():
                keys, positions = levels.keys(level, block)
                _distribute(keys, positions.astype(np.uint64) + np.uint64(block.first), files)
        ids = _new_array(tokens.folder / f"ids{level}", "<u4", tokens.ends[-1][0])
        counted, n_kept = tokens.folder / f"counts{level}", 0
        with counted.open("wb") as file:
            file.write(np.zeros(1, "<i8").tobytes())
            for path in paths:
                counts = _count_partition(path, ids, n_kept, options.min_count)
                n_kept += len(counts)
                file.write(counts.astype("<i8").tobytes())
                path.unlink()
        levels.counts.append(np.memmap(counted, dtype="<i8", mode="r"))
        levels.seen.append(_new_array(tokens.folder / f"seen{level}", "?", 1 + n_kept))
        on_level(level)
    return levels


def _new_array(path: Path, kind: str, n: int) -> Any:
    """Make an array of zeros on disk. All are written: a program that maps a hole of a full disk is killed."""
    with path.open("wb") as file:
        for start in range(0, n, _PIECE):
            file.write(np.zeros(min(_PIECE, n - start), dtype=kind).tobytes())
    return np.memmap(path, dtype=kind, mode="r+")


def _distribute(keys: Numbers, places: Numbers, files: Sequence[BinaryIO]) -> None:
    """Append entries to the files of their partitions, in order of their places."""
    shift = np.uint64(63 - (len(files) - 1).bit_length())  # two steps, as 64 bits cannot be shifted by 64
    partitions = ((keys * _ODD) >> np.uint64(1) >> shift).astype(np.uint8)
    order = np.argsort(partitions, kind="stable")
    entries = np.empty(len(keys), dtype=_ENTRY)
    entries["key"], entries["place"] = keys[order], places[order]
    bounds = np.searchsorted(partitions[order], np.arange(len(files) + 1))
    for file, start, end in zip(files, bounds[:-1], bounds[1:], strict=True):
        file.write(entries[start:end].tobytes())


def _read_pieces(path: Path) -> Iterator[Records]:
    with path.open("rb") as file:
        while len(piece := np.fromfile(file, dtype=_ENTRY, count=_PIECE)):
            yield piece


def _count_partition(path: Path, ids: npt.NDArray[np.uint32], n_before: int, min_count: int) -> Indices:
    """Number the frequent n-grams of a partition at their places, after others; returns how often each occurs."""
    keys, counts = np.empty(0, np.uint64), np.empty(0, np.int64)
    for piece in _read_pieces(path):
        some, n_some = np.unique(piece["key"], return_counts=True)
        both, place = np.unique(np.concatenate((keys, some)), return_inverse=True)
        sums = np.zeros(len(both), np.int64)
        sums[place[: len(keys)]] = counts
        sums[place[len(keys) :]] += n_some
        keys, counts = both, sums
    frequent = counts >= min_count
    keys, counts = keys[frequent], counts[frequent]
    if n_before + len(keys) > _MOST_NGRAMS:
        raise OptionError("min_count", "There are over 2^32 n-grams of one length. Raise 'min_count', or read less.")
    for piece in _read_pieces(path) if len(keys) else ():
        found = np.searchsorted(keys, piece["key"])
        found[found == len(keys)] = 0
        kept = keys[found] == piece["key"]
        ids[piece["place"][kept]] = found[kept] + n_before + 1
    return counts


NGRAM = np.dtype([("position", "<i8"), ("words", "<i8"), ("id", "<i8"), ("count", "<i8"), ("pmi", "<f8")])
"""An occurrence of an n-gram: its first token in the block, its number of words, its number among those of its length,
how often it occurs, and its PMI in nats."""


def score_ngrams(levels: Levels, block: Block, options: NgramOptions) -> Records:
    """Return the n-grams of a block whose PMI is above the threshold, (o,) of `NGRAM`, by position and length.

    PMI(w) = (log P(w) - sum of log P(x_k)) / |w|, where P divides a count by the number of words: ULR, section 3.1.
    """
    total = np.log(levels.tokens.n_words)
    log_counts = np.log(np.maximum(levels.counts[0][levels.ids(1, block)], 1))
    parts = [np.empty(0, dtype=NGRAM)]
    for n in range(2, options.max_words + 1):
        ids = levels.ids(n, block)
        position = np.flatnonzero(ids)
        counts = levels.counts[n - 1][ids[position]]
        pmi = np.log(counts) + (n - 1) * total
        for k in range(n):
            pmi -= log_counts[position + k]
        if options.factor == "length":
            pmi /= n
        kept = np.flatnonzero(pmi > options.min_pmi)
        part = np.empty(len(kept), dtype=NGRAM)
        part["position"], part["words"], part["id"] = position[kept], n, ids[position[kept]]
        part["count"], part["pmi"] = counts[kept], pmi[kept]
        parts.append(part)
    ngrams = np.concatenate(parts)
    return ngrams[np.lexsort((ngrams["words"], ngrams["position"]))]


def keep_best(ngrams: Records, block: Block, max_per_document: int) -> Records:
    """Return the occurrences of the distinct n-grams of highest PMI in each document; of equals the earlier one."""
    documents = block.sequences["document"][block.sequence_of(ngrams["position"])]
    bounds = np.flatnonzero(np.diff(documents)) + 1
    kept = np.ones(len(documents), dtype=bool)
    for start, end in zip([0, *bounds], [*bounds, len(documents)], strict=True):
        if end - start > max_per_document:
            some = ngrams[start:end]
            _, first, place = np.unique(some["words"] << 32 | some["id"], return_index=True, return_inverse=True)
            best = np.zeros(len(first), dtype=bool)
            best[np.lexsort((first, -some["pmi"][first]))[:max_per_document]] = True
            kept[start:end] = best[place]
    return ngrams[kept]
