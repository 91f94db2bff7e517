"""Fits the coefficients of the ranking to one base: a multinomial logistic regression with a strong prior.

    loss = - sum over mentions of weight * log P(right entity, or NIL)  +  PRIOR * |scale * (coefficient - shipped)|^2

The prior keeps the default coefficients where a base has no evidence: a hundred mentions move them little. Features are
scaled by their standard deviation among the candidates. A coefficient keeps the sign that its feature's meaning
requires, or becomes 0. A mention whose entity was not found counts as NIL; the slope and bias, which are fitted later,
correct the effect on the probability of NIL.
"""

from __future__ import annotations

import numpy as np

from pearl_qdrant.linking.calibration.metrics import FloatArray
from pearl_qdrant.linking.calibration.newton import minimise
from pearl_qdrant.linking.calibration.samples import Samples
from pearl_qdrant.linking.ranking.model import FEATURES, NEGATIVE, NIL_FEATURES, UNFITTED, UNSIGNED, RankingModel

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
    n = len(FEATURES)
    present = np.isfinite(samples.logits)
    scale = np.maximum(samples.features[present].std(axis=0), _LEAST_SCALE) if present.any() else np.ones(n)
    scale = np.concatenate([scale, np.ones(len(NIL_FEATURES))])
    centre = np.concatenate([shipped.features, shipped.nil_features]) * scale
    lowest = np.full(len(scale), -np.inf)
    highest = np.full(len(scale), np.inf)
    for i, name in enumerate(FEATURES):
        if name in UNFITTED:
            lowest[i] = highest[i] = centre[i]
        elif name in NEGATIVE:
            highest[i] = 0.0
        elif name not in UNSIGNED:
            lowest[i] = 0.0

    rows = _rows(samples, present, scale)
    fitted = minimise(
        lambda at: _loss(samples, rows, at, centre, prior),
        np.clip(centre, lowest, highest),
        lowest=lowest,
        highest=highest,
        tolerance=_TOLERANCE * float(samples.weights.sum()),
    )
    fitted = fitted / scale
    return RankingModel(fitted[:n], fitted[n:])


def _rows(samples: Samples, present: FloatArray, scale: FloatArray) -> FloatArray:
    """Scaled features of the candidates, and of NIL in the last row: (m, k + 1, features and NIL features)."""
    m, k = samples.logits.shape
    n = len(FEATURES)
    rows = np.zeros((m, k + 1, len(scale)), dtype=np.float32)
    rows[:, :k, :n] = np.where(present[:, :, None], samples.features, 0.0) / scale[:n]
    rows[:, k, n:] = samples.nil_features
    return rows


def _loss(
    samples: Samples, rows: FloatArray, at: FloatArray, centre: FloatArray, prior: float
) -> tuple[float, FloatArray, FloatArray]:
    """Negative log posterior, its gradient, (p,), and its Fisher information, (p, p).

    With the softmax shares s of a mention's rows x, and h = shares of the right rows, normalised:

        gradient     = sum over mentions of weight * sum_k (s_k - h_k) x_k
        information  = sum over mentions of weight * (sum_k s_k x_k x_k^T - m m^T),   m = sum_k s_k x_k

    plus the terms of the prior.
    """
    logits = rows @ at
    logits[:, :-1][~np.isfinite(samples.logits)] = -np.inf  # padding of mentions with fewer candidates
    logits -= logits.max(axis=1, keepdims=True)  # keeps exp from overflowing
    odds = np.exp(logits)
    shares = odds / odds.sum(axis=1, keepdims=True)
    right = np.concatenate([samples.is_right, ~samples.is_found[:, None]], axis=1)
    hits = shares * right
    likelihood = np.maximum(hits.sum(axis=1), 1e-300)  # keeps the logarithm finite
    residual = (shares - hits / likelihood[:, None]) * samples.weights[:, None]
    off = at - centre
    mean = np.einsum("mk,mkp->mp", shares, rows)
    information = 2 * prior * np.eye(len(at)) - (mean * samples.weights[:, None]).T @ mean
    weighted = (shares * samples.weights[:, None]).reshape(-1, 1) * rows.reshape(-1, rows.shape[2])
    information += weighted.T @ rows.reshape(-1, rows.shape[2])
    gradient = np.einsum("mk,mkp->p", residual, rows) + 2 * prior * off
    loss = -float(samples.weights @ np.log(likelihood)) + prior * float(off @ off)
    return loss, gradient, information
