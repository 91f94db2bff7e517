"""Scores of predicted entity types: accuracy, and F1 by type."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TypeScores:
    """Scores on a set of names.

    Attributes:
        accuracy: Share of names whose predicted entity type is one of theirs, in [0, 1].
        macro_f1: Mean F1 over the types that occur, in [0, 1].
        f1: F1 by type.
        n: Number of names.
        support: Number of names by type.
    """

    accuracy: float
    macro_f1: float
    f1: dict[str, float]
    n: int
    support: dict[str, int]


def resolve_types(predicted: Sequence[str], types: Sequence[Collection[str]]) -> list[str]:
    """The type that counts for each name: the predicted one if it is correct, else the first correct one by name."""
    return [p if p in right else min(right) for p, right in zip(predicted, types, strict=True)]


def score_predictions(predicted: Sequence[str], types: Sequence[Collection[str]]) -> TypeScores:
    """Score predicted types.

    Args:
        predicted: The predicted type of each name.
        types: The correct types of each name, at least one.
    """
    actual = resolve_types(predicted, types)
    f1 = {}
    for kind in sorted(set(actual)):
        hits = sum(p == a == kind for p, a in zip(predicted, actual, strict=True))
        f1[kind] = 2 * hits / (predicted.count(kind) + actual.count(kind))
    n_right = sum(p == a for p, a in zip(predicted, actual, strict=True))
    support = {kind: actual.count(kind) for kind in f1}
    return TypeScores(n_right / len(predicted), sum(f1.values()) / len(f1), f1, len(predicted), support)
