"""Fitting the linker's probabilities on mentions whose entity is known, or known to be absent.

Two coefficients, by maximum likelihood of the outcome (the first candidate is right, or it is not) under the softmax
over candidates and NIL of `pearl_qdrant.linking.calibration`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pearl_qdrant.linking.calibration import Calibration

_STEPS = 200


def nearest_scores(
    mentions: Tensor, names: Tensor, *, gold: Sequence[str], names_of: Sequence[str], limit: int
) -> tuple[list[list[float]], list[bool]]:
    """Cosines of the nearest names of each mention, best first, and whether the best one is the gold name.

    Args:
        mentions: Unit vectors, (m, dim).
        names: Unit vectors, (n, dim).
        gold: The right name of each mention; may be absent from `names_of`.
        names_of: The names, n.
        limit: How many names a mention.
    """
    scores, right = [], []
    for start in range(0, len(mentions), 256):
        best, where = (mentions[start : start + 256] @ names.T).topk(limit, dim=1)
        scores += best.tolist()
        right += [
            names_of[first].casefold() == gold[start + i].casefold() for i, first in enumerate(where[:, 0].tolist())
        ]
    return scores, right


def fit_calibration(scores: Sequence[Sequence[float]], right: Sequence[bool]) -> Calibration:
    """Slope and intercept that make the first candidate's probability that of being right.

    Args:
        scores: Cosines of each mention's candidates, best first, m lists of one length.
        right: Whether the first candidate is the entity meant, m.

    Raises:
        ValueError: If all outcomes are the same: there is nothing to tell apart.
    """
    if all(right) or not any(right):
        raise ValueError("calibration needs mentions that were linked right and others that were not")
    values = torch.tensor(scores, dtype=torch.float64)
    outcome = torch.tensor(right)
    parameters = torch.tensor([20.0, -14.0], dtype=torch.float64, requires_grad=True)
    optimizer: Any = torch.optim.LBFGS([parameters], max_iter=_STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        logits = parameters[0] * values + parameters[1]
        with_nil = torch.cat([torch.zeros(len(values), 1, dtype=torch.float64), logits], dim=1)
        first = with_nil.log_softmax(dim=1)[:, 1]
        # log(1 - p), kept finite where p rounds to 1.
        loss = -torch.where(outcome, first, torch.log1p(-first.exp().clamp(max=1 - 1e-12))).mean()
        torch.autograd.backward(loss)
        return loss

    optimizer.step(closure)
    slope, intercept = parameters.tolist()
    return Calibration(slope, intercept)
