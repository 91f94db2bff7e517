"""Hybrid search, by dense vector and by n-grams: the part that both stores share.

The first call of the engine finds points by dense vector. The second finds points by n-grams. The third computes dense
scores of the points that only n-grams have found. A mention whose own name is in the collection needs the first call
alone. Measured on 571,000 names with 15 to 17 points each, in us a mention of a warm loop: dense 330 (900 under a
filter that passes 8 %), n-grams 690 (1,240), the third call 220 (300); reading a payload takes 8 of it. One request
that finds by n-grams and scores by vector (a prefetch) takes as long, and loses names without a dense vector.

For a single mention over a network, round trips take most of the time. So n-grams go with the first request, and the
thorough dense search goes with the last: two requests instead of three, and one where an exact match is near.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from uuid import UUID

import numpy as np

from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.lexical.ngrams import SparseRows, UInt32Array
from pearl_qdrant.store.protocol import IsExactMatch, ScoredName
from pearl_qdrant.store.search import (
    EnginePoint,
    NameQuery,
    SearchEngine,
    check_vectors,
    clip_cosine,
    order_points,
    run_ordered,
)

EXACT_MATCH_COSINE = 0.99
"""A name may be an exact match from this cosine on. A name and its own mention have it."""


@dataclass(slots=True)
class _Mention:
    """One mention of a batch, and the points found for it.

    Attributes:
        number: Row of the query.
        vector: (dim,), or None.
        ngrams: Indices and values, or None.
        by_vector: Points found by dense vector.
        by_ngrams: Points found by n-grams; without payloads if there is a vector.
        rescored: Points that only n-grams found, with dense scores.
        vectorless: Points that only n-grams found and that have no dense vector.
    """

    number: int
    vector: FloatArray | None
    ngrams: tuple[UInt32Array, FloatArray] | None
    by_vector: Sequence[EnginePoint] = ()
    by_ngrams: Sequence[EnginePoint] = ()
    rescored: Sequence[EnginePoint] = ()
    vectorless: Sequence[EnginePoint] = ()

    def ids_by_ngrams_only(self) -> frozenset[str | int | UUID]:
        """Ids of the points that n-grams found and the dense search did not."""
        if not self.by_ngrams:
            return frozenset()
        return frozenset(point.id for point in self.by_ngrams).difference(point.id for point in self.by_vector)


def search_hybrid(
    engine: SearchEngine,
    vectors: FloatArray,
    lexical: SparseRows | None,
    *,
    limit: int,
    lexical_limit: int,
    is_exact_match: IsExactMatch | None,
) -> list[list[ScoredName]]:
    """Find names near by dense vector or by n-grams; see `protocol.Collection.search_hybrid`.

    Args:
        engine: The collection.
        vectors: (q, dim); a row of zeros finds nothing by dense vector.
        lexical: q rows; None searches by dense vector alone.
        limit, lexical_limit: Return at most this many names for each query, by vector and by n-grams.
        is_exact_match: As in `protocol.Collection.search_hybrid`.

    Returns:
        q lists.

    Raises:
        ValueError: If vectors and rows do not pair up, have another width or are not finite, or a limit is not
            positive.
    """
    check_vectors(vectors, engine.dim, limit)
    if lexical_limit < 1:
        raise ValueError(f"lexical_limit must be positive, it is {lexical_limit}")
    if lexical is not None and (len(lexical) != len(vectors) or not np.isfinite(lexical.values).all()):
        raise ValueError(
            f"n-gram rows must be finite and as many as vectors: {len(lexical)} rows, {len(vectors)} vectors"
        )
    searcher = _HybridSearcher(engine, limit, lexical_limit, is_exact_match)

    def search_batch(rows: range) -> list[list[ScoredName]]:
        mentions = [_make_mention(vectors, lexical, row) for row in rows]
        searcher.search(mentions)
        return [list(searcher.names(mention)) for mention in mentions]

    n = engine.batch_mentions
    batches = [range(start, min(start + n, len(vectors))) for start in range(0, len(vectors), n)]
    return list(chain.from_iterable(engine.map_batches(search_batch, batches)))


def _make_mention(vectors: FloatArray, lexical: SparseRows | None, row: int) -> _Mention:
    vector = vectors[row] if vectors[row].any() else None
    if lexical is None or lexical.offsets[row] == lexical.offsets[row + 1]:
        return _Mention(row, vector, None)
    return _Mention(row, vector, lexical.row(row))


@dataclass(frozen=True, slots=True)
class _HybridSearcher:
    """Searches for the mentions of a batch. It has no state, so several threads may use it at the same time."""

    engine: SearchEngine
    limit: int
    lexical_limit: int
    is_exact_match: IsExactMatch | None

    def search(self, mentions: Sequence[_Mention]) -> None:
        """Find the points of all mentions; with as few requests as possible for one mention over a network."""
        first = mentions[0]
        if (
            self.engine.is_remote
            and self.is_exact_match is not None
            and len(mentions) == 1
            and first.vector is not None
            and first.ngrams is not None
        ):
            self._search_in_two_requests(first, first.vector)
            return
        open_mentions = mentions
        if self.is_exact_match is not None:
            self._search_own_names(mentions)
            open_mentions = [mention for mention in mentions if not self._has_exact_match(mention)]
        self._search_both_ways(open_mentions)
        self._rescore(open_mentions)

    def names(self, mention: _Mention) -> Iterator[ScoredName]:
        """Names by dense score, best first; those without a score last, by id."""
        read = self.engine.read
        points = mention.by_vector
        if mention.rescored:
            points, _ = order_points([*points, *mention.rescored])
        for point in points:
            yield ScoredName(read(point.payload), clip_cosine(point.score))
        for point in sorted(mention.vectorless, key=lambda point: str(point.id)):
            yield ScoredName(read(point.payload), None)

    def _search_own_names(self, mentions: Sequence[_Mention]) -> None:
        """Search by dense vector, quickly: this finds the mention's own name if there is one."""
        pairs = [(mention, mention.vector) for mention in mentions if mention.vector is not None]
        answers = run_ordered(self.engine, [NameQuery(self.limit, vector=vector) for _, vector in pairs])
        for (mention, _), points in zip(pairs, answers, strict=True):
            mention.by_vector = points

    def _has_exact_match(self, mention: _Mention) -> bool:
        """Whether one of the nearest names is an exact match."""
        assert self.is_exact_match is not None
        nearest = takewhile(lambda point: point.score >= EXACT_MATCH_COSINE, mention.by_vector)
        return any(self.is_exact_match(mention.number, self.engine.read(point.payload)) for point in nearest)

    def _search_both_ways(self, mentions: Sequence[_Mention]) -> None:
        """Search by dense vector, thoroughly, and by n-grams."""
        with_vector = [(mention, mention.vector) for mention in mentions if mention.vector is not None]
        with_ngrams = [mention for mention in mentions if mention.ngrams is not None]
        queries = [NameQuery(self.limit, vector=vector, is_thorough=True) for _, vector in with_vector]
        # A payload is needed here only if no dense query will return it later.
        queries += [
            NameQuery(self.lexical_limit, lexical=mention.ngrams, has_payload=mention.vector is None)
            for mention in with_ngrams
        ]
        answers = run_ordered(self.engine, queries)
        for (mention, _), points in zip(with_vector, answers, strict=False):
            mention.by_vector = points
        for mention, points in zip(with_ngrams, answers[len(with_vector) :], strict=True):
            mention.by_ngrams = points

    def _rescore(self, mentions: Sequence[_Mention]) -> None:
        """Fetch dense scores and payloads of points found by n-grams only; then payloads of those without a vector."""
        scoring, queries = [], []
        for mention in mentions:
            if mention.vector is None:
                mention.vectorless = mention.by_ngrams
            elif ids := mention.ids_by_ngrams_only():
                scoring.append((mention, ids))
                queries.append(NameQuery(len(ids), vector=mention.vector, ids=ids))
        if not queries:
            return
        incomplete, queries_left = [], []
        for (mention, ids), points in zip(scoring, self.engine.run(queries), strict=True):
            mention.rescored = points
            if len(points) < len(ids):
                left = ids.difference(point.id for point in points)
                incomplete.append(mention)
                queries_left.append(NameQuery(len(left), lexical=mention.ngrams, ids=left))
        if incomplete:
            for mention, points in zip(incomplete, self.engine.run(queries_left), strict=True):
                mention.vectorless = points

    def _search_in_two_requests(self, mention: _Mention, vector: FloatArray) -> None:
        """Find for one mention with vector and n-grams the same points as the other methods, in fewer requests."""
        by_ngrams = NameQuery(self.lexical_limit, lexical=mention.ngrams, has_payload=False)
        quick = NameQuery(self.limit, vector=vector)
        mention.by_vector, lexical_points = run_ordered(self.engine, [quick, by_ngrams])
        if self._has_exact_match(mention):
            return
        quick_points, mention.by_ngrams = mention.by_vector, lexical_points
        ids = mention.ids_by_ngrams_only()
        queries = [NameQuery(self.limit, vector=vector, is_thorough=True)]
        if ids:
            queries.append(NameQuery(len(ids), vector=vector, ids=ids))
        mention.by_vector, *rescored = run_ordered(self.engine, queries)
        # The thorough search may have found other points than the quick one: compare with its result.
        wanted = mention.ids_by_ngrams_only()
        mention.rescored = [point for point in chain(quick_points, *rescored) if point.id in wanted]
        if left := ids.difference(point.id for point in chain(mention.by_vector, *rescored)):
            (mention.vectorless,) = self.engine.run([NameQuery(len(left), lexical=mention.ngrams, ids=left)])
