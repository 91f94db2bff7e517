"""How well a type head knows names that it never saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pearl_qdrant.phrase_types import ENTITY_TYPES, LEXICAL_CLASSES


@dataclass(frozen=True, slots=True)
class TypeScores:
    """Scores on a set of names.

    Attributes:
        accuracy: Share of names whose predicted entity type is one of theirs, in [0, 1].
        macro_f1: Mean F1 over the types that occur, in [0, 1].
        f1: By type.
        n: Names.
    """

    accuracy: float
    macro_f1: float
    f1: dict[str, float]
    n: int


def score_types(logits: Tensor, types: Sequence[set[str]]) -> TypeScores:
    """Score the argmax of the marginal over lexical classes.

    Args:
        logits: (n, 95).
        types: The right entity types of each name, at least one; any of them counts as right.
    """
    probabilities = logits.softmax(dim=1).reshape(-1, len(LEXICAL_CLASSES), len(ENTITY_TYPES))
    predicted = [ENTITY_TYPES[i] for i in torch.argmax(probabilities.sum(1), dim=1).tolist()]
    # A name of several types counts for the one predicted, or for the first by name.
    actual = [p if p in right else min(right) for p, right in zip(predicted, types, strict=True)]
    f1 = {}
    for kind in sorted(set(actual)):
        hits = sum(p == a == kind for p, a in zip(predicted, actual, strict=True))
        f1[kind] = 2 * hits / (predicted.count(kind) + actual.count(kind))
    n_right = sum(p == a for p, a in zip(predicted, actual, strict=True))
    return TypeScores(n_right / len(predicted), sum(f1.values()) / len(f1), f1, len(predicted))
