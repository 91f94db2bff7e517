"""Fit a type head: softmax regression on phrase vectors with the marginal type loss.

Cost: each name is encoded once; an epoch over 200,000 vectors takes a few seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pearl_qdrant.encoder.runtime.network import new_type_head
from training.finetune.losses import marginal_type_loss
from training.loop.training_loop import Objective, StepRecord, TrainingLoop


@dataclass(frozen=True, slots=True)
class HeadRecord(StepRecord):
    """Figures of one step.

    Attributes:
        loss: Marginal type loss, in nats.
    """

    loss: float


@dataclass(slots=True)
class HeadObjective(Objective):
    """The marginal type loss of a linear layer.

    Attributes:
        network: The layer.
        optimizer: Of its weights.
        vectors, allowed: As for `fit_head`.
        draw: Draws the rows of a batch.
        steps: Of the whole run.
    """

    network: nn.Module
    optimizer: torch.optim.Optimizer
    vectors: Tensor
    allowed: Tensor
    draw: Callable[[], Tensor]
    steps: int
    record: type[StepRecord] = HeadRecord

    def batches(self, steps: range) -> Iterator[Tensor]:
        """Draw the rows."""
        return (self.draw() for _ in steps)

    def rate(self, step: int, factor: float) -> float:
        """Half a cosine from the peak to zero."""
        peak: float = self.optimizer.defaults["lr"]
        return peak * (1 + math.cos(math.pi * (step - 1) / self.steps)) / 2

    def backward(self, step: int, batch: Tensor) -> dict[str, Tensor]:
        """Add the gradient of a batch."""
        loss = marginal_type_loss(self.network(self.vectors[batch]), self.allowed[batch])
        torch.autograd.backward(loss)
        return {"loss": loss.detach()}


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
    steps = max(1, epochs * len(vectors) // batch)

    optimizer = torch.optim.AdamW(head.parameters(), lr=learning_rate, weight_decay=weight_decay)

    def draw() -> Tensor:
        return torch.multinomial(weights, batch, replacement=True, generator=generator)

    objective = HeadObjective(head, optimizer, vectors, allowed, draw, steps)
    TrainingLoop(name="head", objective=objective, steps=steps, progress=False).run()
    return head.eval()
