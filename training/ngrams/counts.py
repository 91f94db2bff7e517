"""Counts of all n-grams of a corpus, level by level: words, then pairs, triples and so on; and their PMI.

An n-gram that occurs often enough consists of two shorter ones that do. So each level numbers its n-grams, and writes
the number of the one that begins at each token (0: none). The next level has as key the numbers at a token and at the
following one: 64 bits, equal for equal n-grams only. Keys are distributed to files by a hash, each counted in pieces.

Memory: a block of documents, a piece, and the distinct keys of one partition. Disk: 16 bytes for each occurrence of a
level while it is counted, and until the end 4 for each token and level, and 9 for each n-gram.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from pearl_qdrant.errors import OptionError
from training.ngrams.files import BREAK, SEQUENCES_TEXT, WordNumbers, split_sentences, word_pattern
from training.options import NgramOptions

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
        kept = np.flatnonzero(pmi > options.threshold)
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
