"""What a task gives for one method: a figure, and how that figure comes about item by item.

The second part is what a bootstrap needs: `Outcome.score` tells the figure of any resample of the items, given as
weights (how often each item was drawn).
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
"""Weights of the items, (n,), each at least 0, to the figure in percent."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One method on one task.

    Attributes:
        values: The figure in percent, one for each seed.
        n: Items.
        score: The figure of a resample; with weights of 1, the mean of `values`.
        strata: (n,) the group of each item where items are drawn within groups; None where there are none.
        details: Further figures, by name.
    """

    values: tuple[float, ...]
    n: int
    score: Score
    strata: IntArray | None = None
    details: Mapping[str, float] = field(default_factory=dict)

    @property
    def value(self) -> float:
        """Mean over the seeds, in percent."""
        return fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """Standard deviation over the seeds, in points; None with a single one."""
        return stdev(self.values) if len(self.values) > 1 else None


def mean_outcome(
    by_seed: Sequence[tuple[IntArray, FloatArray]],
    *,
    strata: IntArray | None = None,
    details: Mapping[str, float] | None = None,
) -> Outcome:
    """A figure that is a mean over items, or over groups of the means within them.

    Args:
        by_seed: For each seed the items that it scored and what they earned, in [0, 1]. Items that no seed scored
            do not count.
        strata: Group of each item; all groups weigh the same.
        details: Further figures.
    """
    n_rows = 1 + max(int(items.max()) for items, _ in by_seed)
    earned, scored = np.zeros(n_rows), np.zeros(n_rows)
    for items, credit in by_seed:
        earned[items] += credit
        scored[items] += 1
    kept = np.flatnonzero(scored)
    earned, scored = earned[kept], scored[kept]
    groups = np.zeros(len(kept), dtype=np.int64) if strata is None else _dense(strata[kept])

    def score(weights: FloatArray) -> float:
        return _percent(weights * earned, weights * scored, groups)

    every = np.zeros(n_rows, dtype=np.int64)
    every[kept] = groups
    values = tuple(_percent(credit, np.ones(len(items)), every[items]) for items, credit in by_seed)
    return Outcome(values, len(kept), score, None if strata is None else groups, details or {})


def _dense(groups: IntArray) -> IntArray:
    """Groups numbered from 0 without gaps."""
    dense: IntArray = np.unique(groups, return_inverse=True)[1].astype(np.int64)
    return dense


def _percent(earned: FloatArray, possible: FloatArray, groups: IntArray) -> float:
    """Mean over groups of earned over possible."""
    top, bottom = np.bincount(groups, earned), np.bincount(groups, possible)
    return 100 * float(np.mean(top[bottom > 0] / bottom[bottom > 0]))


def pearson_outcome(scores: FloatArray, gold: FloatArray) -> Outcome:
    """Pearson's correlation of scores with the gold ones, (n,) each."""

    def score(weights: FloatArray) -> float:
        total = weights.sum()
        x, y = scores - weights @ scores / total, gold - weights @ gold / total
        spread = np.sqrt((weights @ (x * x)) * (weights @ (y * y)))
        return 100 * float(weights @ (x * y) / spread) if spread > 0 else 0.0

    return Outcome((score(np.ones(len(gold))),), len(gold), score)


def nmi_outcome(labels: IntArray, clusters: Sequence[IntArray]) -> Outcome:
    """Normalised mutual information (arithmetic mean of the entropies) of labels and clusters, one a seed."""
    n_labels = 1 + int(labels.max())
    joint = [labels + n_labels * cluster for cluster in clusters]
    sizes = [n_labels * (1 + int(cluster.max())) for cluster in clusters]

    def one(weights: FloatArray, seed: int) -> float:
        table = np.bincount(joint[seed], weights, minlength=sizes[seed]).reshape(-1, n_labels) / weights.sum()
        by_cluster, by_label, both = (_entropy(p) for p in (table.sum(1), table.sum(0), table.ravel()))
        mean = (by_cluster + by_label) / 2
        return 100 * (by_cluster + by_label - both) / mean if mean > 0 else 0.0

    def score(weights: FloatArray) -> float:
        return fmean(one(weights, seed) for seed in range(len(clusters)))

    ones = np.ones(len(labels))
    return Outcome(tuple(one(ones, seed) for seed in range(len(clusters))), len(labels), score)


def _entropy(shares: FloatArray) -> float:
    """In nats."""
    shares = shares[shares > 0]
    return -float(shares @ np.log(shares))
