"""Fits a calibration: slope and NIL bias by maximum likelihood, and the threshold for a target precision.

The threshold is below the precision of exact names (`ranking.rules`), so that a calibration never loses them; among
the thresholds that reach the precision it is the one with the most right minus wrong links.
On labelled pairs the coefficients of the ranking are fitted first (`fit_coefficients.py`). They are kept if they give
better answers for mentions that they were not fitted on.

    loss = - mean of log P(first candidate is right or not) + log P(mention is NIL or not)
           + ((slope - 1)^2 / 0.5^2 + nil_bias^2 / 2^2) / (2 n)

The likelihood is that of two outcomes, because these two probabilities are what users see. A softmax has no place for
an entity that the base has but the search did not find: the likelihood of the one right answer would give its share to
NIL (measured: calibration error 0.19 and 0.26 instead of 0.06, at one fifth NIL). The second line is a prior around the
defaults; it decides if there are few mentions, and hardly matters with thousands.

No reported figure is measured on mentions that it was fitted on: there are five folds, and the threshold for each fold
comes from the others. Slope and bias stay 1 and 0 if fitted ones do no better.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pearl_qdrant.linking.calibration.fit_coefficients import fit_coefficients
from pearl_qdrant.linking.calibration.metrics import (
    Answers,
    FloatArray,
    Reliability,
    best_precision,
    brier_score,
    measure,
    threshold_for_precision,
)
from pearl_qdrant.linking.calibration.newton import minimise
from pearl_qdrant.linking.calibration.samples import IntArray, Samples
from pearl_qdrant.linking.ranking.model import Calibration, RankingModel
from pearl_qdrant.linking.ranking.rules import HIGHEST_THRESHOLD
from pearl_qdrant.settings import DEFAULT_THRESHOLD

SLOPE_SPREAD, BIAS_SPREAD = 0.5, 2.0
"""Standard deviations of the prior on slope and bias."""

N_FOLDS = 5

_MIN_SLOPE = 0.05
_TOLERANCE = 1e-9  # per unit of weight
_TINY = 1e-12  # probabilities are clipped by this, so that logarithms are finite


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted calibration with its figures.

    Attributes:
        calibration: Fitted on all mentions.
        model: Coefficients fitted on all mentions; None if the default ones do as well.
        before, after: Figures of the previous calibration, and of the new one, cross-fitted.
        answers_before, answers_after: The answers that they were measured on.
        n_nil: Number of NIL mentions.
        n_found: Number of mentions whose entity was among the candidates.
        nil_share: Share of NIL mentions, by weight.
    """

    calibration: Calibration
    model: RankingModel | None
    before: Reliability
    after: Reliability
    answers_before: Answers
    answers_after: Answers
    n_nil: int
    n_found: int
    nil_share: float


class UnreachablePrecisionError(ValueError):
    """No threshold reaches the requested precision.

    Attributes:
        precision: The requested precision.
        best: The highest precision that a threshold reaches.
    """

    def __init__(self, precision: float, best: float) -> None:
        super().__init__(f"no threshold reaches precision {precision}; the best one reaches {best:.3f}")
        self.precision = precision
        self.best = best


def fit(
    samples: Samples,
    *,
    precision: float | None,
    before: Calibration,
    groups: IntArray,
    rng: np.random.Generator,
    model_before: RankingModel | None = None,
    shipped: RankingModel | None = None,
) -> Fit:
    """Fit slope, NIL bias and threshold, and coefficients.

    Args:
        samples: Weighted mentions with their right answers, scored by the default coefficients.
        precision: Target precision of links, in (0, 1); None: the default threshold of what is fitted.
        before: The previous calibration, to compare with.
        groups: Group of each mention, (n,). Mentions of one group, such as one entity, stay in one fold.
        rng: Assigns groups to folds, and draws resamples.
        model_before: The previous coefficients, if they were not the default ones.
        shipped: Default coefficients to start from; None to leave the coefficients alone.

    Raises:
        UnreachablePrecisionError: If no threshold reaches the precision.
    """
    numbers, group = np.unique(groups, return_inverse=True)
    fold = rng.permutation(np.arange(len(numbers)) % N_FOLDS)[group]
    folds = [np.flatnonzero(fold == i) for i in range(N_FOLDS) if (fold == i).any()]
    answers_before = (samples if model_before is None else samples.scored_by(model_before)).answers(before)
    answers, model, is_fitted = _answers_cross_fitted(samples, folds, before), None, True
    by_default = samples.answers(Calibration())
    if _error(by_default) <= _error(answers):
        answers, is_fitted = by_default, False
    if shipped is not None:
        refitted = _answers_cross_fitted(samples, folds, before, shipped)
        if _is_better(refitted, answers):
            answers, model, is_fitted = refitted, fit_coefficients(samples, shipped), True
            samples = samples.scored_by(model)
    if precision is None:
        threshold: float | None = DEFAULT_THRESHOLD
    else:
        threshold = threshold_for_precision(answers, precision, highest=HIGHEST_THRESHOLD)
    if threshold is None:
        raise UnreachablePrecisionError(precision or 0.0, best_precision(answers, highest=HIGHEST_THRESHOLD))
    after = measure(answers, threshold, rng=rng)
    if precision is not None:
        coverage, reached = _coverage_cross_fitted(answers, folds, precision)
        after = replace(after, coverage=coverage, precision=reached)
    return Fit(
        calibration=replace(fit_slope_and_bias(samples) if is_fitted else Calibration(), threshold=threshold),
        model=model,
        before=measure(answers_before, before.threshold, rng=rng),
        after=after,
        answers_before=answers_before,
        answers_after=answers,
        n_nil=int(samples.is_nil.sum()),
        n_found=int(samples.is_found.sum()),
        nil_share=samples.nil_share,
    )


