"""Fitting a calibration: slope and NIL bias by maximum likelihood, and the threshold of a target precision.

    loss = - mean log p(right answer) + ((slope - 1)^2 / 0.5^2 + nil_bias^2 / 2^2) / (2 n)

The second part is a prior around what comes with the package: it decides where there are few mentions, and counts for
nothing with thousands. The loss is convex, Newton's method takes a few steps. A mention whose entity the base has, but
the search did not find, counts as one that none of the candidates is right for.

Whatever is reported was not fitted on what it is measured by: five folds, and the threshold of each fold from the
others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pearl_qdrant.linking.judged_samples import IntArray, Samples
from pearl_qdrant.linking.ranking import Calibration
from pearl_qdrant.linking.reliability import (
    Answers,
    FloatArray,
    Reliability,
    best_precision,
    measure,
    threshold_for_precision,
)

SLOPE_SPREAD, BIAS_SPREAD = 0.5, 2.0
"""Standard deviations of the prior."""

N_FOLDS = 5

_MIN_SLOPE = 0.05
_STEPS = 50
_ENOUGH = 1e-9


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted calibration, and what it is worth.

    Attributes:
        calibration: Fitted on all mentions.
        before, after: Figures of the calibration that was there, and of the new one, cross-fitted.
        answers_before, answers_after: What they were measured on.
        n_nil: NIL mentions.
        n_found: Mentions with an entity that was among the candidates.
        nil_share: Share of NIL mentions that was weighed for.
    """

    calibration: Calibration
    before: Reliability
    after: Reliability
    answers_before: Answers
    answers_after: Answers
    n_nil: int
    n_found: int
    nil_share: float


class UnreachablePrecisionError(ValueError):
    """No threshold has the precision asked for.

    Attributes:
        best: The highest that one has.
    """

    def __init__(self, precision: float, best: float) -> None:
        super().__init__(f"no threshold has precision {precision}; the best one has {best:.3f}")
        self.precision = precision
        self.best = best


def fit(samples: Samples, *, precision: float, before: Calibration, groups: IntArray, rng: np.random.Generator) -> Fit:
    """Fit slope, NIL bias and threshold.

    Args:
        samples: Judged mentions with their right answers, weighed.
        precision: That links are to have, in (0, 1).
        before: The calibration to compare with.
        groups: Mentions of one group, as those of one entity, stay in one fold; (n,).
        rng: Divides the mentions into folds, and draws resamples.

    Raises:
        UnreachablePrecisionError: If no threshold has the precision.
    """
    numbers, group = np.unique(groups, return_inverse=True)
    fold = rng.permutation(np.arange(len(numbers)) % N_FOLDS)[group]
    folds = [np.flatnonzero(fold == i) for i in range(N_FOLDS) if (fold == i).any()]
    parts: list[Answers] = []
    for rows in folds:
        others = np.setdiff1d(np.arange(len(samples)), rows)
        parts.append(samples.take(rows).answers(fit_slope_and_bias(samples.take(others)) if len(others) else before))
    answers = _joined(parts, np.concatenate(folds))
    threshold = threshold_for_precision(answers, precision)
    if threshold is None:
        raise UnreachablePrecisionError(precision, best_precision(answers))
    after = measure(answers, threshold, rng=rng)
    coverage, reached = _cross_fitted(answers, folds, precision)
    answers_before = samples.answers(before)
    return Fit(
        calibration=replace(fit_slope_and_bias(samples), threshold=threshold),
        before=measure(answers_before, before.threshold, rng=rng),
        after=replace(after, coverage=coverage, precision=reached),
        answers_before=answers_before,
        answers_after=answers,
        n_nil=int(samples.is_nil.sum()),
        n_found=int(samples.is_found.sum()),
        nil_share=samples.nil_share,
    )


def fit_slope_and_bias(samples: Samples) -> Calibration:
    """The most likely slope and bias, with the threshold left at its default."""
    n = samples.weights.sum()
    at = np.array([1.0, 0.0])
    loss, gradient, curvature = _loss(samples, at)
    for _ in range(_STEPS):
        step = np.linalg.solve(curvature, gradient)
        size = 1.0
        while size > 1e-6:
            tried = np.array([max(_MIN_SLOPE, at[0] - size * step[0]), at[1] - size * step[1]])
            new = _loss(samples, tried)
            if new[0] < loss:
                break
            size /= 2
        else:
            break
        gain = loss - new[0]
        at, (loss, gradient, curvature) = tried, new
        if gain < _ENOUGH * n:
            break
    return Calibration(float(at[0]), float(at[1]))


def _loss(samples: Samples, at: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Negative log posterior of slope and bias, its gradient, (2,), and its curvature, (2, 2)."""
    absent = ~np.isfinite(samples.logits)
    # One more column, NIL; what each logit changes by with the slope is its own value.
    by_slope = np.concatenate([np.where(absent, 0.0, samples.logits), samples.nil_logits[:, None]], axis=1)
    logits = at[0] * by_slope
    logits[:, -1] += at[1]
    logits[:, :-1][absent] = -np.inf
    right = np.concatenate([samples.is_right, ~samples.is_found[:, None]], axis=1)
    log_all, p_all = _softmax(logits)
    log_right, p_right = _softmax(np.where(right, logits, -np.inf))
    weights = samples.weights
    slope_all, slope_right = (p_all * by_slope).sum(axis=1), (p_right * by_slope).sum(axis=1)
    gradient = np.array([weights @ (slope_all - slope_right), weights @ (p_all[:, -1] - p_right[:, -1])])
    spread_slope = (p_all * by_slope**2).sum(axis=1) - slope_all**2
    spread_bias = p_all[:, -1] * (1 - p_all[:, -1])
    together = p_all[:, -1] * (by_slope[:, -1] - slope_all)
    # What the choice among several right candidates would take away is left out: the step stays downhill.
    curvature = np.array(
        [[weights @ spread_slope, weights @ together], [weights @ together, weights @ spread_bias]], dtype=np.float64
    )
    prior = np.array([SLOPE_SPREAD, BIAS_SPREAD]) ** -2.0
    off = at - np.array([1.0, 0.0])
    loss = float(weights @ (log_all - log_right) + (prior * off) @ off / 2)
    return loss, gradient + prior * off, curvature + np.diag(prior)


def _softmax(logits: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Log of the sum of exponentials, (n,), and the softmax, (n, k)."""
    highest = logits.max(axis=1, keepdims=True)
    exponentials = np.exp(logits - highest)
    total = exponentials.sum(axis=1, keepdims=True)
    return (np.log(total) + highest)[:, 0], exponentials / total


def _joined(parts: list[Answers], rows: IntArray) -> Answers:
    """Answers of the folds in the order of the mentions."""
    order = np.argsort(rows)
    names = ("probability", "correct", "link_probability", "link_correct", "is_nil", "weights")
    return Answers(*(np.concatenate([getattr(part, name) for part in parts])[order] for name in names))


def _cross_fitted(answers: Answers, folds: list[IntArray], precision: float) -> tuple[float, float]:
    """Coverage and precision of thresholds that each were chosen on the other folds."""
    linked = right = 0.0
    for rows in folds:
        others = np.setdiff1d(np.arange(len(answers)), rows)
        threshold = threshold_for_precision(answers.take(others), precision)
        if threshold is not None:
            part = answers.take(rows)
            is_linked = part.link_probability >= threshold
            linked += float(part.weights @ is_linked)
            right += float(part.weights @ (is_linked * part.link_correct))
    return linked / float(answers.weights.sum()), right / linked if linked else float("nan")
