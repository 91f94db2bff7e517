"""How far probabilities can be trusted: calibration error, Brier score, AUROC, coverage and precision at a threshold.

A mention's answer is the most probable of its candidate entities and NIL; it is right if it is the entity meant, or NIL
where the base has none. A link is an answer that the linker gives: its first candidate, at or above the threshold and
not tied. All weigh the mentions, so that a share of NIL mentions can be had that the labelled ones do not have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

N_BINS = 15
N_RESAMPLES = 500

Metric = Callable[["Answers"], float]


@dataclass(frozen=True, slots=True)
class Answers:
    """What a linker said of n mentions.

    Attributes:
        probability: Of the answer, (n,), in [0, 1].
        correct: Whether the answer is right, (n,); one of k tied candidates is right by 1 / k.
        first_probability: Of the first candidate, whatever the answer, (n,).
        first_correct: Whether the first candidate is right, (n,); 0 for a NIL mention.
        link_probability: Of the first candidate, (n,); 0 where it is tied or there is none: it is never linked.
        is_nil: Whether the base has no entity for the mention, (n,).
        weights: What each mention counts, (n,), at least 0.
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
        """Several, one after the other."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def take(self, rows: npt.NDArray[np.int64]) -> Answers:
        """Those of some mentions; one may be taken several times."""
        return Answers(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Reliability:
    """Figures of a set of answers, all as shares.

    Attributes:
        n: Mentions.
        first_accuracy: Share of those with an entity whose first candidate is right; NaN if there are none.
        ece: Expected calibration error of the answers, 15 bins of equal mass.
        ece_interval: Its 95 % bootstrap interval.
        brier: Mean squared error of the answers' probabilities.
        auroc: Of the answer's probability against its being right; NaN if all are right or none.
        first_ece, first_auroc: The same of the first candidates, whatever the answer: over all mentions, NIL included,
            how well its probability tells whether the first candidate is right.
        threshold: Of the following three.
        coverage: Share of the mentions that are linked.
        precision: Share of the links that are right; NaN without a link.
        nil_f1: F1 of saying NIL; NaN if no mention is NIL and none is said to be.
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
    """All figures of some answers.

    Raises:
        ValueError: If there are none, or none that counts.
    """
    if not len(answers) or not answers.weights.sum() > 0:
        raise ValueError("there is no mention to measure by")
    coverage, precision = coverage_and_precision(answers, threshold)
    known = float(answers.weights @ ~answers.is_nil)
    return Reliability(
        n=len(answers),
        first_accuracy=float(answers.weights @ answers.first_correct) / known if known else float("nan"),
        ece=calibration_error(answers),
        ece_interval=bootstrap_interval(calibration_error, answers, rng=rng, n_resamples=n_resamples),
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
    """Expected calibration error: mean over bins of equal mass of |probability - share right|, in [0, 1].

    Source:
        Naeini et al. 2015, with bins of equal mass (Nguyen and O'Connor 2015).
    """
    mass, probability, correct = bins(answers, n_bins=n_bins)
    return float(mass @ np.abs(probability - correct))


def bins(answers: Answers, *, n_bins: int = N_BINS) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Bins of equal mass in the order of probability; those that nothing falls into are left out.

    Returns:
        Share of the mentions, mean probability and share right, (b,) each, b at most `n_bins`.
    """
    values, row = np.unique(answers.probability, return_inverse=True)
    # Equal probabilities share what is right of them, whatever their order.
    weight = np.bincount(row, answers.weights)
    right = np.bincount(row, answers.weights * answers.correct)
    kept = weight > 0
    values, weight, right = values[kept], weight[kept], right[kept]
    ends = np.cumsum(weight) / weight.sum() * n_bins
    starts = np.concatenate(([0.0], ends[:-1]))
    mass, probability, correct = np.zeros(n_bins), np.zeros(n_bins), np.zeros(n_bins)
    for i in range(n_bins):
        # A value at a border is divided between the bins.
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
    """How often a right answer has a higher probability than a wrong one, ties counted by half; NaN without a pair."""
    values, row = np.unique(answers.probability, return_inverse=True)
    right = np.bincount(row, answers.weights * answers.correct, minlength=len(values))
    wrong = np.bincount(row, answers.weights * (1 - answers.correct), minlength=len(values))
    pairs = right.sum() * wrong.sum()
    below = np.cumsum(wrong) - wrong
    return float(right @ (below + wrong / 2) / pairs) if pairs > 0 else float("nan")


def coverage_and_precision(answers: Answers, threshold: float) -> tuple[float, float]:
    """Share of the mentions that are linked, and of the links that are right; NaN without a link."""
    linked = _linked(answers, threshold) * answers.weights
    total = float(linked.sum())
    precision = float(linked @ answers.first_correct) / total if total > 0 else float("nan")
    return total / float(answers.weights.sum()), precision


def nil_f1(answers: Answers, threshold: float) -> float:
    """F1 of giving no entity, against there being none; NaN if neither happens."""
    said = ~_linked(answers, threshold)
    both = float(answers.weights @ (said & answers.is_nil))
    total = float(answers.weights @ said) + float(answers.weights @ answers.is_nil)
    return 2 * both / total if total > 0 else float("nan")


def _linked(answers: Answers, threshold: float) -> BoolArray:
    linked: BoolArray = (answers.link_probability >= threshold) & (answers.link_probability > 0)
    return linked


def threshold_for_precision(answers: Answers, precision: float) -> float | None:
    """The lowest threshold at which links are right often enough; None if no threshold is.

    One more link is counted as wrong, so that a few that happen to be right do not do: of 19 right ones 95 % are right.

    Source:
        The correction of conformal risk control, Angelopoulos et al. 2024, Eq. 4.
    """
    linkable = np.flatnonzero((answers.link_probability > 0) & (answers.weights > 0))
    if not len(linkable):
        return None
    order = linkable[np.argsort(-answers.link_probability[linkable], kind="stable")]
    probability, weights = answers.link_probability[order], answers.weights[order]
    right = np.cumsum(weights * answers.first_correct[order])
    good = right / (np.cumsum(weights) + weights.mean()) >= precision
    # Links of one probability come together.
    good &= np.append(probability[1:] < probability[:-1], True)
    return float(probability[np.flatnonzero(good)[-1]]) if good.any() else None


def best_precision(answers: Answers) -> float:
    """The highest precision, corrected as in `threshold_for_precision`, that any threshold has; 0 without links."""
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if threshold_for_precision(answers, middle) is not None else (low, middle)
    return low


def bootstrap_interval(
    metric: Metric, answers: Answers, *, rng: np.random.Generator, n_resamples: int = N_RESAMPLES
) -> tuple[float, float]:
    """The 95 % interval of a figure that is at least 0: percentiles over resamples of the mentions, moved to its place.

    A resample has a larger calibration error than the mentions it was drawn from, whatever that is: its noise adds to
    the gaps. So the resamples are moved by what their mean lies above the figure.
    """
    n = len(answers)
    figures = [metric(answers.take(rng.integers(n, size=n))) for _ in range(n_resamples)]
    low, high = np.nanpercentile(figures, (2.5, 97.5)) - np.nanmean(figures) + metric(answers)
    return max(0.0, float(low)), float(high)
