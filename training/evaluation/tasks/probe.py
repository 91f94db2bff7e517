"""A small classifier on frozen vectors: one hidden layer with ReLU.

As in Phrase-BERT and PEARL: 256 hidden units, batches of 200, Adam, 70 % of the rows to train, 15 % to choose the
epoch, 15 % to test, at most 100 epochs, and early stopping after 5 epochs without improvement. Differences from PEARL's
code:

    learning rate   PEARL uses 1e-4 on raw vectors. Ours have length 1, for which 1e-4 would reach 100 epochs first.
    weights         PEARL tests the last weights; here, those that are best on the validation rows.
    small sets      PEARL has none. Here they have at least 20 batches, since early stopping would otherwise end a
                    classifier that still gives the most frequent label. For the same reason, an epoch with equal
                    accuracy counts as better if its loss is lower.

Cost: 20 to 30 epochs; an epoch over 16,000 pairs of 384-wide vectors takes half a second on one core.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from training.evaluation.outcome import FloatArray, IntArray

_HIDDEN = 256
_BATCH = 200
_MIN_BATCHES = 20
_MIN_BATCH = 16
_LEARNING_RATE = 1e-3
_PATIENCE = 5
_SHARES = (0.7, 0.85)
"""Shares of the rows at which training and validation end."""


@dataclass(frozen=True, slots=True)
class Split:
    """Rows for training, for choosing the epoch, and for testing."""

    train: IntArray
    validation: IntArray
    test: IntArray


def split_rows(groups: Sequence[Hashable], rng: np.random.Generator) -> Split:
    """Divide rows at random, 70 : 15 : 15; rows of one group stay together.

    Raises:
        ValueError: If there are fewer than three groups.
    """
    number: dict[Hashable, int] = {}
    group_of = np.array([number.setdefault(group, len(number)) for group in groups], dtype=np.int64)
    if len(number) < 3:
        raise ValueError(f"{len(number)} distinct items cannot be divided into training, validation and test")
    position = np.empty(len(number), dtype=np.int64)
    position[rng.permutation(len(number))] = np.arange(len(number))
    ends = [min(max(1, round(share * len(number))), len(number) - 1) for share in _SHARES]
    ends[0] = min(ends[0], ends[1] - 1) or 1
    part = np.searchsorted(ends, position[group_of], side="right")
    return Split(*(np.flatnonzero(part == i) for i in range(3)))


def probe(features: Tensor, labels: IntArray, split: Split, *, seed: int, max_epochs: int) -> FloatArray:
    """Train the classifier and test it.

    Args:
        features: (n, width).
        labels: (n,), numbered from 0.
        split: Rows of each part.
        seed: Seed of the initial weights and of the order of batches.
        max_epochs: Maximum number of passes over the training rows.

    Returns:
        1 for each correct test row, else 0.
    """
    generator = torch.Generator().manual_seed(seed)
    target = torch.from_numpy(labels)
    layers = _layers(features.shape[1], 1 + int(labels.max()), generator)
    optimizer = torch.optim.Adam(layers.parameters(), lr=_LEARNING_RATE, fused=True)
    train, validation, test = (torch.from_numpy(rows) for rows in (split.train, split.validation, split.test))
    size = min(_BATCH, max(_MIN_BATCH, len(train) // _MIN_BATCHES))
    best, best_state, since = (-1.0, 0.0), layers.state_dict(), 0
    for _ in range(max_epochs):
        for rows in torch.split(train[torch.randperm(len(train), generator=generator)], size):
            loss = nn.functional.cross_entropy(layers(features[rows]), target[rows])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        quality = _quality(layers(features[validation]).detach(), target[validation])
        since = 0 if quality > best else since + 1
        if since == 0:
            best, best_state = quality, {name: value.clone() for name, value in layers.state_dict().items()}
        elif since >= _PATIENCE:
            break
    layers.load_state_dict(best_state)
    with torch.no_grad():
        correct: FloatArray = (layers(features[test]).argmax(1) == target[test]).double().numpy()
    return correct


def _layers(width: int, n_labels: int, generator: torch.Generator) -> nn.Module:
    """Two linear layers, initialised as in torch, but from an explicit generator."""
    hidden, output = nn.Linear(width, _HIDDEN), nn.Linear(_HIDDEN, n_labels)
    with torch.no_grad():
        for layer in (hidden, output):
            bound = layer.in_features**-0.5
            layer.weight.uniform_(-bound, bound, generator=generator)
            layer.bias.uniform_(-bound, bound, generator=generator)
    return nn.Sequential(hidden, nn.ReLU(), output)


def _quality(logits: Tensor, target: Tensor) -> tuple[float, float]:
    """Accuracy, then negative loss; higher is better."""
    accuracy = (logits.argmax(1) == target).double().mean()
    return float(accuracy), -float(nn.functional.cross_entropy(logits, target))
