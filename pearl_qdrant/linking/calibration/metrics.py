"""Measures how reliable probabilities are: calibration error, Brier score, AUROC, coverage and precision.

The answer for a mention is the most probable among its candidates and NIL. It is right if it is the right entity, or
NIL if the base does not have the entity. A link is an answer that the linker gives: its first candidate, if that is not
tied and reaches the threshold. All figures weight the mentions, so that the share of NIL mentions can differ from the
share among the labelled ones. What a calibration changes is reported by kind of mention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

N_BINS, N_RESAMPLES = 15, 500


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of a linker for n mentions.

    Attributes:
        probability: Probability of the answer, (n,), in [0, 1].
        correct: Whether the answer is right, (n,); among k tied candidates with a right one, 1 / k.
        first_probability: Probability of the first candidate, (n,), also if the answer is NIL.
        first_correct: Whether the first candidate is right, (n,); 0 for a NIL mention.
        link_probability: Probability of the first candidate, (n,); 0 if it is tied or missing, and so never linked.
        is_nil: Whether the base has no entity for the mention, (n,).
        weights: Weight of each mention, (n,), at least 0.
    """

    probability: FloatArray
    correct: FloatArray
    first_probability: FloatArray
    first_correct: FloatArray
    link_probability: FloatArray
    is_nil: BoolArray
    weights: FloatArray

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


def measure(
    answers: Answers, threshold: float, *, rng: np.random.Generator, n_resamples: int = N_RESAMPLES
) -> Reliability:
    """All figures. Raises ValueError if there are no answers, or all weights are 0."""
    if not len(answers) or not answers.weights.sum() > 0:
        raise ValueError("no mention with a positive weight to measure")
    coverage, precision = coverage_and_precision(answers, threshold)
    known = float(answers.weights @ ~answers.is_nil)
    return Reliability(
        n=len(answers),
        first_accuracy=float(answers.weights @ answers.first_correct) / known if known else float("nan"),
        ece=calibration_error(answers),
        ece_interval=bootstrap_interval(answers, rng=rng, n_resamples=n_resamples),
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
    mass, probability, correct = bins(answers, n_bins=n_bins)
    return float(mass @ np.abs(probability - correct))


def bins(answers: Answers, *, n_bins: int = N_BINS) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Bins of equal mass, sorted by probability: share of mentions, mean probability and share right of each, (b,).

    Empty bins are omitted, so that b is at most `n_bins`.
    """
    values, row = np.unique(answers.probability, return_inverse=True)
    # Equal probabilities are merged first, so that the order of the answers does not matter.
    weight = np.bincount(row, answers.weights)
    right = np.bincount(row, answers.weights * answers.correct)
    kept = weight > 0
    values, weight, right = values[kept], weight[kept], right[kept]
    # Where each value ends and starts on a scale on which every bin has length 1.
    ends = np.cumsum(weight) / weight.sum() * n_bins
    starts = np.concatenate(([0.0], ends[:-1]))
    mass, probability, correct = np.zeros(n_bins), np.zeros(n_bins), np.zeros(n_bins)
    for i in range(n_bins):
        # The part of each value that lies in this bin; a value at a border is divided.
        part = np.clip(np.minimum(ends, i + 1) - np.maximum(starts, i), 0, None)
        mass[i] = part.sum()
        probability[i] = part @ values / max(mass[i], 1e-300)
        correct[i] = part @ (right / weight) / max(mass[i], 1e-300)
    filled = mass > 1e-12
    return mass[filled] / mass.sum(), probability[filled], correct[filled]


def brier_score(answers: Answers) -> float:
    """Mean squared difference of probability and outcome, in [0, 1]."""
    return float(np.average((answers.probability - answers.correct) ** 2, weights=answers.weights))


def auroc(answers: Answers) -> float:
    """Share of pairs in which the right answer has a higher probability than the wrong one.

    Equal probabilities count half; NaN if there is no pair.
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


def bootstrap_interval(
    answers: Answers, *, rng: np.random.Generator, n_resamples: int = N_RESAMPLES
) -> tuple[float, float]:
    """The 95 % bootstrap interval of the calibration error, corrected for its bias.

    A resample has a larger calibration error than the mentions it was drawn from, because its noise adds to the gaps.
    So the percentiles are shifted by the difference between the figure and the mean of the resamples.
    """
    n = len(answers)
    figures = [calibration_error(answers.take(rng.integers(n, size=n))) for _ in range(n_resamples)]
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
