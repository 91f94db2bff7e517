"""How rare each n-gram is in a base, and the lexical score that follows from it.

    weight of a feature = its value in the name (`encoder.ngrams`) * idf(feature)
    lexical_score = cosine of the weighted vectors of mention and name, in [0, 1]
    mention_coverage = share of the mention's squared weight that lies on features of the name; name_coverage likewise

Qdrant's own sparse score only finds: it grows without bound and changes with the base. The table of idf is made from a
sample of the base when it has been loaded, and lies with the manifest: 2^18 hashed buckets of one byte each.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from pearl_qdrant.lexical.ngrams import SparseRows, ngram_rows

BUCKETS = 1 << 18
"""Features that share a bucket share a rarity. A base of 571,000 names has 300,000 features, most of them words that
occur once and are as rare as each other."""

SAMPLE_NAMES = 100_000
"""Names that the table is made from. Point ids are hashes, the first ones are a random sample."""

_STEPS = 16  # of idf to 1: a byte holds up to 15.9, natural logarithm of 8 million

_CHUNK = 10_000

FloatArray = npt.NDArray[np.float32]


class IdfTable:
    """Inverse document frequency of hashed features.

    Args:
        table: (BUCKETS,), idf in steps of 1/16.
    """

    def __init__(self, table: npt.NDArray[np.uint8]) -> None:
        if table.shape != (BUCKETS,) or table.dtype != np.uint8:
            raise ValueError(f"a table of rarities has {BUCKETS} bytes, this one is {table.dtype} of {table.shape}")
        self._table = table
        self._idf = table.astype(np.float32) / _STEPS

    @classmethod
    def from_names(cls, names: Iterable[str]) -> IdfTable:
        """Count features in at most `SAMPLE_NAMES` names; of no names at all, every feature is equally rare."""
        counts = np.zeros(BUCKETS, dtype=np.int64)
        n_names = 0
        names = iter(islice(names, SAMPLE_NAMES))
        while chunk := list(islice(names, _CHUNK)):
            counts += np.bincount(ngram_rows(chunk).indices % BUCKETS, minlength=BUCKETS)
            n_names += len(chunk)
        # As Qdrant has it: log((n - df + 0.5) / (df + 0.5) + 1).
        idf = np.log((n_names - np.minimum(counts, n_names) + 0.5) / (counts + 0.5) + 1)
        return cls(np.clip(np.rint(idf * _STEPS), 1, 255).astype(np.uint8))

    def to_text(self) -> str:
        """As ASCII text, about 60 KB."""
        return base64.b64encode(zlib.compress(self._table.tobytes(), 9)).decode()

    @classmethod
    def from_text(cls, text: str) -> IdfTable:
        """The reverse of `to_text`.

        Raises:
            ValueError: If it is no such text.
        """
        try:
            unpacker = zlib.decompressobj()
            table = unpacker.decompress(base64.b64decode(text, validate=True), BUCKETS + 1)
        except zlib.error as error:
            raise ValueError(f"no table of rarities: {error}") from error
        return cls(np.frombuffer(table, dtype=np.uint8))

    def weigh(self, rows: SparseRows) -> SparseRows:
        """Rows with each feature weighed by its rarity, of unit length again."""
        values = rows.values * self._idf[rows.indices % BUCKETS]
        owner = np.repeat(np.arange(len(rows)), np.diff(rows.offsets))
        norms = np.sqrt(np.bincount(owner, weights=values.astype(np.float64) ** 2, minlength=len(rows)))
        return SparseRows(rows.indices, (values / norms[owner]).astype(np.float32), rows.offsets)


def top_weighted_features(weighed: SparseRows, n: int) -> SparseRows:
    """The `n` features of each row with the largest weight: what a search needs, at half its price.

    Args:
        weighed: From `IdfTable.weigh`.
        n: Features a row at most.
    """
    owner = np.repeat(np.arange(len(weighed)), np.diff(weighed.offsets))
    order = np.lexsort((-weighed.values, owner))
    place = np.arange(len(owner)) - weighed.offsets[owner]
    kept = np.sort(order[place < n])
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(owner[kept], minlength=len(weighed)))))
    return SparseRows(weighed.indices[kept], weighed.values[kept], offsets)


@dataclass(frozen=True, slots=True)
class LexicalScores:
    """What pairs of a mention and a name share.

    Attributes:
        cosine: (p,), in [0, 1].
        mention_coverage, name_coverage: (p,), in [0, 1]; what counts is a feature's rarity, not how often it occurs.
    """

    cosine: FloatArray
    mention_coverage: FloatArray
    name_coverage: FloatArray


def compare(mentions: SparseRows, names: SparseRows, pairs: Sequence[tuple[int, int]]) -> LexicalScores:
    """Score pairs of rows.

    Args:
        mentions: Weighed rows of the mentions.
        names: Weighed rows of the names.
        pairs: p pairs of a row in `mentions` and one in `names`, ordered by mention.

    Returns:
        p scores; 0 where a side has no feature.
    """
    n_pairs = len(pairs)
    if not n_pairs or not len(mentions.indices) or not len(names.indices):
        zeros = np.zeros(n_pairs, dtype=np.float32)
        return LexicalScores(zeros, zeros, zeros)
    both = np.array(pairs, dtype=np.int64)
    lengths = np.diff(names.offsets)[both[:, 1]]
    pair = np.repeat(np.arange(n_pairs), lengths)
    place = np.arange(len(pair)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    at = np.repeat(names.offsets[both[:, 1]], lengths) + place
    owner = np.repeat(np.arange(len(mentions)), np.diff(mentions.offsets))
    known = owner << 32 | mentions.indices.astype(np.int64)  # ascending
    wanted = np.repeat(both[:, 0], lengths) << 32 | names.indices[at].astype(np.int64)
    found = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    shared = known[found] == wanted
    ours = np.where(shared, mentions.values[found], 0.0).astype(np.float64)
    theirs = np.where(shared, names.values[at], 0.0).astype(np.float64)

    def total(values: npt.NDArray[np.float64]) -> FloatArray:
        # Rounding can take a sum of squares just past 1.
        return np.minimum(np.bincount(pair, weights=values, minlength=n_pairs), 1.0).astype(np.float32)

    return LexicalScores(total(ours * theirs), total(ours**2), total(theirs**2))


def log_size(n_names: int) -> float:
    """Size of a base as the ranking sees it: natural logarithm of its names."""
    return math.log(max(1, n_names))