def fit_slope_and_bias(samples: Samples) -> Calibration:
    """The most likely slope and bias, by Fisher scoring; the threshold stays at its default.

    Mentions that a rule decides do not count: their probability does not depend on slope and bias.
    """
    samples = samples.undecided()
    if not len(samples):
        return Calibration()
    at = minimise(
        lambda at: _loss(samples, at),
        np.array([1.0, 0.0]),
        lowest=np.array([_MIN_SLOPE, -np.inf]),
        highest=np.array([np.inf, np.inf]),
        tolerance=_TOLERANCE * float(samples.weights.sum()),
    )
    return Calibration(float(at[0]), float(at[1]))


def _loss(samples: Samples, at: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Negative log posterior of slope and bias, its gradient, (2,), and its Fisher information, (2, 2).

    For an outcome y with probability p, d log likelihood / dp = (y - p) / (p (1 - p)), and the Fisher information of p
    is 1 / (p (1 - p)); the chain rule through dp / d(slope, bias) gives the sums below.
    """
    candidates, nil = samples.probabilities(Calibration(float(at[0]), float(at[1])))
    # Missing candidates have logit -inf and probability 0: as 0 they add nothing, where -inf * 0 would give NaN.
    logits = np.where(np.isfinite(samples.logits), samples.logits, 0.0)
    mean = (candidates * logits).sum(axis=1) + nil * samples.nil_logits
    first = candidates[:, 0]
    # Derivatives of the softmax by slope and bias, (n, 2): dp_i / dslope = p_i (logit_i - mean logit).
    first_slopes = np.stack([first * (logits[:, 0] - mean), -first * nil], axis=1)
    nil_slopes = np.stack([nil * (samples.nil_logits - mean), nil * (1 - nil)], axis=1)
    off = at - np.array([1.0, 0.0])
    prior = np.array([SLOPE_SPREAD, BIAS_SPREAD]) ** -2.0
    loss, gradient, information = float(prior @ off**2) / 2, prior * off, np.diag(prior)
    for probability, slopes, outcome in (
        (first, first_slopes, samples.first_is_right),
        (nil, nil_slopes, samples.is_nil.astype(np.float64)),
    ):
        p = np.clip(probability, _TINY, 1 - _TINY)
        loss -= float(samples.weights @ (outcome * np.log(p) + (1 - outcome) * np.log1p(-p)))
        gradient = gradient + (samples.weights * (p - outcome) / (p * (1 - p))) @ slopes
        information = information + (slopes * (samples.weights / (p * (1 - p)))[:, None]).T @ slopes
    return loss, gradient, information


def _answers_cross_fitted(
    samples: Samples, folds: list[IntArray], before: Calibration, shipped: RankingModel | None = None
) -> Answers:
    """Answers for each fold by a fit on the other folds, in the order of `samples`."""
    parts: list[Answers] = []
    for rows in folds:
        others, part = samples.take(np.setdiff1d(np.arange(len(samples)), rows)), samples.take(rows)
        if shipped is not None and len(others):
            model = fit_coefficients(others, shipped)
            others, part = others.scored_by(model), part.scored_by(model)
        parts.append(part.answers(fit_slope_and_bias(others) if len(others) else before))
    return Answers.joined(parts).take(np.argsort(np.concatenate(folds)))


def _is_better(new: Answers, old: Answers) -> bool:
    """Whether more first candidates are right, or equally many with better probabilities."""
    gain = new.weights @ new.first_correct - old.weights @ old.first_correct
    return bool(gain > 0 or (gain == 0 and brier_score(new.of_first()) < brier_score(old.of_first())))


def _error(answers: Answers) -> float:
    """Sum of the Brier scores of the answer and of the first candidate."""
    return brier_score(answers) + brier_score(answers.of_first())


def _coverage_cross_fitted(answers: Answers, folds: list[IntArray], precision: float) -> tuple[float, float]:
    """Coverage and precision, where the threshold for each fold is chosen on the other folds."""
    linked = right = 0.0
    for rows in folds:
        others = np.setdiff1d(np.arange(len(answers)), rows)
        threshold = threshold_for_precision(answers.take(others), precision, highest=HIGHEST_THRESHOLD)
        if threshold is not None:
            part = answers.take(rows)
            is_linked = part.link_probability >= threshold
            linked += float(part.weights @ is_linked)
            right += float(part.weights @ (is_linked * part.first_correct))
    return linked / float(answers.weights.sum()), right / linked if linked else float("nan")
