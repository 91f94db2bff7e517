"""Measures how reliable probabilities are, on mentions that were scored as if some entities were not in the base.

`Samples` keeps features and logits, so that many coefficients and calibrations can be tried on mentions that were
scored once. They give `Answers`: the answer for a mention is the most probable among its candidates and NIL. It is
right if it is the right entity, or NIL if the base does not have the entity. A link is an answer that the linker gives:
its first candidate, if that is not tied and reaches the threshold. All figures weight the mentions, so that the share
of NIL mentions can differ from the share among the labelled ones. What a calibration changes is reported by kind of
mention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.ranking.model import (
    FEATURES,
    NIL_FEATURES,
    Calibration,
    FloatArray,
    RankingModel,
    ScoredMention,
)
from pearl_qdrant.linking.ranking.scoring import EXACT_CERTAINTY, best_first
from pearl_qdrant.linking.state import Overrides
from pearl_qdrant.settings import DEFAULT_LIMIT
from pearl_qdrant.store.protocol import Collection, Store
from pearl_qdrant.store.schema import NamePoint

BoolArray = npt.NDArray[np.bool_]
N_BINS, N_RESAMPLES = 15, 500


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of a linker for n mentions."""

    probability: FloatArray  # probability of the answer, (n,), in [0, 1]
    correct: FloatArray  # whether the answer is right, (n,); among k tied candidates with a right one, 1 / k
    first_probability: FloatArray  # probability of the first candidate, (n,), also if the answer is NIL
    first_correct: FloatArray  # whether the first candidate is right, (n,); 0 for a NIL mention
    # probability of the first candidate, (n,); 0 if it is tied or missing, and so never linked.
    link_probability: FloatArray
    is_nil: BoolArray  # whether the base has no entity for the mention, (n,)
    weights: FloatArray  # weight of each mention, (n,), at least 0

    def __len__(self) -> int:
        return len(self.probability)

    def of_first(self) -> Answers:
        """The same mentions, each answered with its first candidate."""
        return replace(self, probability=self.first_probability, correct=self.first_correct)

    @classmethod
    def joined(cls, parts: Sequence[Answers]) -> Answers:
        """Several sets of answers, concatenated."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def take(self, rows: npt.NDArray[np.int64]) -> Answers:
        """The answers in these rows; a row may repeat."""
        return Answers(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Reliability:
    """Figures of a set of answers, all of them shares.

    Attributes:
        first_accuracy: Share of mentions with an entity whose first candidate is right; NaN if there are none.
        ece: Expected calibration error of the answers, with 15 bins of equal mass.
        ece_interval: Its 95 % bootstrap interval.
        brier: Mean squared error of the answers' probabilities.
        auroc: Area under the ROC curve of the answers' probabilities; NaN if all or no answers are right.
        first_ece, first_auroc: The same for the first candidates, over all mentions including NIL ones.
        threshold: The threshold of the next three figures.
        coverage: Share of mentions that are linked.
        precision: Share of links that are right; NaN without links.
        nil_f1: F1 of predicting NIL; NaN if no mention is NIL and none is predicted to be.
    """

    n: int
    first_accuracy: float
    ece: float
    ece_interval: tuple[float, float]
    brier: float
    auroc: float
    first_ece: float
    first_auroc: float
    threshold: float
    coverage: float
    precision: float
    nil_f1: float


def measure(answers: Answers, threshold: float, *, rng: np.random.Generator) -> Reliability:
    """All figures, of at least one answer with a positive weight."""
    coverage, precision = coverage_and_precision(answers, threshold)
    known = float(answers.weights @ ~answers.is_nil)
    return Reliability(
        n=len(answers),
        first_accuracy=float(answers.weights @ answers.first_correct) / known if known else float("nan"),
        ece=calibration_error(answers),
        ece_interval=bootstrap_interval(answers, rng),
        brier=brier_score(answers),
        auroc=auroc(answers),
        first_ece=calibration_error(answers.of_first()),
        first_auroc=auroc(answers.of_first()),
        threshold=threshold,
        coverage=coverage,
        precision=precision,
        nil_f1=nil_f1(answers, threshold),
    )


def calibration_error(answers: Answers, *, n_bins: int = N_BINS) -> float:
    """Expected calibration error: mean of |probability - share right| over bins of equal mass, in [0, 1].

    Source:
        Naeini et al. 2015, with bins of equal mass (Nguyen and O'Connor 2015).
    """
    return _error(bins(answers, n_bins=n_bins))


def _error(of_bins: tuple[FloatArray, FloatArray, FloatArray]) -> float:
    mass, probability, correct = of_bins
    return float(mass @ np.abs(probability - correct))


def bins(answers: Answers, *, n_bins: int = N_BINS) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Bins of equal mass, sorted by probability: share of mentions, mean probability and share right of each,
    (n_bins,).
    """
    # Equal probabilities are merged first, so that the order of the answers does not matter.
    values, row = np.unique(answers.probability, return_inverse=True)
    weight = np.bincount(row, answers.weights)
    right = np.bincount(row, answers.weights * answers.correct)
    return _bins_of(values, weight, right, n_bins)


def _bins_of(
    values: FloatArray, weight: npt.NDArray[Any], right: npt.NDArray[Any], n_bins: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The bins of ascending probabilities, the weight of the answers with each, and that of the right ones."""
    kept = weight > 0
    values, weight, right = values[kept], weight[kept], right[kept]
    ends = np.concatenate(([0.0], np.cumsum(weight)))
    borders = np.linspace(0.0, ends[-1], n_bins + 1)

    def in_bins(amounts: npt.NDArray[Any]) -> FloatArray:
        """The sum of each bin; a value at a border is divided."""
        sums: FloatArray = np.diff(np.interp(borders, ends, np.concatenate(([0.0], np.cumsum(amounts)))))
        return sums

    mass = in_bins(weight)
    return mass / ends[-1], in_bins(weight * values) / mass, in_bins(right) / mass


def brier_score(answers: Answers) -> float:
    """Mean squared difference of probability and outcome, in [0, 1]."""
    return float(np.average((answers.probability - answers.correct) ** 2, weights=answers.weights))


def auroc(answers: Answers) -> float:
    """Share of pairs in which the right answer has a higher probability than the wrong one. Equal probabilities count
    half; NaN if there is no pair.
    """
    values, row = np.unique(answers.probability, return_inverse=True)
    right = np.bincount(row, answers.weights * answers.correct, minlength=len(values))
    wrong = np.bincount(row, answers.weights * (1 - answers.correct), minlength=len(values))
    pairs = right.sum() * wrong.sum()
    below = np.cumsum(wrong) - wrong
    return float(right @ (below + wrong / 2) / pairs) if pairs > 0 else float("nan")


def coverage_and_precision(answers: Answers, threshold: float) -> tuple[float, float]:
    """Share of mentions that are linked, and share of links that are right (NaN without links)."""
    linked = is_linked(answers, threshold) * answers.weights
    total = float(linked.sum())
    precision = float(linked @ answers.first_correct) / total if total > 0 else float("nan")
    return total / float(answers.weights.sum()), precision


def nil_f1(answers: Answers, threshold: float) -> float:
    """F1 of predicting NIL; NaN if no mention is NIL and none is predicted to be."""
    is_predicted = ~is_linked(answers, threshold)
    both = float(answers.weights @ (is_predicted & answers.is_nil))
    total = float(answers.weights @ is_predicted) + float(answers.weights @ answers.is_nil)
    return 2 * both / total if total > 0 else float("nan")


def is_linked(answers: Answers, threshold: float) -> BoolArray:
    """Whether each mention is linked at this threshold, (n,)."""
    linked: BoolArray = (answers.link_probability >= threshold) & (answers.link_probability > 0)
    return linked


def threshold_for_precision(answers: Answers, precision: float, *, highest: float = 1.0) -> float | None:
    """The threshold with the most right minus wrong links, among those at which this share of links is right.

    One extra link counts as wrong, so that a few right links are not enough: 19 of 19 right ones count as 95 %. None if
    no threshold up to `highest` reaches the precision.

    Source:
        The correction of conformal risk control, Angelopoulos et al. 2024, Eq. 4.
    """
    linkable = np.flatnonzero((answers.link_probability > 0) & (answers.weights > 0))
    if not len(linkable):
        return None
    order = linkable[np.argsort(-answers.link_probability[linkable], kind="stable")]
    probability, weights = answers.link_probability[order], answers.weights[order]
    right, linked = np.cumsum(weights * answers.first_correct[order]), np.cumsum(weights)
    below = np.append(probability[1:], 0.0)
    # A threshold cannot separate links with equal probabilities, or links that are all above the highest threshold.
    good = (right / (linked + weights.mean()) >= precision) & (below < probability) & (below < highest)
    if not good.any():
        return None
    gain = np.where(good, 2 * right - linked, -np.inf)
    best = np.flatnonzero(gain >= gain.max() - 1e-9)[-1]
    # Halfway to the next lower probability, so that rounding of a probability does not matter.
    return float(min(highest, (probability[best] + below[best]) / 2))


def best_precision(answers: Answers, *, highest: float = 1.0) -> float:
    """The highest precision that a threshold reaches, counted as in `threshold_for_precision`; 0 without links."""
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        is_reached = threshold_for_precision(answers, middle, highest=highest) is not None
        low, high = (middle, high) if is_reached else (low, middle)
    return low


def bootstrap_interval(answers: Answers, rng: np.random.Generator) -> tuple[float, float]:
    """The 95 % bootstrap interval of the calibration error, corrected for its bias. A resample has a larger calibration
    error than the mentions it was drawn from, because its noise adds to the gaps. So the percentiles are shifted by the
    difference between the figure and the mean of the resamples.
    """
    values, row = np.unique(answers.probability, return_inverse=True)
    n, right_weights = len(answers), answers.weights * answers.correct
    figures = []
    for _ in range(N_RESAMPLES):
        drawn = rng.integers(n, size=n)
        weight = np.bincount(row[drawn], answers.weights[drawn], minlength=len(values))
        right = np.bincount(row[drawn], right_weights[drawn], minlength=len(values))
        figures.append(_error(_bins_of(values, weight, right, N_BINS)))
    low, high = np.nanpercentile(figures, (2.5, 97.5)) - np.nanmean(figures) + calibration_error(answers)
    return max(0.0, float(low)), float(high)


EXACT_KIND = "exact"  # kind of the mentions that are a name of one entity; a calibration must not lose any of them


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of some mentions, as shares of their weight: linked rightly, linked wrongly, or NIL."""

    right: float
    wrong: float
    nil: float


@dataclass(frozen=True, slots=True)
class KindChange:
    """What becomes of n mentions of a kind (`linking.mention_kinds.KINDS`, or "labelled"), with their weight."""

    kind: str
    n: int
    weight: float
    before: Outcome
    after: Outcome


def changes_by_kind(
    kinds: Sequence[str], before: Answers, after: Answers, *, threshold_before: float, threshold_after: float
) -> tuple[KindChange, ...]:
    """The changes for each kind, in the order of their first mentions, by the answers for the same n mentions."""
    changes = []
    for kind in dict.fromkeys(kinds):
        rows = np.array([i for i, one in enumerate(kinds) if one == kind], dtype=np.int64)
        outcomes = _outcome(before.take(rows), threshold_before), _outcome(after.take(rows), threshold_after)
        changes.append(KindChange(kind, len(rows), float(before.weights[rows].sum()), *outcomes))
    return tuple(changes)


def gain_of_links(
    before: Answers, after: Answers, threshold_before: float, threshold_after: float
) -> tuple[float, float]:
    """What right minus wrong links gain, as a share of the same n mentions by weight, and its standard error."""

    def values(answers: Answers, threshold: float) -> FloatArray:
        return is_linked(answers, threshold) * (2 * answers.first_correct - 1)

    shares = before.weights / (before.weights.sum() or 1.0)
    gains = values(after, threshold_after) - values(before, threshold_before)
    mean = float(shares @ gains)
    return mean, float(np.sqrt((shares**2) @ (gains - mean) ** 2))


def loses_exact_names(changes: Sequence[KindChange]) -> bool:
    """Whether fewer names of one entity are linked than before."""
    return any(change.kind == EXACT_KIND and change.after.right < change.before.right - 1e-9 for change in changes)


def _outcome(answers: Answers, threshold: float) -> Outcome:
    linked = is_linked(answers, threshold)
    shares = answers.weights / (answers.weights.sum() or 1.0)
    right, wrong = linked * answers.first_correct, linked * (1 - answers.first_correct)
    return Outcome(float(shares @ right), float(shares @ wrong), float(shares @ ~linked))


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
    """Yield scored mentions, in order; see `EntityLinker.score_batch`. The store stays open. `model` has coefficients
    of the ranking; by default those of the collection, or of the package, count.
    """
    held_out = list(mentions)

    def exclude(number: int, point: NamePoint) -> bool:
        excludes = held_out[number].excludes
        return excludes is not None and excludes(point)

    linker = EntityLinker(store, [collection], encoder, Overrides(model=model))
    return linker.score_batch([one.mention for one in held_out], limit=limit, exclude=exclude)


IntArray = npt.NDArray[np.int64]

MAX_CANDIDATES = 256
"""Candidates kept per mention. Only mentions whose candidates all share one name have more, and those are tied."""


@dataclass(frozen=True, slots=True)
class Samples:
    """n scored mentions with at most k candidates each."""

    logits: FloatArray  # logits of the candidates, best first, (n, k); minus infinity where a mention has fewer
    nil_logits: FloatArray  # logits of NIL, (n,)
    is_right: BoolArray  # whether a candidate is the right entity, (n, k)
    n_tied: IntArray  # number of tied first candidates, (n,); 1 for a single best one, 0 without candidates
    is_nil: BoolArray  # whether the base has no entity for the mention, (n,)
    weights: FloatArray  # weight of each mention, (n,)
    features: npt.NDArray[np.float32]  # features of the candidates, (n, k, len(FEATURES)); 0 where a mention has fewer
    nil_features: FloatArray  # features of NIL, (n, len(NIL_FEATURES))
    offsets: FloatArray  # what rules add to the logits, (n, k); included in `logits`
    certainty: FloatArray  # precision of the rule of each mention, (n,); 1 without a rule

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
        """A copy with weights such that NIL mentions have this share, in [0, 1); there are some unless it is 0."""
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
    """Samples of scored mentions, at least one, and their right entity ids; an empty set means NIL."""
    rows = []
    for one, ids in zip(scored, gold, strict=True):
        found = one.found[:MAX_CANDIDATES]
        n_tied = min(len(found), max(1, sum(entity.tie for entity in found)))
        # Without the points, which take most memory.
        values = [(entity.logit, entity.offset, entity.point.entity_id in ids, entity.features) for entity in found]
        rows.append((values, n_tied, one.nil_logit, one.nil_features, one.certainty))
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
