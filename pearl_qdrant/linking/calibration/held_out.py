"""Mentions scored as if some names or entities were not in the base, and all of them as arrays: the input of fits and
measurements.

`Samples` keeps features and logits, so that many coefficients and calibrations can be tried on mentions that were
scored once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.calibration.metrics import Answers, BoolArray, FloatArray
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.ranking.features import FEATURES, NIL_FEATURES
from pearl_qdrant.linking.ranking.model import Calibration, RankingModel
from pearl_qdrant.linking.ranking.rules import EXACT_CERTAINTY
from pearl_qdrant.linking.ranking.scored import ScoredMention
from pearl_qdrant.linking.ranking.scoring import best_first
from pearl_qdrant.settings import DEFAULT_LIMIT
from pearl_qdrant.store.protocol import Collection, Store
from pearl_qdrant.store.schema import NamePoint


class HeldOut(NamedTuple):
    """A mention, and whether a point is one that it must not find; None excludes nothing."""

    mention: str
    excludes: Callable[[NamePoint], bool] | None = None


def score_held_out(
    store: Store,
    collection: Collection,
    encoder: Encoder,
    mentions: Iterable[HeldOut],
    *,
    limit: int = DEFAULT_LIMIT,
    model: RankingModel | None = None,
) -> Iterator[ScoredMention]:
    """Yield scored mentions, in order; see `EntityLinker.score_batch`. The store stays open.

    `model` has coefficients of the ranking; by default those of the collection, or of the package, count.
    """
    held_out = list(mentions)

    def exclude(number: int, point: NamePoint) -> bool:
        excludes = held_out[number].excludes
        return excludes is not None and excludes(point)

    linker = EntityLinker(store, [collection], encoder, model=model)
    return linker.score_batch([one.mention for one in held_out], limit=limit, exclude=exclude)


IntArray = npt.NDArray[np.int64]

MAX_CANDIDATES = 256
"""Candidates kept per mention. Only mentions whose candidates all share one name have more, and those are tied."""


@dataclass(frozen=True, slots=True)
class Samples:
    """n scored mentions with at most k candidates each.

    Attributes:
        logits: Logits of the candidates, best first, (n, k); minus infinity where a mention has fewer.
        nil_logits: Logits of NIL, (n,).
        is_right: Whether a candidate is the right entity, (n, k).
        n_tied: Number of tied first candidates, (n,); 1 for a single best one, 0 without candidates.
        is_nil, weights: Whether the base has no entity for the mention, and its weight, (n,).
        features: Features of the candidates, (n, k, len(FEATURES)); 0 where a mention has fewer.
        nil_features: Features of NIL, (n, len(NIL_FEATURES)).
        offsets: What rules add to the logits, (n, k); included in `logits`.
        certainty: Precision of the rule of each mention, (n,); 1 without a rule.
    """

    logits: FloatArray
    nil_logits: FloatArray
    is_right: BoolArray
    n_tied: IntArray
    is_nil: BoolArray
    weights: FloatArray
    features: npt.NDArray[np.float32]
    nil_features: FloatArray
    offsets: FloatArray
    certainty: FloatArray

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def is_found(self) -> BoolArray:
        """Whether the right entity is among the candidates, (n,)."""
        found: BoolArray = np.any(self.is_right, axis=1, keepdims=True)[:, 0]
        return found

    @property
    def first_is_right(self) -> FloatArray:
        """Probability that the first candidate is right, if one of the tied ones is taken at random; (n,)."""
        tied = np.arange(self.is_right.shape[1]) < self.n_tied[:, None]
        chance: FloatArray = (self.is_right & tied).sum(axis=1) / np.maximum(self.n_tied, 1)
        return chance

    @property
    def nil_share(self) -> float:
        """Share of NIL mentions, by weight."""
        return float(self.weights @ self.is_nil / self.weights.sum())

    def take(self, rows: IntArray) -> Samples:
        """The mentions in these rows."""
        return Samples(*(getattr(self, field.name)[rows] for field in fields(self)))

    def undecided(self) -> Samples:
        """The mentions that no rule decides: those that coefficients, slope and bias matter for."""
        return self.take(np.flatnonzero(self.certainty == 1))

    @classmethod
    def joined(cls, parts: Sequence[Samples]) -> Samples:
        """Several samples, concatenated; at least one."""
        width = max(part.logits.shape[1] for part in parts)
        wide = []
        for part in parts:
            more = ((0, 0), (0, width - part.logits.shape[1]))
            wide.append(
                replace(
                    part,
                    logits=np.pad(part.logits, more, constant_values=-np.inf),
                    features=np.pad(part.features, (*more, (0, 0))),
                    offsets=np.pad(part.offsets, more),
                    is_right=np.pad(part.is_right, more, constant_values=False),
                )
            )
        return cls(*(np.concatenate([getattr(part, field.name) for part in wide]) for field in fields(cls)))

    def with_nil_share(self, share: float) -> Samples:
        """A copy with weights such that NIL mentions have this share. Raises ValueError if that is not possible."""
        if not 0 <= share < 1:
            raise ValueError(f"the share of NIL mentions must be in [0, 1), not {share}")
        n_nil = int(self.is_nil.sum())
        if n_nil == len(self) or (share and not n_nil):
            kind = "NIL mention" if not n_nil else "mention with an entity"
            raise ValueError(f"there is no {kind}, so a share of {share} is impossible")
        weights = self.weights / self.weights.mean()
        of_nil = share * len(self) / max(1e-9, float(weights @ self.is_nil))
        of_others = (1 - share) * len(self) / float(weights @ ~self.is_nil)
        return replace(self, weights=weights * np.where(self.is_nil, of_nil, of_others))

    def scored_by(self, model: RankingModel) -> Samples:
        """The same candidates scored by other coefficients, in their new order."""
        ranked = np.where(np.isfinite(self.logits), self.features @ model.features, -np.inf)
        logits = ranked + self.offsets
        order, n_tied = best_first(logits)
        return replace(
            self,
            logits=np.take_along_axis(logits, order, axis=1),
            nil_logits=model.nil_logits(ranked, self.features, self.nil_features),
            features=np.take_along_axis(self.features, order[:, :, None], axis=1),
            offsets=np.take_along_axis(self.offsets, order, axis=1),
            is_right=np.take_along_axis(self.is_right, order, axis=1),
            n_tied=n_tied,
        )

    def answers(self, calibration: Calibration) -> Answers:
        """The answers under this calibration."""
        candidates, nil = self.probabilities(calibration)
        first = candidates[:, 0]
        right = self.first_is_right
        answers_nil = nil > first
        linkable = self.n_tied == 1
        return Answers(
            probability=np.where(answers_nil, nil, first),
            correct=np.where(answers_nil, self.is_nil, right).astype(np.float64),
            first_probability=first,
            first_correct=right,
            link_probability=np.where(linkable, first, 0.0),
            is_nil=self.is_nil,
            weights=self.weights,
        )

    def probabilities(self, calibration: Calibration) -> tuple[FloatArray, FloatArray]:
        """Probabilities of the candidates, (n, k), and of NIL, (n,): a softmax with the highest logit subtracted."""
        scaled = calibration.slope * self.logits
        nil = calibration.slope * self.nil_logits + calibration.nil_bias
        highest = np.maximum(scaled.max(axis=1), nil)
        weights, nil_weight = np.exp(scaled - highest[:, None]), np.exp(nil - highest)
        total = weights.sum(axis=1) + nil_weight
        most = np.where(self.certainty < 1, 1.0, EXACT_CERTAINTY)  # no other name is more certain than an exact one
        candidates = np.minimum(self.certainty[:, None] * weights / total[:, None], most[:, None])
        return candidates, np.where(self.certainty < 1, 1 - candidates.sum(axis=1), nil_weight / total)


def collect(scored: Iterable[ScoredMention], gold: Sequence[frozenset[str]]) -> Samples:
    """Samples of scored mentions and their right entity ids; an empty set means NIL. Raises ValueError if there are no
    mentions, or the two lengths differ.
    """
    rows = []
    for one, ids in zip(scored, gold, strict=True):
        found = one.found[:MAX_CANDIDATES]
        n_tied = min(len(found), max(1, sum(entity.tie for entity in found)))
        # Without the points, which take most memory.
        values = [(entity.logit, entity.offset, entity.point.entity_id in ids, entity.features) for entity in found]
        rows.append((values, n_tied, one.nil_logit, one.nil_features, one.certainty))
    if not rows:
        raise ValueError("no mentions to calibrate on")
    n, width = len(rows), max(1, *(len(values) for values, *_ in rows))
    logits, offsets = np.full((n, width), -np.inf), np.zeros((n, width))
    features, is_right = np.zeros((n, width, len(FEATURES)), dtype=np.float32), np.zeros((n, width), dtype=np.bool_)
    for i, (values, *_) in enumerate(rows):
        for k, row in enumerate(values):
            logits[i, k], offsets[i, k], is_right[i, k], features[i, k] = row
    return Samples(
        logits=logits,
        nil_logits=np.array([row[2] for row in rows]),
        is_right=is_right,
        n_tied=np.array([row[1] for row in rows]),
        is_nil=np.array([not ids for ids in gold]),
        weights=np.ones(n),
        features=features,
        nil_features=np.array([row[3] for row in rows]).reshape(-1, len(NIL_FEATURES)),
        offsets=offsets,
        certainty=np.array([row[4] for row in rows]),
    )
