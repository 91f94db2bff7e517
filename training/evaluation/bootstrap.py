"""Paired bootstrap over items: shows whether one method beats another beyond the chance of the sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from training.evaluation.outcome import FloatArray, IntArray, Outcome

N_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference between the figures of a model and of a baseline.

    Attributes:
        mean: Model minus baseline in points, on the items themselves.
        low: Lower bound of the 95 % interval, in points.
        high: Upper bound, in points.
    """

    mean: float
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def paired_bootstrap(
    model: Outcome, baseline: Outcome, *, rng: np.random.Generator, n_resamples: int = N_RESAMPLES
) -> Difference:
    """Resample the items, the same for both methods, and within strata if the task has them.

    Raises:
        ValueError: If the two outcomes have different numbers of items.
    """
    if model.n != baseline.n:
        raise ValueError(f"a paired bootstrap needs the same items, not {model.n} and {baseline.n}")
    ones = np.ones(model.n)
    differences = np.empty(n_resamples)
    for i in range(n_resamples):
        weights = _draw(model.n, model.strata, rng)
        differences[i] = model.score(weights) - baseline.score(weights)
    low, high = np.percentile(differences, (2.5, 97.5))
    return Difference(model.score(ones) - baseline.score(ones), float(low), float(high))


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
