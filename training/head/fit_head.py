"""Fit a type head: softmax regression on phrase vectors with the marginal type loss.

Cost: each name is encoded once; an epoch over 200,000 vectors takes a few seconds.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pearl_qdrant.encoder.runtime.network import new_type_head
from training.finetune.losses import marginal_type_loss


def fit_head(
    vectors: Tensor,
    allowed: Tensor,
    *,
    weights: Tensor,
    epochs: int,
    batch: int = 1024,
    learning_rate: float = 3e-3,
    weight_decay: float = 1e-3,
    generator: torch.Generator,
) -> nn.Linear:
    """Fit W of Eq. 1.

    Args:
        vectors: Phrase vectors before normalisation, (n, dim).
        allowed: (n, 95) bool, the phrase types that are right.
        weights: (n,), relative frequency with which an example is drawn; balances rare types.
        epochs: Passes: n examples are drawn per epoch.
        batch: Examples per step.
        learning_rate: Peak; falls to zero as a cosine.
        weight_decay: Weight decay of AdamW.
        generator: Determines the order and the initial weights.

    Returns:
        The head, dim -> 95, without a bias.
    """
    head = new_type_head(vectors.shape[1])
    nn.init.normal_(head.weight, std=0.02, generator=generator)
    optimizer = torch.optim.AdamW(head.parameters(), lr=learning_rate, weight_decay=weight_decay)
    steps = max(1, epochs * len(vectors) // batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        rows = torch.multinomial(weights, batch, replacement=True, generator=generator)
        loss = marginal_type_loss(head(vectors[rows]), allowed[rows])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        schedule.step()
    return head.eval()
