"""Candidates for mentions: search in every collection, folded to entities by their best name.

Dense search only, for now. A mention that the tokenizer cannot see (an emoji, an unknown script) has no meaningful
vector; its candidates are the entities that bear exactly its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pearl_qdrant.encoder.protocol import Encoded, FloatArray
from pearl_qdrant.records import Candidate
from pearl_qdrant.store.protocol import Collection, ScoredName

EXTRA_NAMES = 6
"""Names fetched beyond the entities wanted, since aliases of one entity lie close together. Where they were not enough,
`MORE_NAMES` times as many are fetched: reading payloads is half the time of a search."""

MORE_NAMES = 6

SAME_SCORE = 1e-6
"""Scores closer than this are equal: cosines of one and the same name differ by rounding."""


def find_candidates(
    collections: Sequence[Collection],
    mentions: Sequence[str],
    encoded: Encoded,
    *,
    limit: int,
    types: Sequence[str] = (),
) -> list[list[Candidate]]:
    """Candidates of each mention, best first, without probabilities.

    Args:
        collections: Where to look; an entity is told apart by base and id.
        mentions: m strings.
        encoded: Of the mentions, by the model that made the collections.
        limit: Entities a mention at most.
        types: Keep only entities of these types; empty for all.

    Returns:
        m lists.
    """
    found: list[list[ScoredName]] = [[] for _ in mentions]
    for collection in collections:
        for names, nearest in zip(found, _search(collection, encoded.vectors, limit, types), strict=True):
            names.extend(nearest)
    results = [_fold(names, limit) for names in found]
    for i, mention in enumerate(mentions):
        if not encoded.encodable[i] and mention.strip():
            results[i] = _exact(collections, mention.strip(), limit=limit, types=types)
    return results


def _search(collection: Collection, vectors: FloatArray, limit: int, types: Sequence[str]) -> list[list[ScoredName]]:
    """The nearest names of each mention, enough of them for `limit` entities if there are so many."""
    wanted = limit + EXTRA_NAMES
    found = collection.search(vectors, limit=wanted, types=types)
    short = [i for i, names in enumerate(found) if len(names) == wanted and _n_entities(names) <= limit]
    if short:
        again = collection.search(vectors[short], limit=wanted * MORE_NAMES, types=types)
        for i, names in zip(short, again, strict=True):
            found[i] = names
    return found


def _n_entities(names: Iterable[ScoredName]) -> int:
    return len({(s.point.kb, s.point.entity_id) for s in names})


def _fold(names: Iterable[ScoredName], limit: int) -> list[Candidate]:
    """One candidate an entity, by its best name; equal scores in the order of base and id."""
    ordered = sorted(names, key=lambda s: (-s.score, s.point.kb, s.point.entity_id, not s.point.is_canonical))
    best: dict[tuple[str, str], ScoredName] = {}
    for scored in ordered:
        best.setdefault((scored.point.kb, scored.point.entity_id), scored)
        if len(best) == limit + 1:
            break
    return _mark_ties([_candidate(s, dense_score=s.score) for s in best.values()])[:limit]


def _exact(collections: Sequence[Collection], name: str, *, limit: int, types: Sequence[str]) -> list[Candidate]:
    """The entities that bear exactly this name."""
    scored = [
        ScoredName(point, 1.0)
        for collection in collections
        for point in collection.find(names=[name], types=types, limit=limit * MORE_NAMES)
    ]
    unique = {(s.point.kb, s.point.entity_id): s for s in reversed(scored)}
    ordered = [unique[key] for key in sorted(unique)]
    return _mark_ties([_candidate(s, dense_score=None) for s in ordered])[:limit]


def _candidate(scored: ScoredName, *, dense_score: float | None) -> Candidate:
    point = scored.point
    return Candidate(
        entity_id=point.entity_id,
        kb=point.kb,
        canonical_name=point.canonical_name,
        name=point.name,
        kb_types=point.kb_types,
        types=point.types,
        phrase_type=point.phrase_type,
        type_probability=point.type_probability,
        description=point.description,
        dense_score=dense_score,
        score=scored.score,
    )


def _mark_ties(candidates: list[Candidate]) -> list[Candidate]:
    """Mark the candidates at the top that nothing separates: equal score."""
    if len(candidates) < 2 or candidates[0].score - candidates[1].score > SAME_SCORE:
        return candidates
    top = candidates[0].score
    return [replace(c, tie=True) if top - c.score <= SAME_SCORE else c for c in candidates]
