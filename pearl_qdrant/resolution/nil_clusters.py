"""Clusters of the forms that no collection knows, by the scores of their pairs, decisions and earlier nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.resolution.clusters import (
    FORBIDDEN,
    Cluster,
    FloatArray,
    Group,
    IntArray,
    Pair,
    PairTable,
    cluster_names,
    unpack_pairs,
)
from pearl_qdrant.resolution.names import Forms
from pearl_qdrant.resolution.pairs.comparison import Comparison
from pearl_qdrant.resolution.pairs.model import PairModel
from pearl_qdrant.resolution.pairs.reasons import DEFINED, reason_of

KEPT = 0.1
"""Least probability of a pair that is kept; others are scored again if two clusters need them."""

TOGETHER = 0.95
"""Probability of an acronym and its long form in one source: 95 % of those that a context defines are right
(`linking.mention_detection.abbreviations`)."""

_BLOCK = 32_768


@dataclass(frozen=True, slots=True)
class NearPair:
    """Two forms with a probability in the band for review.

    Attributes:
        a, b: Forms.
        probability: In [0, 1].
    """

    a: int
    b: int
    probability: float


class NilClusters:
    """Clusters forms.

    Args:
        forms: All of them; at least one.
        encoder: Makes their vectors.
        model: Scores pairs.
        apart: Pairs that a person decided to be different.
    """

    def __init__(self, forms: Forms, encoder: Encoder, model: PairModel, apart: Collection[Pair]) -> None:
        self._comparison = Comparison(forms, encoder)
        self._model = model
        self._apart = {(min(pair), max(pair)) for pair in apart}
        self._table = PairTable(*self._known(), self._score)

    def _known(self) -> tuple[IntArray, FloatArray]:
        """Candidates with a probability of at least `KEPT`, packed, and their probabilities."""
        packed = self._comparison.candidates()
        keys, probabilities = [], []
        for start in range(0, len(packed), _BLOCK):
            block = unpack_pairs(packed[start : start + _BLOCK])
            scores = self._comparison.scores(block, with_words=False)
            is_worth = self._model.is_worth_comparing(scores.dense, scores.lexical)
            is_worth |= np.array([self._comparison.is_together(a, b) for a, b in block.tolist()], bool)
            scored = np.array(self._score([(a, b) for a, b in block[is_worth].tolist()]), np.float64)
            is_kept = (scored >= KEPT) | (scored == FORBIDDEN)
            keys.append(packed[start : start + _BLOCK][is_worth][is_kept])
            probabilities.append(scored[is_kept])
        return np.concatenate([packed[:0], *keys]), np.concatenate([np.empty(0), *probabilities])

    def _score(self, pairs: Sequence[Pair]) -> list[float]:
        if not pairs:
            return []
        comparison = self._comparison
        found = [FORBIDDEN] * len(pairs)
        open_ = []
        for i, pair in enumerate(pairs):
            if pair in self._apart:
                continue
            if comparison.is_together(*pair):
                found[i] = TOGETHER
            elif not comparison.is_forbidden(*pair):
                open_.append(i)
        if open_:
            features = comparison.features(np.array([pairs[i] for i in open_], np.int64))
            for i, probability in zip(open_, self._model.probabilities(features).tolist(), strict=True):
                found[i] = probability
        return found

    def cluster(self, threshold: float, *, groups: Sequence[Group], weights: Mapping[int, float]) -> list[Cluster]:
        """The clusters; see `cluster_names`."""
        for pair in self._apart:
            self._table.forbid(*pair)
        least = min(self._model.least_agreement, threshold)
        return cluster_names(self._table, threshold, least_agreement=least, weights=weights, groups=groups)

    def reasons(self, pairs: Sequence[Pair]) -> Iterator[str]:
        """Why the forms of each pair are one entity."""
        for start in range(0, len(pairs), _BLOCK):
            block = pairs[start : start + _BLOCK]
            features = self._comparison.features(np.array([(min(pair), max(pair)) for pair in block], np.int64))
            for (a, b), row in zip(block, features.tolist(), strict=True):
                yield DEFINED if self._comparison.is_together(a, b) else reason_of(row)

    def near_pairs(self, lowest: float) -> list[NearPair]:
        """All scored pairs of at least a probability."""
        return [NearPair(a, b, p) for a, b, p in self._table.items(lowest)]
