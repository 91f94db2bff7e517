"""Find the rows of a batch that mean the same, so that they are not used as negatives.

    by label      pair i and pair j are of one entity, or share a string after case and punctuation folding
    by a teacher  another encoder finds the two closer than the row's own pair (GIST)

Source: SapBERT (Liu et al. 2021) for labels, GISTEmbed (Solatorio 2024) for the teacher.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from training.data.batches import NO_KEY


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of n pairs and m hard negatives, as in `PairBatch`, as tensors of int64.

    Attributes:
        entities, anchors, positives: (n,).
        negative_entities, negatives: (m,).
    """

    entities: Tensor
    anchors: Tensor
    positives: Tensor
    negative_entities: Tensor
    negatives: Tensor


def same_entity(keys: Keys) -> Tensor:
    """Return (2n, 2n + m) bool: row and column are names of one known entity, or one pair."""
    n = len(keys.entities)
    known = keys.entities != NO_KEY
    pairs = (keys.entities[:, None] == keys.entities[None, :]) & known[:, None]
    pairs = pairs | torch.eye(n, dtype=torch.bool, device=pairs.device)
    negatives = (keys.entities[:, None] == keys.negative_entities[None, :]) & known[:, None]
    return _expand(pairs, negatives)


def same_meaning(keys: Keys) -> Tensor:
    """Return (2n, 2n + m) bool: row and column are of one entity, or their pairs share a string."""
    strings = (keys.anchors, keys.positives)
    pairs = torch.zeros(len(keys.entities), len(keys.entities), dtype=torch.bool, device=keys.entities.device)
    negatives = torch.zeros(len(keys.entities), len(keys.negatives), dtype=torch.bool, device=keys.entities.device)
    for left in strings:
        for right in strings:
            pairs |= left[:, None] == right[None, :]
        negatives |= left[:, None] == keys.negatives[None, :]
    return same_entity(keys) | _expand(pairs, negatives)


def closer_than_positive(vectors: Tensor, n_pairs: int, *, floor: float = 0.0) -> Tensor:
    """Return where a teacher finds a column closer to the row than the row's own partner.

    Args:
        vectors: The teacher's vectors, L2-normalised: n anchors, n positives, m negatives, (2n + m, dim).
        n_pairs: n.
        floor: With a cosine up to this value, two rows always count as different; 0 is GIST's own rule.

    Returns:
        (2n, 2n + m) bool.
    """
    rows = vectors[: 2 * n_pairs]
    cosines = rows @ vectors.T
    partner = torch.arange(2 * n_pairs, device=vectors.device).roll(n_pairs)
    own = cosines.gather(1, partner[:, None]).clamp(min=floor)
    return cosines > own


def _expand(pairs: Tensor, negatives: Tensor) -> Tensor:
    """Expand masks of pairs, (n, n), and of pairs and negatives, (n, m), to all rows and columns."""
    return torch.cat([pairs.repeat(2, 2), negatives.repeat(2, 1)], dim=1)
