"""Batches of phrase pairs: runs of alphabetical neighbours from several sources, in fixed proportions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.augment import augment
from training.sources import Example

Vary = Callable[[str, random.Random], str]


@dataclass(frozen=True, slots=True)
class Source:
    """Examples in alphabetical order, and their share of each batch."""

    examples: Sequence[Example]
    weight: float


@dataclass(frozen=True, slots=True)
class PairBatch:
    """One batch.

    Attributes:
        anchors, positives: n phrases each.
        same: (n, n) bool; true where two pairs mean one entity or share a string.
        allowed: (n, 95) bool; the phrase types that are right, none where unknown.
    """

    anchors: list[str]
    positives: list[str]
    same: Tensor
    allowed: Tensor


def batches(
    sources: Sequence[Source], *, n_pairs: int, run: int, rng: random.Random, vary: Vary = augment
) -> Iterator[PairBatch]:
    """Endless batches.

    Args:
        sources: Where the examples come from.
        n_pairs: Pairs a batch.
        run: Alphabetical neighbours drawn together: they are each other's hard negatives.
        rng: Decides everything.
        vary: Makes a variant of a phrase.
    """
    weights = [source.weight for source in sources]
    while True:
        drawn: list[Example] = []
        while len(drawn) < n_pairs:
            examples = rng.choices(sources, weights)[0].examples
            start = rng.randrange(max(1, len(examples) - run))
            drawn.extend(examples[start : start + run])
        yield _batch(drawn[:n_pairs], rng, vary)


def _batch(examples: Sequence[Example], rng: random.Random, vary: Vary) -> PairBatch:
    """Draw a positive for each example, and compare entities and strings."""
    anchors, positives = [], []
    for example in examples:
        anchor, positive = _pair(example, rng, vary)
        anchors.append(anchor)
        positives.append(positive)
    allowed = torch.zeros(len(examples), len(PHRASE_TYPES), dtype=torch.bool)
    for i, example in enumerate(examples):
        allowed[i, list(example.allowed)] = True
    same = _shares([e.entity for e in examples])
    anchor_keys, positive_keys = _folded(anchors), _folded(positives)
    for left in (anchor_keys, positive_keys):
        for right in (anchor_keys, positive_keys):
            same |= torch.tensor([[a == b for b in right] for a in left])
    return PairBatch(anchors, positives, same, allowed)


def _pair(example: Example, rng: random.Random, vary: Vary) -> tuple[str, str]:
    """Two names of one entity; an augmented copy where there is only one, or now and then anyway."""
    if not example.others or rng.random() < 0.15:
        return example.name, vary(example.name, rng)
    names = (example.name, *example.others)
    first, second = rng.sample(range(len(names)), 2)
    positive = names[second]
    return names[first], vary(positive, rng) if rng.random() < 0.15 else positive


def _shares(keys: Sequence[str]) -> Tensor:
    """(n, n) bool: equal keys."""
    index = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    ids = torch.tensor([index[key] for key in keys])
    return ids[:, None] == ids[None, :]


def _folded(names: Sequence[str]) -> list[str]:
    return ["".join(c for c in name.casefold() if c.isalnum()) or name for name in names]
