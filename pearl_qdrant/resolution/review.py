"""Pairs of names whose merge is uncertain, for a person to decide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pearl_qdrant.resolution.names import Forms
from pearl_qdrant.resolution.nil_clusters import NearPair
from pearl_qdrant.resolution.pairs.reasons import DECIDED, EQUAL
from pearl_qdrant.resolution.records import ResolvedName, ReviewPair


def review_pairs(
    forms: Forms, names: Sequence[ResolvedName], near: Iterable[NearPair], band: tuple[float, float]
) -> list[ReviewPair]:
    """Merges with a probability in the band, and pairs that stayed apart with one; the most uncertain first.

    Of two nodes only their most probable pair is listed.

    Args:
        forms: All names.
        names: With their nodes.
        near: Pairs of forms with their probabilities.
        band: Lowest and highest probability.
    """
    low, high = band
    by_name = {(one.name, one.type): one for one in names}
    founders = {one.node_id: one for one in names if one.founded}
    pairs = [
        _merged(one, founders.get(one.node_id))
        for one in names
        if low <= one.probability < high and one.reason not in (EQUAL, DECIDED) and not one.founded
    ]
    best: dict[tuple[str, str], tuple[float, ResolvedName, ResolvedName]] = {}
    for pair in near:
        one, other = (by_name[forms.names[forms.first[form]]] for form in (pair.a, pair.b))
        if one.node_id == other.node_id or one.node_id in other.apart or other.node_id in one.apart:
            continue
        key = (min(one.node_id, other.node_id), max(one.node_id, other.node_id))
        if key not in best or best[key][0] < pair.probability:
            best[key] = (pair.probability, one, other)
    for probability, one, other in best.values():
        pairs.append(
            ReviewPair(
                *(one.name, one.type, one.node_id, other.name, other.type, other.node_id),
                *(probability, False, "stayed apart"),
            )
        )
    return sorted(pairs, key=lambda pair: (abs(pair.probability - 0.5), pair.name, pair.other))


def _merged(one: ResolvedName, founder: ResolvedName | None) -> ReviewPair:
    other, type_ = (one.canonical_name, "") if founder is None else (founder.name, founder.type)
    return ReviewPair(
        *(one.name, one.type, one.node_id, other, type_, one.node_id, one.probability, True, one.reason),
    )
