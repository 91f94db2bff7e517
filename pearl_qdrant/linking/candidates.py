"""Candidates for mentions: search in every collection, folded to entities by their best name.

Dense search only, for now. A mention that the tokenizer cannot see (an emoji, an unknown script) has no meaningful
vector; its candidates are the entities that bear exactly its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.records import Candidate
from pearl_qdrant.store.protocol import Collection, ScoredName

NAMES_PER_ENTITY = 5
"""Names fetched for each entity wanted: an entity's aliases lie close together and would crowd out others."""

SAME_SCORE = 1e-6
"""Scores closer than this are equal: cosines of one and the same name differ by rounding."""


def find_candidates(
    encoder: Encoder,
    collections: Sequence[Collection],
    mentions: Sequence[str],
    *,
    limit: int,
    types: Sequence[str] = (),
) -> list[list[Candidate]]:
    """Candidates of each mention, best first, without probabilities.

    Args:
        encoder: The model that made the collections.
        collections: Where to look; an entity is told apart by base and id.
        mentions: m strings.
        limit: Entities a mention at most.
        types: Keep only entities of these types; empty for all.

    Returns:
        m lists.
    """
    encoded = encoder.encode(mentions)
    found: list[list[ScoredName]] = [[] for _ in mentions]
    for collection in collections:
        nearest = collection.search(encoded.vectors, limit=limit * NAMES_PER_ENTITY, types=types)
        for names, more in zip(found, nearest, strict=True):
            names.extend(more)
    results = [_fold(names, limit) for names in found]
    for i, mention in enumerate(mentions):
        if not encoded.encodable[i] and mention.strip():
            results[i] = _exact(collections, mention.strip(), limit=limit, types=types)
    return results


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
        for point in collection.find(names=[name], types=types, limit=limit * NAMES_PER_ENTITY)
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
