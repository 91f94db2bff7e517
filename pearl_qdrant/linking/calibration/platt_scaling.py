"""Fitting a calibration: slope and NIL bias by maximum likelihood, and the threshold of a target precision.

With coefficients to begin from, those of the ranking are fitted first (`fit_coefficients.py`), and kept if the answers
of mentions that they were not fitted on are better for it.

    loss = - mean of log P(first candidate is right or not) + log P(mention is NIL or not)
           + ((slope - 1)^2 / 0.5^2 + nil_bias^2 / 2^2) / (2 n)

The likelihood is that of two outcomes, because those two probabilities are what is looked at. A softmax has no place
for the entity that the base has but the search did not find: the likelihood of the one right answer would give its
share to NIL (measured: calibration error 0.19 and 0.26 in place of 0.06, at a fifth NIL). The second line is a prior
around what comes with the package: it decides where there are few mentions, and counts for nothing with thousands.

Whatever is reported was not fitted on what it is measured by: five folds, and the threshold of each fold from the
others. Slope and bias stay 1 and 0 where others do no better.
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

SLOPE_SPREAD, BIAS_SPREAD = 0.5, 2.0
"""Standard deviations of the prior."""

N_FOLDS = 5

_MIN_SLOPE = 0.05
_ENOUGH = 1e-9
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted calibration, and what it is worth.

    Attributes:
        calibration: Fitted on all mentions.
        model: Coefficients fitted on all mentions; None: those that come with the package do as well.
        before, after: Figures of the calibration that was there, and of the new one, cross-fitted.
        answers_before, answers_after: What they were measured on.
        n_nil: NIL mentions.
        n_found: Mentions with an entity that was among the candidates.
        nil_share: Share of NIL mentions that was weighed for.
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
    """No threshold has the precision asked for.

    Attributes:
        best: The highest that one has.
    """

    def __init__(self, precision: float, best: float) -> None:
        super().__init__(f"no threshold has precision {precision}; the best one has {best:.3f}")
        self.precision = precision
        self.best = best


def fit(
    samples: Samples,
    *,
    precision: float,
    before: Calibration,
    groups: IntArray,
    rng: np.random.Generator,
    model_before: RankingModel | None = None,
    shipped: RankingModel | None = None,
) -> Fit:
    """Fit slope, NIL bias and threshold, and coefficients.

    Args:
        samples: ScoredMention mentions with their right answers, weighed; scored by the coefficients that come with the
            package.
        precision: That links are to have, in (0, 1).
        before: The calibration to compare with.
        groups: Mentions of one group, as those of one entity, stay in one fold; (n,).
        rng: Divides the mentions into folds, and draws resamples.
        model_before: Coefficients to compare with, if they are others.
        shipped: Coefficients to begin from; None fits none.

    Raises:
        UnreachablePrecisionError: If no threshold has the precision.
    """
    numbers, group = np.unique(groups, return_inverse=True)
    fold = rng.permutation(np.arange(len(numbers)) % N_FOLDS)[group]
    folds = [np.flatnonzero(fold == i) for i in range(N_FOLDS) if (fold == i).any()]
    answers_before = (samples if model_before is None else samples.scored_by(model_before)).answers(before)
    answers, model, is_fitted = _answers_cross_fitted(samples, folds, before), None, True
    unfitted = samples.answers(Calibration())
    if _error(unfitted) <= _error(answers):
        answers, is_fitted = unfitted, False
    if shipped is not None:
        refitted = _answers_cross_fitted(samples, folds, before, shipped)
        if _is_better(refitted, answers):
            answers, model, is_fitted = refitted, fit_coefficients(samples, shipped), True
            samples = samples.scored_by(model)
    threshold = threshold_for_precision(answers, precision)
    if threshold is None:
        raise UnreachablePrecisionError(precision, best_precision(answers))
    after = measure(answers, threshold, rng=rng)
    coverage, reached = _cross_fitted(answers, folds, precision)
    return Fit(
        calibration=replace(fit_slope_and_bias(samples) if is_fitted else Calibration(), threshold=threshold),
        model=model,
        before=measure(answers_before, before.threshold, rng=rng),
        after=replace(after, coverage=coverage, precision=reached),
        answers_before=answers_before,
        answers_after=answers,
        n_nil=int(samples.is_nil.sum()),
        n_found=int(samples.is_found.sum()),
        nil_share=samples.nil_share,
    )


def fit_slope_and_bias(samples: Samples) -> Calibration:
    """The most likely slope and bias by Fisher scoring, with the threshold left at its default."""
    at = minimise(
        lambda at: _loss(samples, at),
        np.array([1.0, 0.0]),
        lowest=np.array([_MIN_SLOPE, -np.inf]),
        highest=np.array([np.inf, np.inf]),
        enough=_ENOUGH * float(samples.weights.sum()),
    )
    return Calibration(float(at[0]), float(at[1]))


def _loss(samples: Samples, at: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Negative log posterior of slope and bias, its gradient, (2,), and its Fisher information, (2, 2)."""
    candidates, nil = samples.probabilities(Calibration(float(at[0]), float(at[1])))
    logits = np.where(np.isfinite(samples.logits), samples.logits, 0.0)
    mean = (candidates * logits).sum(axis=1) + nil * samples.nil_logits
    first = candidates[:, 0]
    # How each probability changes with slope and bias, (n, 2).
    by_first = np.stack([first * (logits[:, 0] - mean), -first * nil], axis=1)
    by_nil = np.stack([nil * (samples.nil_logits - mean), nil * (1 - nil)], axis=1)
    off = at - np.array([1.0, 0.0])
    prior = np.array([SLOPE_SPREAD, BIAS_SPREAD]) ** -2.0
    loss, gradient, information = float(prior @ off**2) / 2, prior * off, np.diag(prior)
    for probability, change, outcome in (
        (first, by_first, samples.first_is_right),
        (nil, by_nil, samples.is_nil.astype(np.float64)),
    ):
        p = np.clip(probability, _TINY, 1 - _TINY)
        loss -= float(samples.weights @ (outcome * np.log(p) + (1 - outcome) * np.log1p(-p)))
        gradient = gradient + (samples.weights * (p - outcome) / (p * (1 - p))) @ change
        information = information + (change * (samples.weights / (p * (1 - p)))[:, None]).T @ change
    return loss, gradient, information


def _answers_cross_fitted(
    samples: Samples, folds: list[IntArray], before: Calibration, shipped: RankingModel | None = None
) -> Answers:
    """Answers of each fold by what was fitted on the others."""
    parts: list[Answers] = []
    for rows in folds:
        others, part = samples.take(np.setdiff1d(np.arange(len(samples)), rows)), samples.take(rows)
        if shipped is not None and len(others):
            model = fit_coefficients(others, shipped)
            others, part = others.scored_by(model), part.scored_by(model)
        parts.append(part.answers(fit_slope_and_bias(others) if len(others) else before))
    return Answers.joined(parts).take(np.argsort(np.concatenate(folds)))


def _is_better(new: Answers, old: Answers) -> bool:
    """Whether more first candidates are right, or as many with better probabilities."""
    gain = new.weights @ new.first_correct - old.weights @ old.first_correct
    return bool(gain > 0 or (gain == 0 and brier_score(new.of_first()) < brier_score(old.of_first())))


def _error(answers: Answers) -> float:
    """Brier scores of the answer and of the first candidate together."""
    return brier_score(answers) + brier_score(answers.of_first())


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
            right += float(part.weights @ (is_linked * part.first_correct))
    return linked / float(answers.weights.sum()), right / linked if linked else float("nan")
