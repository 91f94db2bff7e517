"""Fits the coefficients of the ranking to one base: two logistic regressions with a strong prior.

    ranking     over the candidates of mentions whose entity is among them: which one is right
    decision    over all mentions, by the features of the first candidate: is the entity among the candidates
    loss        - sum over mentions of weight * log P(right answer)  +  PRIOR * |scale * (coefficient - shipped)|^2

The prior keeps the default coefficients where a base has no evidence: a hundred mentions move them little. Features are
scaled by their standard deviation among the candidates. A coefficient keeps the sign that its feature's meaning
requires, or becomes 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pearl_qdrant.linking.calibration.metrics import FloatArray
from pearl_qdrant.linking.calibration.newton import minimise
from pearl_qdrant.linking.calibration.samples import Samples
from pearl_qdrant.linking.ranking.features import FEATURES, NIL_FEATURES, SIGNS, UNFITTED
from pearl_qdrant.linking.ranking.model import RankingModel, all_margins

PRIOR = 4.0
"""Chosen with 100 and 400 mentions of 23 bases; values from 2 to 64 differ little."""

_LEAST_SCALE = 0.05
"""Scale of a feature that is nearly constant among the candidates of this base."""

_TOLERANCE = 1e-7  # per unit of weight


def fit_coefficients(samples: Samples, shipped: RankingModel, *, prior: float = PRIOR) -> RankingModel:
    """The most likely coefficients (maximum a posteriori).

    Args:
        samples: Weighted mentions with their right answers. Those that a rule decides do not count.
        shipped: Default coefficients, the centre of the prior.
        prior: Strength of the prior.
    """
    samples = samples.undecided()
    if not len(samples):
        return shipped
    present = np.isfinite(samples.logits)
    scale = np.maximum(samples.features[present].std(axis=0), _LEAST_SCALE) if present.any() else np.ones(len(FEATURES))
    ranking = _fit(_ranking_choices(samples, present), shipped.features, scale, prior)
    choices = _decision_choices(samples, present, ranking)
    centre = np.concatenate([shipped.decision, -shipped.nil_features])
    fitted = _fit(choices, centre, np.concatenate([scale, np.ones(len(NIL_FEATURES))]), prior)
    n = len(FEATURES)
    return RankingModel(ranking, fitted[:n], -fitted[n:])


@dataclass(frozen=True, slots=True)
class _Choices:
    """Mentions with the features of their choices.

    Attributes:
        rows: (m, k, p).
        present, is_right: (m, k); at least one choice of each mention is right.
        weights: (m,).
    """

    rows: FloatArray
    present: npt.NDArray[np.bool_]
    is_right: npt.NDArray[np.bool_]
    weights: FloatArray


def _ranking_choices(samples: Samples, present: npt.NDArray[np.bool_]) -> _Choices:
    """The candidates of the mentions whose entity is among them."""
    keep = samples.is_found
    rows = np.where(present[keep][:, :, None], samples.features[keep], 0.0)
    return _Choices(rows, present[keep], samples.is_right[keep], samples.weights[keep])


def _decision_choices(samples: Samples, present: npt.NDArray[np.bool_], ranking: FloatArray) -> _Choices:
    """For each mention: its entity is among the candidates, or, with features of 0, it is not."""
    logits = np.where(present, samples.features @ ranking, -np.inf)
    first = logits.argmax(axis=1)
    of_first = np.where(present.any(axis=1, keepdims=True), samples.features[np.arange(len(first)), first], 0.0)
    rows = np.zeros((len(first), 2, len(FEATURES) + len(NIL_FEATURES)))
    of_mention = all_margins(samples.nil_features, logits, samples.features)
    rows[:, 0] = np.concatenate([of_first, of_mention], axis=1)
    is_right = np.stack([samples.is_found, ~samples.is_found], axis=1)
    return _Choices(rows, np.ones_like(is_right), is_right, samples.weights)


def _fit(choices: _Choices, centre: FloatArray, scale: FloatArray, prior: float) -> FloatArray:
    """The most likely coefficients, (p,); the first are those of `FEATURES`, whose signs are kept."""
    if not len(choices.weights):
        return centre
    lowest, highest = np.full(len(scale), -np.inf), np.full(len(scale), np.inf)
    for i, name in enumerate(FEATURES):
        if name in UNFITTED:
            lowest[i] = highest[i] = centre[i] * scale[i]
        elif SIGNS[name] < 0:
            highest[i] = 0.0
        elif SIGNS[name] > 0:
            lowest[i] = 0.0
    scaled = replace(choices, rows=choices.rows / scale)
    fitted = minimise(
        lambda at: _loss(scaled, at, centre * scale, prior),
        np.clip(centre * scale, lowest, highest),
        lowest=lowest,
        highest=highest,
        tolerance=_TOLERANCE * float(choices.weights.sum()),
    )
    return fitted / scale


def _loss(choices: _Choices, at: FloatArray, centre: FloatArray, prior: float) -> tuple[float, FloatArray, FloatArray]:
    """Negative log posterior, its gradient, (p,), and its Fisher information, (p, p).

    With the softmax shares s of a mention's rows x, and h = shares of the right rows, normalised:

        gradient     = sum over mentions of weight * sum_k (s_k - h_k) x_k
        information  = sum over mentions of weight * (sum_k s_k x_k x_k^T - m m^T),   m = sum_k s_k x_k

    plus the terms of the prior.
    """
    rows, weights = choices.rows, choices.weights
    logits = np.where(choices.present, rows @ at, -np.inf)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = odds / odds.sum(axis=1, keepdims=True)
    hits = shares * choices.is_right
    likelihood = np.maximum(hits.sum(axis=1), 1e-300)  # keeps the logarithm finite
    residual = (shares - hits / likelihood[:, None]) * weights[:, None]
    off = at - centre
    mean = np.einsum("mk,mkp->mp", shares, rows)
    information = 2 * prior * np.eye(len(at)) - (mean * weights[:, None]).T @ mean
    weighted = (shares * weights[:, None]).reshape(-1, 1) * rows.reshape(-1, rows.shape[2])
    information += weighted.T @ rows.reshape(-1, rows.shape[2])
    gradient = np.einsum("mk,mkp->p", residual, rows) + 2 * prior * off
    loss = -float(weights @ np.log(likelihood)) + prior * float(off @ off)
    return loss, gradient, information
