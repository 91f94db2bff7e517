"""Fitting the coefficients of `ranking` on to one base: a multinomial logistic regression with a strong prior.

    loss = - sum over mentions of log P(right entity, or NIL)  +  PRIOR * |scale * (coefficient - shipped)|^2

The prior keeps what comes with the package where a base says nothing: with a hundred mentions little moves. Features
are scaled by their deviation among the candidates. A coefficient keeps the sign that its feature's meaning asks for, or
becomes 0. A mention whose entity was not found counts as NIL; what that does to the probability of NIL is put right by
the slope and bias that are fitted afterwards.
"""

from __future__ import annotations

import numpy as np

from pearl_qdrant.linking.calibration.metrics import FloatArray
from pearl_qdrant.linking.calibration.newton import minimise
from pearl_qdrant.linking.calibration.samples import Samples
from pearl_qdrant.linking.ranking.model import FEATURES, NEGATIVE, NIL_FEATURES, UNFITTED, RankingModel

PRIOR = 4.0
"""Searched with 100 and 400 mentions of 23 bases: 2 to 64 differ little."""

_LEAST_SCALE = 0.05
"""Of a feature that hardly differs between the candidates of this base."""

_ENOUGH = 1e-7


def fit_coefficients(samples: Samples, shipped: RankingModel, *, prior: float = PRIOR) -> RankingModel:
    """The most likely coefficients by projected Newton steps.

    Args:
        samples: ScoredMention mentions with their right answers, weighed.
        shipped: What the prior is around.
        prior: Its strength.
    """
    n = len(FEATURES)
    present = np.isfinite(samples.logits)
    scale = np.maximum(samples.features[present].std(axis=0), _LEAST_SCALE) if present.any() else np.ones(n)
    scale = np.concatenate([scale, np.ones(len(NIL_FEATURES))])
    prior_at = np.concatenate([shipped.features, shipped.nil_features]) * scale
    lowest = np.full(len(scale), -np.inf)
    highest = np.full(len(scale), np.inf)
    for i, name in enumerate(FEATURES):
        if name in UNFITTED:
            lowest[i] = highest[i] = prior_at[i]
        elif name in NEGATIVE:
            highest[i] = 0.0
        else:
            lowest[i] = 0.0

    rows = _rows(samples, present, scale)
    fitted = minimise(
        lambda at: _loss(samples, rows, at, prior_at, prior),
        np.clip(prior_at, lowest, highest),
        lowest=lowest,
        highest=highest,
        enough=_ENOUGH * float(samples.weights.sum()),
    )
    fitted = fitted / scale
    return RankingModel(fitted[:n], fitted[n:])


def _rows(samples: Samples, present: FloatArray, scale: FloatArray) -> FloatArray:
    """Candidates, and NIL last: (m, k + 1, features and NIL features), scaled."""
    m, k = samples.logits.shape
    n = len(FEATURES)
    rows = np.zeros((m, k + 1, len(scale)), dtype=np.float32)
    rows[:, :k, :n] = np.where(present[:, :, None], samples.features, 0.0) / scale[:n]
    rows[:, k, n:] = samples.nil_features
    return rows


def _loss(
    samples: Samples, rows: FloatArray, at: FloatArray, prior_at: FloatArray, prior: float
) -> tuple[float, FloatArray, FloatArray]:
    """Negative log posterior, its gradient, (p,), and its Fisher information, (p, p)."""
    logits = rows @ at
    logits[:, :-1][~np.isfinite(samples.logits)] = -np.inf
    logits -= logits.max(axis=1, keepdims=True)
    odds = np.exp(logits)
    shares = odds / odds.sum(axis=1, keepdims=True)
    right = np.concatenate([samples.is_right, ~samples.is_found[:, None]], axis=1)
    hits = shares * right
    likelihood = np.maximum(hits.sum(axis=1), 1e-300)
    residual = (shares - hits / likelihood[:, None]) * samples.weights[:, None]
    off = at - prior_at
    mean = np.einsum("mk,mkp->mp", shares, rows)
    information = 2 * prior * np.eye(len(at)) - (mean * samples.weights[:, None]).T @ mean
    weighed = (shares * samples.weights[:, None]).reshape(-1, 1) * rows.reshape(-1, rows.shape[2])
    information += weighed.T @ rows.reshape(-1, rows.shape[2])
    gradient = np.einsum("mk,mkp->p", residual, rows) + 2 * prior * off
    loss = -float(samples.weights @ np.log(likelihood)) + prior * float(off @ off)
    return loss, gradient, information
