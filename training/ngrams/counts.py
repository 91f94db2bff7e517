"""Counts of all n-grams of a corpus, level by level: words, then pairs, triples and so on.

The tokens are on disk, in blocks of whole documents that are read into memory one at a time.

An n-gram that occurs often enough consists of two shorter ones that do. So each level gives a number to its n-grams,
and the next one has as key the numbers of the first n - 1 and the last n - 1 words: 64 bits, equal for equal n-grams
only. Keys are distributed to files by a hash; a file has all occurrences of its n-grams, and is counted in pieces.
After each level the occurrences go back to the blocks that they came from.

    tokens -> keys -> partitions -> counts -> occurrences by block -> keys of the next level ...

Memory: a block, a piece, and the distinct keys of one partition. Disk: 16 bytes for each occurrence of a level while
it is counted, and 13 for each that is often enough, until the end.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ingest.io.lines import BadLine, read_lines
from ingest.io.report import ReadReport
from ingest.io.streams import Source
from pearl_qdrant.errors import FormatError, OptionError
from training.ngrams.files import BREAK, SEQUENCES_TEXT, WordNumbers, split_sentences, word_pattern
from training.options import MAX_NGRAM_WORDS, NgramOptions, Paths, as_paths

Numbers = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]

_PARTS = (("tokens", "<u8"), ("starts", "<u4"), ("ends", "<u4"))
_SEQUENCE_PARTS = (("offsets", "<u8"), ("lengths", "<u4"), ("documents", "<u4"))


@dataclass(frozen=True, slots=True)
class Block:
    """Some documents: arrays over their tokens (`t`), and over their sequences (`s`).

    After each sequence there is one more token, `BREAK`.

    Attributes:
        tokens: Numbers of the words, (t,).
        starts, ends: Where each word begins and ends in the text of its sequence, in characters, (t,).
        offsets: Where the text of each sequence begins in the file, in bytes, (s,).
        lengths: Tokens of each sequence, its `BREAK` included, (s,).
        documents: The document of each sequence, numbered from 0, (s,).
    """

    tokens: Numbers
    starts: npt.NDArray[np.uint32]
    ends: npt.NDArray[np.uint32]
    offsets: Numbers
    lengths: npt.NDArray[np.uint32]
    documents: npt.NDArray[np.uint32]

    def sequence_of(self, positions: npt.NDArray[np.integer]) -> Indices:
        """Return the sequence of each token, counted from 0 in the block."""
        sequences: Indices = np.repeat(np.arange(len(self.lengths)), self.lengths)[positions]
        return sequences

    def words_before(self) -> Indices:
        """Return the number of tokens before each sequence, (s,)."""
        lengths = self.lengths.astype(np.int64)
        return np.cumsum(lengths) - lengths


@dataclass(slots=True)
class BlockStore:
    """Writes the blocks of a corpus and the texts of its sequences, and reads the blocks again.

    Attributes:
        folder: Of the blocks, which are temporary.
        n_blocks, n_documents, n_sequences, n_words: Counts of what was written.
    """

    folder: Path
    n_blocks: int = 0
    n_documents: int = 0
    n_sequences: int = 0
    n_words: int = 0
    _arrays: dict[str, array[int]] = field(default_factory=dict)

    def write(self, texts: Iterable[str], out: Path, options: NgramOptions) -> None:
        """Split texts, one a document, into sequences and words; the texts of the sequences go to the folder `out`."""
        numbers = WordNumbers(keep_case=options.keep_case)
        pattern = word_pattern(breaks=options.punctuation == "break")
        self._clear()
        offset = in_document = 0
        with (out / SEQUENCES_TEXT).open("wb") as file:
            for text in texts:
                in_document = 0
                for sentence in split_sentences(text):
                    spans = [found.span() for found in pattern.finditer(sentence)]
                    tokens = [numbers[sentence[start:end]] for start, end in spans]
                    for piece, first, last in _pieces(sentence, spans, tokens, options.max_sequence_words):
                        in_document = self._start_part(in_document, last - first, options)
                        self._add(tokens[first:last], spans[first:last], piece[0], offset)
                        offset += file.write(piece[1].encode("utf-8", "replace") + b"\n")
                self.n_documents += 1
                if len(self._arrays["tokens"]) >= options.block_words:
                    self._save()
        if self._arrays["tokens"]:
            self._save()

    def _start_part(self, in_document: int, n_tokens: int, options: NgramOptions) -> int:
        """Count the tokens of a document; one of more than a block goes on as another document."""
        if in_document + n_tokens > options.block_words and in_document:
            self.n_documents += 1
            self._save()
            in_document = 0
        return in_document + n_tokens

    def _add(self, tokens: list[int], spans: list[tuple[int, int]], shift: int, offset: int) -> None:
        arrays = self._arrays
        arrays["tokens"].extend([*tokens, BREAK])
        arrays["starts"].extend([*(start - shift for start, _ in spans), 0])
        arrays["ends"].extend([*(end - shift for _, end in spans), 0])
        arrays["offsets"].append(offset)
        arrays["lengths"].append(len(tokens) + 1)
        arrays["documents"].append(self.n_documents)
        self.n_sequences += 1
        self.n_words += len(tokens) - tokens.count(BREAK)

    def _save(self) -> None:
        for name, values in self._arrays.items():
            with self._path(name, self.n_blocks).open("wb") as file:
                values.tofile(file)
        self.n_blocks += 1
        self._clear()

    def _clear(self) -> None:
        codes = {"<u8": "Q", "<u4": "I"}
        self._arrays = {name: array(codes[kind]) for name, kind in (*_PARTS, *_SEQUENCE_PARTS)}

    def _path(self, name: str, block: int) -> Path:
        return self.folder / f"{name}.{block}"

    def read(self, block: int) -> Block:
        """Return a block."""
        return Block(
            **{name: np.fromfile(self._path(name, block), dtype=kind) for name, kind in (*_PARTS, *_SEQUENCE_PARTS)}
        )

    def read_tokens(self, block: int) -> Numbers:
        """Return the tokens of a block alone."""
        return np.fromfile(self._path("tokens", block), dtype="<u8")


def read_texts_of(file: BinaryIO, block: Block) -> Iterator[str]:
    """Yield the texts of the sequences of a block, in order; the file stands at the first one."""
    for _ in range(len(block.offsets)):
        yield file.readline()[:-1].decode("utf-8")


def _pieces(
    sentence: str, spans: list[tuple[int, int]], tokens: list[int], longest: int
) -> Iterator[tuple[tuple[int, str], int, int]]:
    """Yield the pieces of a sentence that have a word: where each begins, its text, and its first and last token."""
    if not any(tokens):
        return
    if len(tokens) <= longest:
        yield (0, sentence), 0, len(tokens)
        return
    for first in range(0, len(tokens), longest):
        last = min(first + longest, len(tokens))
        start = spans[first][0]
        end = spans[last][0] if last < len(tokens) else len(sentence)
        if any(tokens[first:last]):
            yield (start, sentence[start:end].rstrip()), first, last


Records = npt.NDArray[Any]

OCCURRENCE = np.dtype([("position", "<u4"), ("id", "<u4"), ("count", "<u4"), ("first", "u1")])
"""An occurrence of an n-gram: its first token in the block, its number from 1, how often it occurs, and whether this
is the first time."""

_ENTRY = np.dtype([("key", "<u8"), ("place", "<u8")])  # the block is in the upper half of the place
_PIECE = 1 << 20  # entries held in memory at a time
_MOST_PARTITIONS = 128  # open files; macOS allows 256
_MOST_IDS = (1 << 32) - 1
_MOST_COUNT = (1 << 32) - 1
_ODD = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing: Knuth, volume 3, section 6.4


@dataclass(slots=True)
class LevelStore:
    """The counted levels of a corpus, on disk; `n_kept` has the distinct n-grams of each that occur often enough."""

    folder: Path
    n_kept: dict[int, int]

    def read(self, level: int, block: int) -> Records:
        """Return the occurrences of a level in a block, ordered by position, (o,) of `OCCURRENCE`."""
        path = self._path(level, block)
        records = np.fromfile(path, dtype=OCCURRENCE) if path.exists() else np.empty(0, dtype=OCCURRENCE)
        return records[np.argsort(records["position"], kind="stable")]

    def _path(self, level: int, block: int) -> Path:
        return self.folder / f"level{level}.{block}"


def count_levels(
    blocks: BlockStore, *, max_words: int, min_count: int, on_level: Callable[[int], None] = lambda level: None
) -> LevelStore:
    """Count the n-grams of a corpus.

    Args:
        blocks: The tokens.
        max_words: Words of the longest n-gram.
        min_count: N-grams that occur less often are skipped.
        on_level: Called with each level that is counted.

    Raises:
        OptionError: If a level has more than 2^32 distinct n-grams.
        OSError: If the disk is full.
    """
    levels = LevelStore(blocks.folder, {})
    n_partitions = 1
    while n_partitions * _PIECE < blocks.n_words and n_partitions < _MOST_PARTITIONS:
        n_partitions *= 2
    for level in range(1, max_words + 1):
        with ExitStack() as stack:
            paths = [blocks.folder / f"partition.{p}" for p in range(n_partitions)]
            files = [stack.enter_context(path.open("wb")) for path in paths]
            for block in range(blocks.n_blocks):
                keys, positions = _keys(blocks, levels, level, block)
                _distribute(keys, positions + (np.uint64(block) << np.uint64(32)), files)
        levels.n_kept[level] = 0
        for path in paths:
            _count_partition(path, levels, level, min_count)
            path.unlink()
        on_level(level)
    return levels


def _keys(blocks: BlockStore, levels: LevelStore, level: int, block: int) -> tuple[Numbers, Numbers]:
    """Return the keys of the n-grams of a block that can be frequent enough, and their positions."""
    if level == 1:
        tokens = blocks.read_tokens(block)
        positions = np.flatnonzero(tokens)
        return tokens[positions], positions.astype(np.uint64)
    return join_keys(levels.read(level - 1, block))


def join_keys(shorter: Records) -> tuple[Numbers, Numbers]:
    """Return the keys and positions of the n-grams whose first and last n - 1 words are given, ordered by position."""
    positions = shorter["position"].astype(np.uint64)
    ids = shorter["id"].astype(np.uint64)
    follow = np.flatnonzero(positions[1:] == positions[:-1] + np.uint64(1))
    return (ids[follow] << np.uint64(32)) | ids[follow + 1], positions[follow]


def _distribute(keys: Numbers, places: Numbers, files: Sequence[BinaryIO]) -> None:
    """Append entries to the files of their partitions, in order of their places."""
    entries = np.empty(len(keys), dtype=_ENTRY)
    if len(files) == 1:
        entries["key"], entries["place"] = keys, places
        files[0].write(entries.tobytes())
        return
    shift = np.uint64(64 - (len(files) - 1).bit_length())
    partitions = ((keys * _ODD) >> shift).astype(np.uint8)
    order = np.argsort(partitions, kind="stable")
    entries["key"], entries["place"] = keys[order], places[order]
    bounds = np.searchsorted(partitions[order], np.arange(len(files) + 1))
    for file, start, end in zip(files, bounds[:-1], bounds[1:], strict=True):
        file.write(entries[start:end].tobytes())


def _level_pieces(path: Path) -> Iterator[Records]:
    with path.open("rb") as file:
        while len(piece := np.fromfile(file, dtype=_ENTRY, count=_PIECE)):
            yield piece


def _count_partition(path: Path, levels: LevelStore, level: int, min_count: int) -> None:
    """Count a partition, number its frequent n-grams, and write their occurrences to the blocks."""
    keys, counts = np.empty(0, np.uint64), np.empty(0, np.int64)
    for piece in _level_pieces(path):
        some, n_some = np.unique(piece["key"], return_counts=True)
        keys, counts = _add_counts(keys, counts, some, n_some)
    frequent = counts >= min_count
    keys, counts = keys[frequent], np.minimum(counts[frequent], _MOST_COUNT)
    first_id = levels.n_kept[level] + 1
    levels.n_kept[level] += len(keys)
    if levels.n_kept[level] > _MOST_IDS:
        raise OptionError(
            "min_count", f"There are over {_MOST_IDS:,} n-grams of {level} words. Raise 'min_count', or read less."
        )
    if not len(keys):
        return
    seen = np.zeros(len(keys), dtype=bool)
    for piece in _level_pieces(path):
        found = np.searchsorted(keys, piece["key"])
        found[found == len(keys)] = 0
        kept = keys[found] == piece["key"]
        found, places = found[kept], piece["place"][kept]
        records = np.zeros(len(found), dtype=OCCURRENCE)
        records["position"] = places & np.uint64(_MOST_IDS)
        records["id"] = found + first_id
        records["count"] = counts[found]
        new, first = np.unique(found, return_index=True)
        records["first"][first[~seen[new]]] = 1
        seen[new] = True
        _return_to_blocks(records, places >> np.uint64(32), levels, level)


def _add_counts(
    keys: Numbers, counts: npt.NDArray[np.int64], more: Numbers, n_more: npt.NDArray[np.int64]
) -> tuple[Numbers, npt.NDArray[np.int64]]:
    """Add two sorted tables of counts."""
    if not len(keys):
        return more, n_more
    both, place = np.unique(np.concatenate((keys, more)), return_inverse=True)
    sums = np.zeros(len(both), np.int64)
    sums[place[: len(keys)]] = counts
    sums[place[len(keys) :]] += n_more
    return both, sums


def _return_to_blocks(records: Records, blocks: Numbers, levels: LevelStore, level: int) -> None:
    """Append occurrences to the files of their blocks; they are ordered by block."""
    bounds = np.flatnonzero(np.diff(blocks, prepend=blocks[:1])) if len(blocks) else np.empty(0, np.int64)
    for start, end in zip([0, *bounds], [*bounds, len(blocks)], strict=True):
        if start < end:
            with levels._path(level, int(blocks[start])).open("ab") as file:
                file.write(records[start:end].tobytes())


def count_in_documents(block: Block, *, max_words: int, min_count: int) -> list[Records]:
    """Count the n-grams of each document of a block, in memory; returns the occurrences of each level."""
    positions = np.flatnonzero(block.tokens).astype(np.uint64)
    _, words = np.unique(block.tokens[positions], return_inverse=True)
    documents = block.documents[block.sequence_of(positions)].astype(np.uint64)
    # The document is part of the key of a word, and so of that of each n-gram.
    keys = ((documents - documents.min()) << np.uint64(32)) | words.astype(np.uint64) if len(words) else positions
    levels = []
    for _ in range(max_words):
        records = _count_keys(keys, positions, min_count)
        levels.append(records)
        keys, positions = join_keys(records)
    return levels


def _count_keys(keys: Numbers, positions: Numbers, min_count: int) -> Records:
    """Return the occurrences of the keys that are frequent enough, ordered by position."""
    distinct, first, place, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    frequent = counts >= min_count
    ids = np.cumsum(frequent)
    is_first = np.zeros(len(keys), dtype=np.uint8)
    is_first[first] = 1
    kept = frequent[place] if len(distinct) else np.zeros(0, dtype=bool)
    records = np.zeros(int(kept.sum()), dtype=OCCURRENCE)
    records["position"] = positions[kept]
    records["id"] = ids[place[kept]]
    records["count"] = counts[place[kept]]
    records["first"] = is_first[kept]
    return records


_FACTOR = 0xD6E8FEB86659FD93  # of a multiplicative hash: odd, with bits of no pattern
_ALL = (1 << 64) - 1


class EntityNames:
    """Names of two words to `MAX_NGRAM_WORDS`, 8 bytes each in memory.

    Attributes:
        n_names: Distinct names.
        n_unused: Lines whose name is shorter or longer.
    """

    def __init__(self, names: Iterable[str], *, keep_case: bool = False) -> None:
        numbers, pattern = WordNumbers(keep_case=keep_case), word_pattern()
        self.n_unused = 0
        found: dict[int, array[int]] = {}
        for name in names:
            words = pattern.findall(name)
            if not 2 <= len(words) <= MAX_NGRAM_WORDS:
                self.n_unused += 1
                continue
            key = 0
            for word in words:
                key = ((key ^ (key >> 31)) * _FACTOR + numbers[word]) & _ALL
            found.setdefault(len(words), array("Q")).append(key)
        self._keys = {n: np.unique(np.frombuffer(keys, dtype=np.uint64)) for n, keys in found.items()}
        self.n_names = sum(map(len, self._keys.values()))

    def find(self, block: Block) -> tuple[Indices, Indices]:
        """Find the mentions in a block: from the left, the longest first, without overlap; first and last tokens, (m,)
        each.
        """
        positions = np.flatnonzero(block.tokens)
        words, sequences = block.tokens[positions], block.sequence_of(positions)
        starts, lengths = [], []
        for n in sorted(self._keys):
            here = _find_names(words, sequences, n, self._keys[n])
            starts.append(here)
            lengths.append(np.full(len(here), n))
        if not starts:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        start, length = np.concatenate(starts), np.concatenate(lengths)
        order = np.lexsort((-length, start))
        kept, end = [], 0
        for i in order:
            if start[i] >= end:
                kept.append(i)
                end = start[i] + length[i]
        chosen = np.array(kept, dtype=np.int64)
        return positions[start[chosen]], positions[start[chosen] + length[chosen] - 1]


def _find_names(words: Numbers, sequences: Indices, n: int, names: Numbers) -> npt.NDArray[np.int64]:
    """Return where n words in one sequence are a name."""
    n_places = len(words) - n + 1
    if n_places < 1:
        return np.empty(0, np.int64)
    keys = np.zeros(n_places, np.uint64)
    for k in range(n):
        keys = (keys ^ (keys >> np.uint64(31))) * np.uint64(_FACTOR) + words[k : k + n_places]
    found = np.searchsorted(names, keys)
    found[found == len(names)] = 0
    return np.flatnonzero((names[found] == keys) & (sequences[:n_places] == sequences[n - 1 :]))


def read_entity_names(paths: Paths, report: ReadReport, *, keep_case: bool = False) -> EntityNames:
    """Read names, one a line. Raises FormatError if a file cannot be read, or no name has two words."""
    files = as_paths(paths)
    names = EntityNames(_lines(files, report), keep_case=keep_case)
    if files and not names.n_names:
        message = f"no name has from 2 to {MAX_NGRAM_WORDS} words. Give a file with a name on each line"
        raise FormatError(str(files[0]), None, message, option="entities")
    return names


def _lines(paths: Iterable[object], report: ReadReport) -> Iterable[str]:
    for path in paths:
        source = Source(str(path))
        try:
            for number, line in read_lines(source):
                if isinstance(line, BadLine):
                    report.skip(line.reason, path=source.path, line=number, text=line.text)
                elif line.strip():
                    yield line
        finally:
            source.close()


Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ngrams:
    """Occurrences of n-grams above the threshold, ordered by first token and length; arrays of (o,).

    Attributes:
        positions: First token.
        words: Number of words.
        ids: Number of the n-gram among those of its length, from 1.
        counts: How often it occurs.
        pmi: In nats.
        first: Whether it is the first occurrence.
    """

    positions: Indices
    words: Indices
    ids: Indices
    counts: Indices
    pmi: Floats
    first: npt.NDArray[np.bool_]

    def take(self, chosen: npt.NDArray[np.integer] | npt.NDArray[np.bool_] | slice) -> Ngrams:
        """Return some of the occurrences."""
        return Ngrams(
            *(getattr(self, name)[chosen] for name in ("positions", "words", "ids", "counts", "pmi", "first"))
        )


def score_ngrams(levels: Sequence[Records], n_tokens: int, log_total: float | Floats, options: NgramOptions) -> Ngrams:
    """Return the n-grams whose PMI is above the threshold.

    PMI(w) = (log P(w) - sum of log P(x_k)) / |w|, where P divides a count by the number of words: ULR, section 3.1.

    Args:
        levels: Occurrences of words, pairs, triples and so on, each ordered by position.
        n_tokens: Tokens of the block.
        log_total: Logarithm of the number of words that the counts are of; one for all, or for each token, (t,).
        options: Factor and threshold.
    """
    words = levels[0]
    log_counts = np.zeros(n_tokens)
    log_counts[words["position"]] = np.log(words["count"])
    parts = []
    for n, records in enumerate(levels[1:], 2):
        position = records["position"].astype(np.int64)
        total = log_total[position] if isinstance(log_total, np.ndarray) else log_total
        pmi = np.log(records["count"]) + (n - 1) * total
        for k in range(n):
            pmi -= log_counts[position + k]
        if options.factor == "length":
            pmi /= n
        kept = np.flatnonzero(pmi > options.threshold)
        some = records[kept]
        parts.append(
            Ngrams(
                position[kept],
                np.full(len(kept), n),
                some["id"].astype(np.int64),
                some["count"].astype(np.int64),
                pmi[kept],
                some["first"].astype(bool),
            )
        )
    names = ("positions", "words", "ids", "counts", "pmi", "first")
    ngrams = Ngrams(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
    return ngrams.take(np.lexsort((ngrams.words, ngrams.positions)))


def keep_best(ngrams: Ngrams, block: Block, max_per_document: int) -> Ngrams:
    """Return the occurrences of the distinct n-grams of highest PMI in each document; of equals the earlier one."""
    documents = block.documents[block.sequence_of(ngrams.positions)]
    bounds = np.flatnonzero(np.diff(documents)) + 1
    kept = np.ones(len(documents), dtype=bool)
    for start, end in zip([0, *bounds], [*bounds, len(documents)], strict=True):
        if end - start <= max_per_document:
            continue
        keys = (ngrams.words[start:end] << 32) | ngrams.ids[start:end]
        _, first, place = np.unique(keys, return_index=True, return_inverse=True)
        order = np.lexsort((first, -ngrams.pmi[start:end][first]))
        best = np.zeros(len(first), dtype=bool)
        best[order[:max_per_document]] = True
        kept[start:end] = best[place]
    return ngrams if kept.all() else ngrams.take(kept)


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of a block, ordered by first and last token; arrays of (n,).

    Attributes:
        first, last: Tokens.
        words: Number of words.
        pmi: In nats; NaN for entity mentions that are no n-grams by their PMI.
        entity: Whether it is an entity mention.
    """

    first: Indices
    last: Indices
    words: Indices
    pmi: Floats
    entity: npt.NDArray[np.bool_]


def join_spans(ngrams: Ngrams, mentions: tuple[Indices, Indices], block: Block) -> Spans:
    """Join n-grams with entity mentions; what is both is one span."""
    mention_first, mention_last = mentions
    words_until = np.cumsum(block.tokens != 0)
    mention_words = words_until[mention_last] - words_until[mention_first] + 1
    n, m = len(ngrams.positions), len(mention_first)
    spans = Spans(
        np.concatenate((ngrams.positions, mention_first)),
        np.concatenate((ngrams.positions + ngrams.words - 1, mention_last)),
        np.concatenate((ngrams.words, mention_words)),
        np.concatenate((ngrams.pmi, np.full(m, np.nan))),
        np.concatenate((np.zeros(n, dtype=bool), np.ones(m, dtype=bool))),
    )
    order = np.lexsort((spans.entity, spans.last, spans.first))
    first, last, entity = spans.first[order], spans.last[order], spans.entity[order]
    same = np.zeros(len(order), dtype=bool)  # as the one before it
    same[1:] = (first[1:] == first[:-1]) & (last[1:] == last[:-1])
    entity[:-1] |= same[1:]
    kept = ~same
    return Spans(first[kept], last[kept], spans.words[order][kept], spans.pmi[order][kept], entity[kept])
