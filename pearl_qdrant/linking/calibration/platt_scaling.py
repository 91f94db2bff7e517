"""Fits a calibration: slope and NIL bias, or on labelled pairs the coefficients of the ranking; and the threshold.

The threshold is below the precision of exact names (`ranking.scoring`), so that a calibration never loses them; among
the thresholds that reach the precision it is the one with the most right minus wrong links.

    loss = - mean of log P(first candidate is right or not) + log P(mention is NIL or not)
           + ((slope - 1)^2 / 0.5^2 + nil_bias^2 / 2^2) / (2 n)

The likelihood is that of two outcomes, because these two probabilities are what users see. A softmax has no place for
an entity that the base has but the search did not find: the likelihood of the one right answer would give its share to
NIL (measured: calibration error 0.19 and 0.26 instead of 0.06, at one fifth NIL). The second line is a prior around the
defaults; it decides if there are few mentions, and hardly matters with thousands.

The coefficients are those of two logistic regressions with a strong prior; the NIL bias is one of them.

    ranking     over the candidates of mentions whose entity is among them: which one is right
    decision    over all mentions, by the features of the first candidate: is the entity among the candidates
    loss        - sum over mentions of weight * log P(right answer)  +  PRIOR * |scale * (coefficient - shipped)|^2

The prior keeps the default coefficients where a base has no evidence: a hundred mentions move them little. Features are
scaled by their standard deviation among the candidates. A coefficient keeps the sign that its feature's meaning
requires, or becomes 0.

No reported figure is measured on mentions that it was fitted on: there are five folds, and the threshold for each fold
comes from the others. Slope and bias of made mentions stay 1 and 0 if fitted ones do no better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pearl_qdrant.errors import CalibrationError
from pearl_qdrant.linking.calibration.metrics import (
    Answers,
    IntArray,
    Reliability,
    Samples,
    best_precision,
    brier_score,
    measure,
    threshold_for_precision,
)
from pearl_qdrant.linking.ranking.forest import Forest
from pearl_qdrant.linking.ranking.model import (
    FEATURES,
    FEW_NAMES,
    NIL_FEATURES,
    SIGNS,
    UNFITTED,
    Calibration,
    FloatArray,
    RankingModel,
    all_margins,
    decision_rows,
)
from pearl_qdrant.linking.ranking.scoring import HIGHEST_THRESHOLD
from pearl_qdrant.settings import DEFAULT_THRESHOLD

Loss = Callable[[FloatArray], tuple[float, FloatArray, FloatArray]]
"""Maps parameters, (p,), to a loss, its gradient, (p,), and its Fisher information, (p, p), positive definite."""


def minimise(loss: Loss, start: FloatArray, *, lowest: FloatArray, highest: FloatArray, tolerance: float) -> FloatArray:
    """The parameters with the smallest loss, (p,), by projected Newton steps within bounds, (p,); equal bounds fix one.

    Each step solves information * step = gradient for the free parameters, where the Fisher information stands for the
    Hessian: it is always positive definite, so the step goes downhill. The step is halved until the loss falls, and
    clipped to the bounds. The last step is one that lowers the loss by less than `tolerance`.
    """
    at = start
    value, gradient, information = loss(at)
    for _ in range(50):
        # A parameter at a bound stays there while the gradient pushes it outwards. It must be taken out of the
        # equations too, or the step of the others would count on a movement that the bound then prevents.
        is_fixed = (lowest == highest) | ((at <= lowest) & (gradient > 0)) | ((at >= highest) & (gradient < 0))
        free = np.flatnonzero(~is_fixed)
        step = np.zeros_like(at)
        step[free] = np.linalg.solve(information[np.ix_(free, free)], gradient[free])
        size = 1.0
        while size > 1e-6:
            candidate = np.clip(at - size * step, lowest, highest)
            result = loss(candidate)
            if result[0] < value:
                break
            size /= 2
        else:
            break  # no step lowers the loss: this is the minimum, up to rounding
        gain = value - result[0]
        at, (value, gradient, information) = candidate, result
        if gain < tolerance:
            break
    return at


PRIOR = 8.0  # chosen with 30, 50 and 700 mentions of the four curated sets; values from 4 to 16 differ little


def fit_coefficients(samples: Samples, shipped: RankingModel, *, keeps_ranking: bool = False) -> RankingModel:
    """The most likely coefficients (maximum a posteriori), by weighted mentions that no rule decides. `shipped` has the
    default ones, the centre of the prior; `keeps_ranking`: those of the ranking stay as they are.
    """
    samples = samples.undecided()
    if not len(samples):
        return shipped
    present = np.isfinite(samples.logits)
    # The least scale is that of a feature which is nearly constant among the candidates of this base.
    scale = np.maximum(samples.features[present].std(axis=0), 0.05) if present.any() else np.ones(len(FEATURES))
    ranking = shipped.features
    if not keeps_ranking:  # the candidates of the mentions whose entity is among them
        keep = samples.is_found
        rows = np.where(present[keep][:, :, None], samples.features[keep], 0.0)
        ranking = _fit(_Choices(rows, present[keep], samples.is_right[keep], samples.weights[keep]), ranking, scale)
    centre = np.concatenate([shipped.decision, -shipped.nil_features])
    choices = _decision_choices(samples, present, ranking, shipped.forest)
    fitted = _fit(choices, centre, np.concatenate([scale, np.ones(len(NIL_FEATURES))]))
    n = len(FEATURES)
    return RankingModel(ranking, fitted[:n], -fitted[n:], shipped.forest)


@dataclass(frozen=True, slots=True)
class _Choices:
    """Mentions with the features of their choices, (m, k, p), of which at least one of each mention is right."""

    rows: FloatArray
    present: npt.NDArray[np.bool_]
    is_right: npt.NDArray[np.bool_]
    weights: FloatArray
    offsets: FloatArray | float = 0.0  # what the trees say of each choice, (m, k)


def _decision_choices(
    samples: Samples, present: npt.NDArray[np.bool_], ranking: FloatArray, forest: Forest | None
) -> _Choices:
    """For each mention: its entity is among the candidates, or, with features of 0, it is not."""
    logits = np.where(present, samples.features @ ranking, -np.inf)
    first = logits.argmax(axis=1)
    of_first = np.where(present.any(axis=1, keepdims=True), samples.features[np.arange(len(first)), first], 0.0)
    rows = np.zeros((len(first), 2, len(FEATURES) + len(NIL_FEATURES)))
    of_mention = all_margins(samples.nil_features, logits, samples.features)
    rows[:, 0] = decision_rows(of_first, of_mention)
    is_right = np.stack([samples.is_found, ~samples.is_found], axis=1)
    offsets = np.zeros(is_right.shape)
    if forest is not None:
        offsets[:, 0] = forest.logits(rows[:, 0])
    return _Choices(rows, np.ones_like(is_right), is_right, samples.weights, offsets)


def _fit(choices: _Choices, centre: FloatArray, scale: FloatArray) -> FloatArray:
    """The most likely coefficients, (p,); the first are those of `FEATURES`, whose signs are kept."""
    if not len(choices.weights):
        return centre
    lowest, highest = np.full(len(scale), -np.inf), np.full(len(scale), np.inf)
    is_added = len(scale) > len(FEATURES) and bool(np.any(choices.offsets))  # to trees, which have the signs
    for i, name in enumerate(FEATURES):
        if name in UNFITTED:
            lowest[i] = highest[i] = centre[i] * scale[i]
        elif is_added:
            continue
        elif SIGNS[name] < 0:
            highest[i] = 0.0
        elif SIGNS[name] > 0:
            lowest[i] = 0.0
    if len(scale) > len(FEATURES):
        lowest[len(FEATURES) + FEW_NAMES] = highest[len(FEATURES) + FEW_NAMES] = 0.0
    scaled = replace(choices, rows=choices.rows / scale)
    fitted = minimise(
        lambda at: _coefficients_loss(scaled, at, centre * scale),
        np.clip(centre * scale, lowest, highest),
        lowest=lowest,
        highest=highest,
        tolerance=1e-7 * float(choices.weights.sum()),
    )
    return fitted / scale


def _coefficients_loss(choices: _Choices, at: FloatArray, centre: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Negative log posterior, its gradient, (p,), and its Fisher information, (p, p).

    With the softmax shares s of a mention's rows x, and h = shares of the right rows, normalised:

        gradient     = sum over mentions of weight * sum_k (s_k - h_k) x_k
        information  = sum over mentions of weight * (sum_k s_k x_k x_k^T - m m^T),   m = sum_k s_k x_k

    plus the terms of the prior.
    """
    rows, weights = choices.rows, choices.weights
    logits = np.where(choices.present, rows @ at + choices.offsets, -np.inf)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = odds / odds.sum(axis=1, keepdims=True)
    hits = shares * choices.is_right
    likelihood = np.maximum(hits.sum(axis=1), 1e-300)  # keeps the logarithm finite
    residual = (shares - hits / likelihood[:, None]) * weights[:, None]
    off = at - centre
    mean = np.einsum("mk,mkp->mp", shares, rows)
    information = 2 * PRIOR * np.eye(len(at)) - (mean * weights[:, None]).T @ mean
    weighted = (shares * weights[:, None]).reshape(-1, 1) * rows.reshape(-1, rows.shape[2])
    information += weighted.T @ rows.reshape(-1, rows.shape[2])
    gradient = np.einsum("mk,mkp->p", residual, rows) + 2 * PRIOR * off
    loss = -float(weights @ np.log(likelihood)) + PRIOR * float(off @ off)
    return loss, gradient, information


