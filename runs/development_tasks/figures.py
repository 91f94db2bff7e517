"""A figure with its bootstrap resamples, so that two encoders on the same items can be compared.

Items are drawn in groups, with replacement: all rows of an entity, of a phrase, or of a data set come together. The
draws depend on the name of the task alone. So every encoder sees the same ones, and the resamples of two encoders
differ by what the encoders differ.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from training.evaluation.outcome import Outcome

Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

N_RESAMPLES = 400
"""Resamples of a figure."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What an encoder has on a task.

    Attributes:
        value: In percent, higher is better.
        resamples: The same on each resample, (r,).
        n: Items.
    """

    value: float
    resamples: Array
    n: int


@dataclass(frozen=True, slots=True)
class Difference:
    """Model minus start on one task.

    Attributes:
        task: Name of the task.
        start: Figure of the start, in percent.
        model: Figure of the model, in percent.
        low: Lower end of the 95 % interval of the difference, in points.
        high: Upper end, in points.
        in_errors: The difference in its own standard errors; 0 where both figures and all resamples agree.
        resamples: Difference of each resample, in the same standard errors, (r,).
    """

    task: str
    start: float
    model: float
    low: float
    high: float
    in_errors: float
    resamples: Array

    @property
    def points(self) -> float:
        """The difference in points."""
        return self.model - self.start

    @property
    def is_below(self) -> bool:
        """Whether the whole interval is below 0."""
        return self.high < 0


def compare_figures(task: str, model: Figure, start: Figure) -> Difference:
    """Compare two encoders on one task."""
    differences = model.resamples - start.resamples
    difference = model.value - start.value
    error = float(differences.std(ddof=1))
    low, high = np.percentile(differences, (2.5, 97.5))
    if error < 1e-9:  # points; the encoders agree on every item
        same = np.zeros_like(differences)
        return Difference(task, start.value, model.value, float(low), float(high), 0.0, same)
    return Difference(task, start.value, model.value, float(low), float(high), difference / error, differences / error)


@dataclass(frozen=True, slots=True)
class Draws:
    """How often each group is drawn in each resample.

    Attributes:
        group: Number of the group of each item, (n,).
        counts: (r, g).
    """

    group: IntArray
    counts: Array

    def figure(self, outcome: Outcome) -> Figure:
        """Return the figure of an outcome on these items.

        Resamples of few groups are widened: g groups drawn from g have a variance that is too small by (g - 1) / g.
        """
        value = outcome.score(np.ones(len(self.group)))
        resamples = np.array([outcome.score(row[self.group]) for row in self.counts])
        n_groups = self.counts.shape[1]
        spread = np.sqrt(n_groups / max(1, n_groups - 1))
        return Figure(value, value + (resamples - value) * spread, len(self.group))


def draw_groups(
    task: str, keys: Sequence[str], *, strata: Sequence[str] | None = None, n_resamples: int = N_RESAMPLES
) -> Draws:
    """Draw groups with replacement, within strata if there are any.

    Args:
        task: Seeds the draws.
        keys: Group of each item.
        strata: Stratum of each item; a group is a group within its stratum.
        n_resamples: Number of resamples.
    """
    full = list(zip(strata or [""] * len(keys), keys, strict=True))
    number = {key: i for i, key in enumerate(sorted(set(full)))}
    rng = np.random.default_rng(zlib.crc32(task.encode()))
    parts = []
    for stratum in sorted({stratum for stratum, _ in number}):
        size = sum(found == stratum for found, _ in number)
        parts.append(rng.multinomial(size, np.full(size, 1 / size), n_resamples).astype(np.float64))
    return Draws(np.array([number[key] for key in full], dtype=np.int64), np.concatenate(parts, axis=1))
