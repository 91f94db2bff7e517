"""Pairs of names that a person is asked about: those that were not certain enough, or have a doubt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pearl_qdrant.resolution.names import Forms
from pearl_qdrant.resolution.nil_clusters import NearPair
from pearl_qdrant.resolution.records import ResolvedName, ReviewPair


def review_pairs(forms: Forms, names: Sequence[ResolvedName], near: Iterable[NearPair]) -> tuple[ReviewPair, ...]:
    """Pairs in two nodes that may be one, those whose decision changes most first.

    Of two nodes only their most probable pair is listed.

    Args:
        forms: All names.
        names: With their nodes.
        near: Pairs of forms with their probabilities.
    """
    by_name = {(one.name, one.type): one for one in names}
    given = Counter[str]()
    for one in names:
        given[one.node_id] += one.count
    best: dict[tuple[str, str], ReviewPair] = {}
    for pair in near:
        one, other = (by_name[forms.names[forms.first[form]]] for form in (pair.a, pair.b))
        if one.node_id == other.node_id or one.node_id in other.apart or other.node_id in one.apart:
            continue
        key = (min(one.node_id, other.node_id), max(one.node_id, other.node_id))
        if key not in best or best[key].probability < pair.probability:
            best[key] = ReviewPair(
                *(one.name, one.type, one.node_id, other.name, other.type, other.node_id),
                *(pair.probability, pair.reason, min(given[one.node_id], given[other.node_id])),
            )
    return in_order_of_change(best.values())


def in_order_of_change(pairs: Iterable[ReviewPair]) -> tuple[ReviewPair, ...]:
    """Pairs by how many names a decision is expected to move: how often they were given, times the probability."""
    return tuple(sorted(pairs, key=lambda pair: (-pair.change * pair.probability, pair.name, pair.other)))