SLOPE_SPREAD, BIAS_SPREAD = 0.5, 2.0  # standard deviations of the prior on slope and bias
N_FOLDS = 5


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted calibration with its figures."""

    calibration: Calibration  # fitted on all mentions
    model: RankingModel | None  # likewise; none if only slope and bias were fitted
    before: Reliability  # figures of the previous calibration
    after: Reliability  # and of the new one, cross-fitted
    answers_before: Answers  # the answers that they were measured on
    answers_after: Answers
    n_nil: int  # number of NIL mentions
    n_found: int  # and of those whose entity was among the candidates
    nil_share: float  # share of NIL mentions, by weight


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
    """Fit slope, NIL bias and threshold, and coefficients. Raises CalibrationError if no threshold reaches the
    precision.

    Args:
        samples: Weighted mentions with their right answers, scored by the default coefficients.
        precision: Target precision of links, in (0, 1); None: the default threshold of what is fitted.
        before, model_before: The previous calibration, and coefficients if they were not the default ones.
        groups: Group of each mention, (n,). Mentions of one group, such as one entity, stay in one fold.
        shipped: Default coefficients to start from; None to fit slope and bias, and leave the coefficients alone.
    """
    numbers, group = np.unique(groups, return_inverse=True)
    fold = rng.permutation(np.arange(len(numbers)) % N_FOLDS)[group]
    folds = [np.flatnonzero(fold == i) for i in range(N_FOLDS) if (fold == i).any()]
    answers_before = (samples if model_before is None else samples.scored_by(model_before)).answers(before)
    by_default, calibration, model = samples.answers(Calibration()), Calibration(), None
    if shipped is None:
        answers = _cross_fitted(samples, folds, lambda others, part: part.answers(fit_slope_and_bias(others)))
        if _error(answers) < _error(by_default):
            calibration = fit_slope_and_bias(samples)
        else:
            answers = by_default
    else:
        answers = _answers_by_coefficients(samples, folds, shipped)
        # A base that has no evidence against the default ranking keeps it.
        if loses_first := _first_right(answers) < _first_right(by_default):
            answers = _answers_by_coefficients(samples, folds, shipped, keeps_ranking=True)
        model = fit_coefficients(samples, shipped, keeps_ranking=loses_first)
    threshold = DEFAULT_THRESHOLD if precision is None else _threshold(answers, precision)
    after = measure(answers, threshold, rng=rng)
    if precision is not None:
        coverage, reached = _coverage_cross_fitted(answers, folds, precision)
        after = replace(after, coverage=coverage, precision=reached)
    return Fit(
        calibration=replace(calibration, threshold=threshold),
        model=model,
        before=measure(answers_before, before.threshold, rng=rng),
        after=after,
        answers_before=answers_before,
        answers_after=answers,
        n_nil=int(samples.is_nil.sum()),
        n_found=int(samples.is_found.sum()),
        nil_share=samples.nil_share,
    )


def _threshold(answers: Answers, precision: float) -> float:
    threshold = threshold_for_precision(answers, precision, highest=HIGHEST_THRESHOLD)
    if threshold is None:
        best = best_precision(answers, highest=HIGHEST_THRESHOLD)
        raise CalibrationError(
            f"No threshold gives links of precision {precision:g} on these {len(answers):,} mentions; the best one "
            f"gives {best:.3f}. Use a lower precision, or more pairs.",
            option="precision",
        )
    return threshold


def fit_slope_and_bias(samples: Samples) -> Calibration:
    """The most likely slope and bias, by Fisher scoring; the threshold stays at its default. Mentions that a rule
    decides do not count: their probability does not depend on slope and bias.
    """
    samples = samples.undecided()
    if not len(samples):
        return Calibration()
    at = minimise(
        lambda at: _loss(samples, at),
        np.array([1.0, 0.0]),
        lowest=np.array([0.05, -np.inf]),
        highest=np.array([np.inf, np.inf]),
        tolerance=1e-9 * float(samples.weights.sum()),
    )
    return Calibration(float(at[0]), float(at[1]))


def _loss(samples: Samples, at: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Negative log posterior of slope and bias, its gradient, (2,), and its Fisher information, (2, 2). For an outcome
    y with probability p, d log likelihood / dp = (y - p) / (p (1 - p)), and the Fisher information of p is 1 / (p (1 -
    p)); the chain rule through dp / d(slope, bias) gives the sums below.
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
        p = np.clip(probability, 1e-12, 1 - 1e-12)  # finite logarithms
        loss -= float(samples.weights @ (outcome * np.log(p) + (1 - outcome) * np.log1p(-p)))
        gradient = gradient + (samples.weights * (p - outcome) / (p * (1 - p))) @ slopes
        information = information + (slopes * (samples.weights / (p * (1 - p)))[:, None]).T @ slopes
    return loss, gradient, information


def _answers_by_coefficients(
    samples: Samples, folds: list[IntArray], shipped: RankingModel, *, keeps_ranking: bool = False
) -> Answers:
    """Answers for each fold by coefficients of the other folds, in the order of `samples`."""

    def answers(others: Samples, part: Samples) -> Answers:
        return part.scored_by(fit_coefficients(others, shipped, keeps_ranking=keeps_ranking)).answers(Calibration())

    return _cross_fitted(samples, folds, answers)


def _cross_fitted(samples: Samples, folds: list[IntArray], answers: Callable[[Samples, Samples], Answers]) -> Answers:
    """The answers for each fold by what the other folds tell, in the order of `samples`."""
    parts = [answers(samples.take(np.setdiff1d(np.arange(len(samples)), rows)), samples.take(rows)) for rows in folds]
    return Answers.joined(parts).take(np.argsort(np.concatenate(folds)))


def _first_right(answers: Answers) -> float:
    """Weight of the mentions whose first candidate is right."""
    return float(answers.weights @ answers.first_correct)


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
