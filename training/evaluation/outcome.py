"""The figure of a method on a task, and whether it differs from that of another method: a paired bootstrap over items.

The bootstrap recomputes the figure: `Outcome.score` takes weights, that is, how often each item was drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

Score = Callable[[FloatArray], float]
"""From weights of the items, (n,), each at least 0, to the figure in percent."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One method on one task."""

    values: tuple[float, ...]  # the figure in percent for each seed
    n: int  # number of items
    score: Score  # the figure on a resample; with weights of 1, the mean of `values`
    strata: IntArray | None = None  # group of each item, (n,), if items are drawn within groups; else None
    details: Mapping[str, float] = field(default_factory=dict)  # more figures, by name

    @property
    def value(self) -> float:
        """Mean over the seeds, in percent."""
        return fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """Standard deviation over the seeds, in points; None for a single seed."""
        return stdev(self.values) if len(self.values) > 1 else None


def mean_outcome(
    # for each seed, the indices of its items and their scores, in [0, 1]. Items without a seed do not count
    by_seed: Sequence[tuple[IntArray, FloatArray]],
    *,
    strata: IntArray | None = None,  # group of each item; all groups have the same weight
    details: Mapping[str, float] | None = None,  # more figures
) -> Outcome:
    """The mean score over items, or the mean over groups of the means within them."""
    n_rows = 1 + max(int(items.max()) for items, _ in by_seed)
    sums, counts = np.zeros(n_rows), np.zeros(n_rows)
    for items, scores in by_seed:
        sums[items] += scores
        counts[items] += 1
    kept = np.flatnonzero(counts)
    sums, counts = sums[kept], counts[kept]
    groups = np.zeros(len(kept), dtype=np.int64)
    if strata is not None:  # numbered from 0 without gaps
        groups = np.unique(strata[kept], return_inverse=True)[1].astype(np.int64)

    def score(weights: FloatArray) -> float:
        return _percent(weights * sums, weights * counts, groups)

    group_of = np.zeros(n_rows, dtype=np.int64)
    group_of[kept] = groups
    values = tuple(_percent(scores, np.ones(len(items)), group_of[items]) for items, scores in by_seed)
    return Outcome(values, len(kept), score, None if strata is None else groups, details or {})


def _percent(sums: FloatArray, counts: FloatArray, groups: IntArray) -> float:
    """Mean over groups of sum over count."""
    top, bottom = np.bincount(groups, sums), np.bincount(groups, counts)
    return 100 * float(np.mean(top[bottom > 0] / bottom[bottom > 0]))


def pearson(weights: FloatArray, x: FloatArray, y: FloatArray) -> float:
    """Pearson's correlation of weighted rows, (n,) each, in [-1, 1]; 0 where one side is constant."""
    total = weights.sum()
    x, y = x - weights @ x / total, y - weights @ y / total
    spread = np.sqrt((weights @ (x * x)) * (weights @ (y * y)))
    return float(weights @ (x * y) / spread) if spread > 0 else 0.0


def pearson_outcome(scores: FloatArray, gold: FloatArray) -> Outcome:
    """Pearson's correlation of scores with gold scores, (n,) each."""
    value = 100 * pearson(np.ones(len(gold)), scores, gold)
    return Outcome((value,), len(gold), lambda weights: 100 * pearson(weights, scores, gold))


def nmi_outcome(labels: IntArray, clusters: Sequence[IntArray]) -> Outcome:
    """Normalised mutual information of labels and clusters x 100, numbered from 0, (n,) each; one clustering a seed.
    The normaliser is the arithmetic mean of the two entropies; where it is 0, so is the figure.
    """
    from scipy.stats import entropy

    def score_seed(drawn: FloatArray, found: IntArray) -> float:
        joint = np.zeros((1 + int(labels.max()), 1 + int(found.max())))
        np.add.at(joint, (labels, found), drawn)
        both = entropy(joint.sum(axis=1)) + entropy(joint.sum(axis=0))
        return float(100 * (both - entropy(joint.ravel())) / max(both / 2, 1e-12))

    def score(drawn: FloatArray) -> float:
        return fmean(score_seed(drawn, found) for found in clusters)

    ones = np.ones(len(labels))
    return Outcome(tuple(score_seed(ones, found) for found in clusters), len(labels), score)


N_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference between the figures of a model and of a baseline."""

    mean: float  # model minus baseline in points, on the items themselves
    low: float  # lower bound of the 95 % interval, in points
    high: float  # upper bound, in points
    error: float = 0.0  # standard error of the difference, in points

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def paired_bootstrap(
    model: Outcome, baseline: Outcome, *, rng: np.random.Generator, n_resamples: int = N_RESAMPLES
) -> Difference:
    """Resample the items, the same for both methods, and within strata if the task has them."""
    ones = np.ones(model.n)
    differences = np.empty(n_resamples)
    for i in range(n_resamples):
        weights = _draw(model.n, model.strata, rng)
        differences[i] = model.score(weights) - baseline.score(weights)
    low, high = np.percentile(differences, (2.5, 97.5))
    mean = model.score(ones) - baseline.score(ones)
    return Difference(mean, float(low), float(high), float(differences.std()))


def _draw(n: int, strata: IntArray | None, rng: np.random.Generator) -> FloatArray:
    """How often each item is drawn, when n items are drawn with replacement."""
    if strata is None:
        drawn = rng.integers(n, size=n)
    else:
        order = np.argsort(strata, kind="stable")
        sizes = np.bincount(strata)
        starts = np.cumsum(sizes) - sizes
        group = strata[order]
        drawn = order[starts[group] + (rng.random(n) * sizes[group]).astype(np.int64)]
    return np.bincount(drawn, minlength=n).astype(np.float64)
