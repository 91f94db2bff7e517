"""Clusters of the forms that no collection knows, by the scores of their pairs, decisions and earlier nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.ranking.rules import EXACT_CERTAINTY
from pearl_qdrant.resolution.clusters import (
    FORBIDDEN,
    Cluster,
    FloatArray,
    Group,
    IntArray,
    Pair,
    PairTable,
    Prefer,
    cluster_names,
    unpack_pairs,
)
from pearl_qdrant.resolution.names import Forms
from pearl_qdrant.resolution.pairs.comparison import Comparison
from pearl_qdrant.resolution.pairs.features import COLUMN, contradict
from pearl_qdrant.resolution.pairs.model import PairModel
from pearl_qdrant.resolution.pairs.reasons import DEFINED, EQUAL, reason_of

KEPT = 0.1
"""Least probability of a pair that is kept; others are scored again if two clusters need them."""

TOGETHER = 0.95
"""Probability of an acronym and its long form in one source: 95 % of those that a context defines are right
(`linking.mention_detection.abbreviations`)."""

SAME_WORDS = 0.99
"""Least probability of names with the same words: 1,338 of 1,341 such pairs of the made lists are right."""

_EVEN = 0.5

_BLOCK = 32_768


@dataclass(frozen=True, slots=True)
class NearPair:
    """Two forms with a probability in the band for review, or with a doubt.

    Attributes:
        a, b: Forms.
        probability: In [0, 1].
        reason: Why they were not merged.
    """

    a: int
    b: int
    probability: float
    reason: str


class NilClusters:
    """Clusters forms.

    Args:
        forms: All of them; at least one.
        encoder: Makes their vectors.
        model: Scores pairs.
        apart: Pairs that a person decided to be different.
        threshold: Least probability of a merge.
        asked_from: Least probability of a pair that is asked.
    """

    def __init__(
        self,
        forms: Forms,
        encoder: Encoder,
        model: PairModel,
        apart: Collection[Pair],
        *,
        threshold: float,
        asked_from: float,
    ) -> None:
        self._comparison = Comparison(forms, encoder)
        self._model = model
        self._apart = {(min(pair), max(pair)) for pair in apart}
        self._threshold, self._asked_from = threshold, asked_from
        self._asked: dict[Pair, tuple[float, str]] = {}
        self._longer = np.empty(0, np.int64)
        keys, probabilities = self._known()
        self._table = PairTable(keys, probabilities, self._score)
        self._ask_of_equal_names()
        self._ask_of_parts()

    def _known(self) -> tuple[IntArray, FloatArray]:
        """Candidates with a probability of at least `KEPT`, packed, and their probabilities."""
        packed = self._comparison.candidates()
        keys, probabilities = [], []
        longer: list[IntArray] = []
        for start in range(0, len(packed), _BLOCK):
            block = unpack_pairs(packed[start : start + _BLOCK])
            scores = self._comparison.scores(block, with_words=False)
            is_worth = self._model.is_worth_comparing(scores.dense, scores.lexical)
            is_worth |= np.array([self._is_certain(a, b) for a, b in block.tolist()], bool)
            scored = np.array(self._score([(a, b) for a, b in block[is_worth].tolist()], longer), np.float64)
            is_kept = (scored >= KEPT) | (scored == FORBIDDEN)
            keys.append(packed[start : start + _BLOCK][is_worth][is_kept])
            probabilities.append(scored[is_kept])
        self._longer = np.sort(np.concatenate([self._longer, *longer]))
        return np.concatenate([packed[:0], *keys]), np.concatenate([np.empty(0), *probabilities])

    def _is_certain(self, a: int, b: int) -> bool:
        return self._comparison.is_together(a, b) or self._comparison.is_equal(a, b)

    def _score(self, pairs: Sequence[Pair], longer: list[IntArray] | None = None) -> list[float]:
        """Probabilities of pairs; to `longer` come those of a name and a longer one that has all its words."""
        comparison = self._comparison
        found = [FORBIDDEN] * len(pairs)
        open_ = []
        for i, pair in enumerate(pairs):
            if pair in self._apart or not comparison.types.agree_pair(*pair) or comparison.differ_in_signs(*pair):
                continue
            if comparison.is_together(*pair):
                found[i] = TOGETHER
            elif comparison.is_equal(*pair):
                found[i] = EXACT_CERTAINTY
            else:
                open_.append(i)
        if open_:
            rows = np.array([pairs[i] for i in open_], np.int64)
            features = comparison.features(rows)
            if longer is not None:
                longer.append(self._short_first(rows[features[:, COLUMN["only_more"]] > 0]))
            is_possible = ~contradict(features)
            probabilities = self._model.probabilities(features)
            for at in np.flatnonzero(is_possible).tolist():
                i, probability = open_[at], float(probabilities[at])
                is_same = comparison.have_same_words(*pairs[i])
                if is_same:
                    probability = max(probability, SAME_WORDS)
                if probability >= self._asked_from and (reason := comparison.doubt(*pairs[i], is_same=is_same)):
                    self._asked[pairs[i]] = (probability, reason)
                else:
                    found[i] = probability
        return found

    def _short_first(self, pairs: IntArray) -> IntArray:
        """Pairs of a name and a longer one, packed with the shorter one first."""
        n_words = [[len(self._comparison.form(one).strings.content) for one in pair] for pair in pairs.tolist()]
        is_turned = np.array([a > b for a, b in n_words], bool)
        short, long = np.where(is_turned, pairs[:, 1], pairs[:, 0]), np.where(is_turned, pairs[:, 0], pairs[:, 1])
        packed: IntArray = short << 32 | long
        return packed

    def _ask(self, a: int, b: int, reason: str) -> None:
        self._asked[(min(a, b), max(a, b))] = (max(self._table.get(a, b) or 0.0, self._asked_from), reason)
        self._table.forbid(a, b)

    def _ask_of_equal_names(self) -> None:
        """Equal names whose types differ are asked, and those without a type that equal two such names."""
        agree = self._comparison.types.agree_pair
        for group in self._comparison.namesakes():
            pairs = [(a, b) for a in group for b in group if a < b]
            differing = [pair for pair in pairs if not agree(*pair)]
            for a, b in pairs if differing else ():
                if (a, b) not in self._apart:
                    self._ask(a, b, "equal names of different types")

    def _ask_of_parts(self) -> None:
        """A name that is part of two names of different things is asked: `Jeff`, beside two of them."""
        for a, b, probability in list(self._table.items(self._asked_from)):
            if probability == TOGETHER:
                continue
            for short, long in ((a, b), (b, a)):
                lower, upper = np.searchsorted(self._longer, (short << 32, (short + 1) << 32))
                longer = [int(key & 0xFFFFFFFF) for key in self._longer[lower:upper]]
                if long in longer and any(self._is_rival(long, other) for other in longer if other != long):
                    self._ask(a, b, "part of several names")

    def _is_rival(self, one: int, other: int) -> bool:
        """Whether two names that have all words of a shorter one are those of different things."""
        ours, theirs = (self._comparison.form(form).strings.content_set for form in (one, other))
        if ours <= theirs or theirs <= ours:
            return False
        return self._table.probability(one, other) < _EVEN

    def cluster(self, *, groups: Sequence[Group], prefer: Prefer) -> list[Cluster]:
        """The clusters; see `cluster_names`."""
        for pair in self._apart:
            self._table.forbid(*pair)
        return cluster_names(self._table, self._threshold, prefer=prefer, groups=groups)

    def reasons(self, pairs: Sequence[Pair]) -> Iterator[str]:
        """Why the forms of each pair are one entity."""
        for start in range(0, len(pairs), _BLOCK):
            block = pairs[start : start + _BLOCK]
            features = self._comparison.features(np.array([(min(pair), max(pair)) for pair in block], np.int64))
            for (a, b), row in zip(block, features.tolist(), strict=True):
                if self._comparison.is_together(a, b):
                    yield DEFINED
                else:
                    yield EQUAL if self._comparison.is_equal(a, b) else reason_of(row)

    def near_pairs(self) -> list[NearPair]:
        """All scored pairs that are probable enough to be asked, and those with a doubt."""
        found = [NearPair(a, b, p, "less probable") for a, b, p in self._table.items(self._asked_from)]
        return found + [NearPair(a, b, p, reason) for (a, b), (p, reason) in self._asked.items()]
