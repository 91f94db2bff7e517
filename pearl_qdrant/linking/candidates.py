"""Candidates for mentions: search in every collection, folded to entities by their best name.

Dense search only, for now. A mention that the tokenizer cannot see (an emoji, an unknown script) has no meaningful
vector; its candidates are the entities that bear exactly its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pearl_qdrant.encoder.protocol import Encoded, FloatArray
from pearl_qdrant.records import Candidate
from pearl_qdrant.store.protocol import Collection, ScoredName

EXTRA_NAMES = 5
"""Names fetched beyond the entities wanted, since aliases of one entity lie close together. Where they were not enough,
`MORE_NAMES` times as many are fetched."""

MORE_NAMES = 3

MAX_NAMESAKES = 10_000
"""Of entities with one name, those that are put in order; which of them is the first by id is decided among these."""

SAME_SCORE = 1e-6
"""Scores closer than this are equal: cosines of one and the same name differ by rounding."""


@dataclass(frozen=True, slots=True)
class Found:
    """An entity that was found, not yet judged.

    Attributes:
        scored: Its best name.
        is_dense: Whether the score is a cosine, not an equality of names.
        tie: Whether nothing separates it from another one with an equal best name.
    """

    scored: ScoredName
    is_dense: bool
    tie: bool

    def to_candidate(self, probability: float) -> Candidate:
        """The candidate, with its probability."""
        point, score = self.scored.point, self.scored.score
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
            dense_score=score if self.is_dense else None,
            score=score,
            probability=probability,
            tie=self.tie,
        )


def find_candidates(
    collections: Sequence[Collection],
    mentions: Sequence[str],
    encoded: Encoded,
    *,
    limit: int,
    types: Sequence[str] = (),
) -> list[list[Found]]:
    """Entities for each mention, best first.

    Args:
        collections: Where to look; an entity is told apart by base and id.
        mentions: m strings.
        encoded: Of the mentions, by the model that made the collections.
        limit: Entities a mention at most.
        types: Keep only entities of these types; empty for all.

    Returns:
        m lists.
    """
    nearest = [_search(collection, encoded.vectors, limit, types) for collection in collections]
    encodable = encoded.encodable.tolist()
    results = []
    for i, mention in enumerate(mentions):
        if encodable[i]:
            names = nearest[0][i] if len(nearest) == 1 else [name for found in nearest for name in found[i]]
            found = _fold(names, limit, is_dense=True)
            if len(found) == limit and found[-1].tie:  # more may be tied than were fetched
                found = _fold([*names, *_namesakes(collections, found[0].scored, types)], limit, is_dense=True)
            results.append(found)
        else:
            results.append(_exact(collections, mention.strip(), limit=limit, types=types))
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


def _fold(names: Iterable[ScoredName], limit: int, *, is_dense: bool) -> list[Found]:
    """One for each entity, by its best name; equal scores in the order of base and id."""
    ordered = sorted(names, key=_rank)
    best: dict[tuple[str, str], ScoredName] = {}
    for scored in ordered:
        best.setdefault((scored.point.kb, scored.point.entity_id), scored)
        if len(best) > limit:
            break
    scores = [scored.score for scored in best.values()]
    # Only at the top does a tie leave open which entity is meant.
    n_tied = sum(scores[0] - score <= SAME_SCORE for score in scores) if scores else 0
    tied = n_tied if n_tied > 1 else 0
    return [Found(scored, is_dense, i < tied) for i, scored in enumerate(best.values())][:limit]


def _rank(scored: ScoredName) -> tuple[float, str, str, bool]:
    point = scored.point
    return -scored.score, point.kb, point.entity_id, not point.is_canonical


def _namesakes(collections: Sequence[Collection], best: ScoredName, types: Sequence[str]) -> list[ScoredName]:
    """All points that bear the name of the best one, up to `MAX_NAMESAKES` a collection: they have its score."""
    return [
        ScoredName(point, best.score)
        for collection in collections
        for point in collection.find(names=[best.point.name], types=types, limit=MAX_NAMESAKES)
    ]


def _exact(collections: Sequence[Collection], name: str, *, limit: int, types: Sequence[str]) -> list[Found]:
    """The entities that bear exactly this name."""
    if not name:
        return []
    scored = [
        ScoredName(point, 1.0)
        for collection in collections
        for point in collection.find(names=[name], types=types, limit=limit * MORE_NAMES)
    ]
    return _fold(scored, limit, is_dense=False)
