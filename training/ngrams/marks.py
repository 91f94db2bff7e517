"""The spans of a block: n-grams by PMI, threshold and document, and mentions of given names."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ingest.io.lines import BadLine, read_lines
from ingest.io.report import ReadReport
from ingest.io.streams import Source
from pearl_qdrant.errors import FormatError
from training.ngrams.counts import Block, Indices, Numbers, Records
from training.ngrams.files import WordNumbers, word_pattern
from training.options import MAX_NGRAM_WORDS, NgramOptions, Paths, as_paths

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
        """Find the mentions in a block: from the left, the longest name first, without overlap.

        Returns:
            First and last token of each mention, (m,) and (m,), in order.
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
    """Read names, one a line.

    Raises:
        FormatError: If a file cannot be read, or no name has two words.
        TooManyErrorsError: If more lines are bad than the report allows.
    """
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
