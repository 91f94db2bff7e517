"""Rarity of n-grams in a base (IDF), and the lexical score that weights n-grams by it.

    weight of a feature = its value in the name (`lexical.ngrams`) * idf(feature)
    lexical_score       = cosine of the weighted vectors of mention and name, in [0, 1]
    mention_coverage    = share of the mention's squared weight on features that the name has; name_coverage: reverse

Qdrant's own sparse score only finds names: it is unbounded, and it changes with the base. The IDF table is computed
from a sample of the base when a load ends, and stored in the manifest: 2^18 hashed buckets of one byte each.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from pearl_qdrant.lexical.ngrams import SparseRows, fold_name, folded_rows, with_latin, word_indices

BUCKETS = 1 << 18
"""Features in the same bucket share one IDF. A base of 571,000 names has 300,000 features; most of them are words that
occur once, so sharing a bucket changes little."""

SAMPLE_NAMES = 100_000
"""Names that the table is computed from. Point ids are hashes, so the first points are a random sample."""

_STEPS = 16  # per unit of IDF, so a byte holds up to 15.9: the natural logarithm of 8 million
_CHUNK = 10_000
FloatArray = npt.NDArray[np.float32]


class IdfTable:
    """Inverse document frequency of hashed features, (BUCKETS,), in steps of 1/16. Raises ValueError for another shape
    or type.
    """

    def __init__(self, table: npt.NDArray[np.uint8]) -> None:
        if table.shape != (BUCKETS,) or table.dtype != np.uint8:
            raise ValueError(f"an IDF table has {BUCKETS} bytes, this one is {table.dtype} of shape {table.shape}")
        self._table = table
        self._idf = table.astype(np.float32) / _STEPS
        self._highest = max(float(self._idf.max()), 1e-9)

    @classmethod
    def from_names(cls, names: Iterable[str]) -> IdfTable:
        """Count features in at most `SAMPLE_NAMES` names. Without names, all features are equally rare."""
        counts = np.zeros(BUCKETS, dtype=np.int64)
        n_names = 0
        names = iter(islice(names, SAMPLE_NAMES))
        while chunk := list(islice(names, _CHUNK)):
            rows = folded_rows([with_latin(fold_name(name)) for name in chunk])
            counts += np.bincount(rows.indices % BUCKETS, minlength=BUCKETS)
            n_names += len(chunk)
        # As Qdrant's IDF modifier: log((n - df + 0.5) / (df + 0.5) + 1). A feature counts once per name, but several
        # features in one bucket can exceed the number of names.
        idf = np.log((n_names - np.minimum(counts, n_names) + 0.5) / (counts + 0.5) + 1)
        return cls(np.clip(np.rint(idf * _STEPS), 1, 255).astype(np.uint8))

    def to_text(self) -> str:
        """The table as ASCII text, about 60 KB."""
        return base64.b64encode(zlib.compress(self._table.tobytes(), 9)).decode()

    @classmethod
    def from_text(cls, text: str) -> IdfTable:
        """Read what `to_text` wrote. Raises ValueError if it is not an IDF table."""
        try:
            # One byte more than the table: a longer one is refused without unpacking all of it.
            unpacker = zlib.decompressobj()
            table = unpacker.decompress(base64.b64decode(text, validate=True), BUCKETS + 1)
        except zlib.error as error:
            raise ValueError(f"not an IDF table: {error}") from error
        return cls(np.frombuffer(table, dtype=np.uint8))

    def word_frequencies(self, words: Sequence[str]) -> dict[str, float]:
        """How frequent folded words are in the base, in [0, 1]: 0 for words that no name has, logarithmic above. Words
        share buckets with other features, so a word that no name has may get the value of a rare one.
        """
        if not words:
            return {}
        rarity = self._idf[word_indices(words) % BUCKETS] / self._highest
        return dict(zip(words, (1.0 - rarity).tolist(), strict=True))

    def weighted(self, rows: SparseRows) -> SparseRows:
        """Rows with each feature multiplied by its IDF, scaled to unit length again."""
        values = rows.values * self._idf[rows.indices % BUCKETS]
        owner = np.repeat(np.arange(len(rows)), np.diff(rows.offsets))
        norms = np.sqrt(np.bincount(owner, weights=values.astype(np.float64) ** 2, minlength=len(rows)))
        return SparseRows(rows.indices, (values / norms[owner]).astype(np.float32), rows.offsets)


def top_weighted_features(weighted: SparseRows, n: int) -> SparseRows:
    """The `n` features of each row of `IdfTable.weighted` with the largest weights: enough for a search, at half the
    cost.
    """
    owner = np.repeat(np.arange(len(weighted)), np.diff(weighted.offsets))
    order = np.lexsort((-weighted.values, owner))  # by row, then by falling weight
    rank = np.arange(len(owner)) - weighted.offsets[owner]  # within its row: rows keep their lengths when sorted
    kept = np.sort(order[rank < n])
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(owner[kept], minlength=len(weighted)))))
    return SparseRows(weighted.indices[kept], weighted.values[kept], offsets)


@dataclass(frozen=True, slots=True)
class LexicalScores:
    """Lexical scores of p pairs of a mention and a name."""

    cosine: FloatArray  # (p,), in [0, 1]
    mention_coverage: FloatArray  # (p,), in [0, 1]
    name_coverage: FloatArray


def score_pairs(
    mentions: SparseRows, names: SparseRows, pairs: Sequence[tuple[int, int]] | npt.NDArray[np.int64]
) -> LexicalScores:
    """The scores of p pairs of a row of the mentions and one of the names, sorted by mention; 0 where one side has no
    features. Rows are weighted.
    """
    n_pairs = len(pairs)
    if not n_pairs or not len(mentions.indices) or not len(names.indices):
        zeros = np.zeros(n_pairs, dtype=np.float32)
        return LexicalScores(zeros, zeros, zeros)
    both = np.asarray(pairs, dtype=np.int64)
    # All features of all names in one flat array, pair after pair: `pair` is the pair of each of them, `at` its
    # position in `names`.
    lengths = np.diff(names.offsets)[both[:, 1]]
    pair = np.repeat(np.arange(n_pairs), lengths)
    position = np.arange(len(pair)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    at = np.repeat(names.offsets[both[:, 1]], lengths) + position
    # Row and feature packed into one 64-bit key: one binary search finds each feature of a name in its mention.
    owner = np.repeat(np.arange(len(mentions)), np.diff(mentions.offsets))
    known = owner << 32 | mentions.indices.astype(np.int64)  # ascending, as rows and indices are
    wanted = np.repeat(both[:, 0], lengths) << 32 | names.indices[at].astype(np.int64)
    found = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    is_shared = known[found] == wanted
    of_mention = np.where(is_shared, mentions.values[found], 0.0).astype(np.float64)
    of_name = np.where(is_shared, names.values[at], 0.0).astype(np.float64)

    def total(values: npt.NDArray[np.float64]) -> FloatArray:
        # Rounding can take a sum of squares just past 1.
        return np.minimum(np.bincount(pair, weights=values, minlength=n_pairs), 1.0).astype(np.float32)

    return LexicalScores(total(of_mention * of_name), total(of_mention**2), total(of_name**2))
