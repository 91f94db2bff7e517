"""Agreement of two clusterings of the same names: pairwise, and B-cubed.

    pairwise precision    share of the pairs in one cluster that are of one entity
    pairwise recall       share of the pairs of one entity that are in one cluster
    B-cubed precision     mean over names of the share of its cluster that is of its entity
    B-cubed recall        mean over names of the share of its entity that is in its cluster

Source of B-cubed: Bagga and Baldwin 1998, "Entity-based cross-document coreferencing using the vector space model".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Agreement:
    """Precision, recall and F1 of pairs and of B-cubed, each in [0, 1]; large clusters of two entities.

    Attributes:
        pair_precision, pair_recall, pair_f1: Of pairs of names.
        b_precision, b_recall, b_f1: B-cubed.
        mixed: Clusters of more than 50 names with two entities of at least 10 names each.
    """

    pair_precision: float
    pair_recall: float
    pair_f1: float
    b_precision: float
    b_recall: float
    b_f1: float
    mixed: int


def agreement(gold: Sequence[Hashable], found: Sequence[Hashable]) -> Agreement:
    """Compare clusterings.

    Args:
        gold: The entity of each of n names.
        found: The cluster of each.
    """
    both = Counter(zip(gold, found, strict=True))
    of_gold, of_found = Counter(gold), Counter(found)
    pairs = sum(_pairs(n) for n in both.values())
    pair_precision = pairs / max(sum(map(_pairs, of_found.values())), 1)
    pair_recall = pairs / max(sum(map(_pairs, of_gold.values())), 1)
    n_names = max(len(gold), 1)
    b_precision = sum(n * n / of_found[cluster] for (_, cluster), n in both.items()) / n_names
    b_recall = sum(n * n / of_gold[entity] for (entity, _), n in both.items()) / n_names
    large: Counter[Hashable] = Counter(
        cluster for (_, cluster), n in both.items() if n >= 10 and of_found[cluster] > 50
    )
    mixed = sum(n > 1 for n in large.values())
    return Agreement(
        pair_precision,
        pair_recall,
        _f1(pair_precision, pair_recall),
        b_precision,
        b_recall,
        _f1(b_precision, b_recall),
        mixed,
    )


def _pairs(n: int) -> int:
    return n * (n - 1) // 2


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / max(precision + recall, 1e-12)
