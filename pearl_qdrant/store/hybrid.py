"""Hybrid search, by dense vector, by keys, by slips and by n-grams: the part that both stores share.

The first call of the engine finds points by dense vector, quickly, and those that share a key with the mention
(`lexical.keys`). If none is the mention's own name, as it stands or but for a slip, the next one finds points that
may be one or two edits away (`lexical.slips`). If none of these is either, the next one finds points by dense vector,
thoroughly, and by n-grams. After each of them, another call computes the dense scores of points not found by vector.
Measured on 571,000 names with 15 to 17 points each, in us a mention of a warm loop: dense 330 (900 under a filter that
passes 8 %), n-grams 690 (1,240), the third call 220 (300); reading a payload takes 8 of it. One request that finds by
n-grams and scores by vector (a prefetch) takes as long, and loses names without a dense vector.

For a single mention over a network, round trips take most of the time. So n-grams go with the first request, and the
thorough dense search goes with the last: two requests instead of three, and one where its own name is near.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from uuid import UUID

import numpy as np

from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.lexical.ngrams import SparseRows, UInt32Array
from pearl_qdrant.store.protocol import IsMatch
from pearl_qdrant.store.search import (
    EnginePoint,
    MakeSlipQuery,
    NameQuery,
    ScoredName,
    SearchEngine,
    SlipQuery,
    check_vectors,
    clip_cosine,
    order_points,
    run_ordered,
)

KEY_LIMITS = 2
"""Names requested by keys, as a multiple of those by n-grams: all entities of one name should be among them."""

SLIP_LIMITS = 3
"""Names requested by slips, as a multiple too."""

WIDE_LIMITS = 20
"""Names requested by slips where none of the first is the mention's own name."""

NEAREST = 3
"""Names by dense vector that are compared with the mention; its own name is the first, with its namesakes."""


@dataclass(slots=True)
class _Mention:
    """One mention of a batch, and the points found for it.

    Attributes:
        number: Row of the query.
        vector: (dim,), or None.
        ngrams: Indices and values, or None.
        keys: The same of its keys.
        slips: The same of names that it may be a slip of; made when they are searched.
        by_vector: Points found by dense vector.
        by_keys, by_slips, by_ngrams: Points found by them; without payloads if there is a vector.
        rescored: Points that only they found, with dense scores.
        vectorless: Points that only they found and that have no dense vector.
    """

    number: int
    vector: FloatArray | None
    ngrams: tuple[UInt32Array, FloatArray] | None
    keys: tuple[UInt32Array, FloatArray] | None = None
    slips: SlipQuery | None = None
    by_vector: Sequence[EnginePoint] = ()
    by_keys: Sequence[EnginePoint] = ()
    by_slips: Sequence[EnginePoint] = ()
    by_ngrams: Sequence[EnginePoint] = ()
    rescored: Sequence[EnginePoint] = ()
    vectorless: Sequence[EnginePoint] = ()

    def nearest(self) -> Iterator[EnginePoint]:
        """Points that may be its own name: the nearest ones, and those that share a key."""
        return chain(self.by_vector[:NEAREST], self.rescored, self.vectorless)

    def ids_without_score(self) -> frozenset[str | int | UUID]:
        """Ids of the points that keys, slips or n-grams found, and that have no dense score yet."""
        missing = {point.id for point in chain(self.by_keys, self.by_slips, self.by_ngrams)}
        # Reading an id converts it, which takes 2 us; the mention's own name is mostly the first point.
        for point in chain(self.by_vector, self.rescored, self.vectorless):
            if not missing:
                break
            missing.discard(point.id)
        return frozenset(missing)


def search_hybrid(
    engine: SearchEngine,
    vectors: FloatArray,
    lexical: SparseRows,
    *,
    limit: int,
    lexical_limit: int,
    is_match: IsMatch | None,
    keys: SparseRows | None = None,
    slips: MakeSlipQuery | None = None,
) -> list[list[ScoredName]]:
    """Find names near by dense vector, by keys, slips or n-grams; see `protocol.Collection.search_hybrid`.

    Args:
        engine: The collection.
        vectors: (q, dim); a row of zeros finds nothing by dense vector.
        lexical: q rows.
        limit, lexical_limit: Return at most this many names for each query, by vector and by n-grams.
        is_match, keys, slips: As in `protocol.Collection.search_hybrid`.

    Returns:
        q lists.

    Raises:
        ValueError: If vectors and rows do not pair up, have another width or are not finite, or a limit is not
            positive.
    """
    check_vectors(vectors, engine.dim, limit)
    if lexical_limit < 1:
        raise ValueError(f"lexical_limit must be positive, it is {lexical_limit}")
    for rows_of in (lexical, keys):
        if rows_of is not None and (len(rows_of) != len(vectors) or not np.isfinite(rows_of.values).all()):
            raise ValueError(
                f"n-gram rows must be finite and as many as vectors: {len(rows_of)} rows, {len(vectors)} vectors"
            )
    searcher = _HybridSearcher(engine, limit, lexical_limit, is_match, slips)

    def search_batch(rows: range) -> list[list[ScoredName]]:
        mentions = [_make_mention(vectors, lexical, keys, row) for row in rows]
        searcher.search(mentions)
        return [list(searcher.names(mention)) for mention in mentions]

    n = engine.batch_mentions
    batches = [range(start, min(start + n, len(vectors))) for start in range(0, len(vectors), n)]
    return list(chain.from_iterable(engine.map_batches(search_batch, batches)))


def _make_mention(vectors: FloatArray, lexical: SparseRows, keys: SparseRows | None, row: int) -> _Mention:
    return _Mention(row, vectors[row] if vectors[row].any() else None, _row(lexical, row), _row(keys, row))


def _row(rows: SparseRows | None, i: int) -> tuple[UInt32Array, FloatArray] | None:
    """One row, or None if it is empty or there are none."""
    return None if rows is None or rows.offsets[i] == rows.offsets[i + 1] else rows.row(i)


@dataclass(frozen=True, slots=True)
class _HybridSearcher:
    """Searches for the mentions of a batch. It has no state, so several threads may use it at the same time."""

    engine: SearchEngine
    limit: int
    lexical_limit: int
    is_match: IsMatch | None
    slips: MakeSlipQuery | None

    def search(self, mentions: Sequence[_Mention]) -> None:
        """Find the points of all mentions; with as few requests as possible for one mention over a network."""
        first = mentions[0]
        if (
            self.engine.is_remote
            and self.is_match is not None
            and len(mentions) == 1
            and first.vector is not None
            and first.ngrams is not None
        ):
            self._search_in_two_requests(first, first.vector)
            return
        open_mentions = mentions
        if self.is_match is not None:
            self._search_own_names(mentions)
            open_mentions = [mention for mention in mentions if not self._has_match(mention, mention.nearest())]
            open_mentions = self._search_by_slips(open_mentions)
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
        """Search by dense vector, quickly, and by keys: this finds the mention's own name if there is one."""
        with_vector = [(mention, mention.vector) for mention in mentions if mention.vector is not None]
        queries = [NameQuery(self.limit, vector=vector) for _, vector in with_vector]
        with_keys = [mention for mention in mentions if mention.keys is not None]
        queries += [self._query_by_keys(mention) for mention in with_keys]
        answers = run_ordered(self.engine, queries)
        for (mention, _), points in zip(with_vector, answers, strict=False):
            mention.by_vector = points
        for mention, points in zip(with_keys, answers[len(with_vector) :], strict=True):
            mention.by_keys = points
        self._rescore(with_keys)

    def _search_by_slips(self, mentions: Sequence[_Mention]) -> list[_Mention]:
        """Search for names that differ from the mention by one or two edits; returns where there is none."""
        self._make_slips(mentions)
        with_slips = [mention for mention in mentions if mention.slips is not None]
        if not with_slips:
            return list(mentions)
        before = {mention.number: len(mention.rescored) for mention in with_slips}
        answers = run_ordered(self.engine, [self._query_by_slips(mention) for mention in with_slips])
        for mention, points in zip(with_slips, answers, strict=True):
            mention.by_slips = points
        self._rescore(with_slips)
        open_mentions = [
            mention
            for mention in mentions
            if mention.slips is None
            or not self._has_match(mention, chain(mention.rescored[before[mention.number] :], mention.vectorless))
        ]
        matched = self._search_widely(open_mentions)
        return [mention for mention in open_mentions if mention.number not in matched]

    def _search_widely(self, mentions: Sequence[_Mention]) -> set[int]:
        """Look through many more names that slips may lead to, and keep those that are the mention's own name.

        Returns:
            The numbers of the mentions that have some.
        """
        asking = [
            (mention, mention.vector)
            for mention in mentions
            if mention.slips is not None and mention.slips.is_wide and mention.vector is not None
        ]
        if not asking:
            return set()
        answers = run_ordered(self.engine, [self._query_by_slips(mention, WIDE_LIMITS) for mention, _ in asking])
        left = [
            (mention, vector, frozenset(point.id for point in points) - {point.id for point in mention.by_slips})
            for (mention, vector), points in zip(asking, answers, strict=True)
            if len(points) > len(mention.by_slips)
        ]
        if not left:
            return set()
        scored = self._run_by_ids([NameQuery(len(ids), vector=vector, ids=ids) for _, vector, ids in left])
        matched = set()
        for (mention, _, _), points in zip(left, scored, strict=True):
            if own := [point for point in points if self._has_match(mention, [point])]:
                known = {point.id for point in chain(mention.by_vector, mention.rescored)}
                mention.rescored = [*mention.rescored, *(point for point in own if point.id not in known)]
                matched.add(mention.number)
        return matched

    def _make_slips(self, mentions: Sequence[_Mention]) -> None:
        """Make the features of slips; most mentions never need them."""
        if self.slips is not None:
            for mention in mentions:
                mention.slips = self.slips(mention.number)

    def _query_by_slips(self, mention: _Mention, limits: int = SLIP_LIMITS) -> NameQuery:
        assert mention.slips is not None
        features = mention.slips.indices, mention.slips.values
        return NameQuery(limits * self.lexical_limit, lexical=features, has_payload=mention.vector is None)

    def _query_by_keys(self, mention: _Mention) -> NameQuery:
        return NameQuery(KEY_LIMITS * self.lexical_limit, lexical=mention.keys, has_payload=mention.vector is None)

    def _has_match(self, mention: _Mention, points: Iterable[EnginePoint]) -> bool:
        """Whether one of some points is the mention's own name."""
        assert self.is_match is not None
        return any(self.is_match(mention.number, self.engine.read(point.payload)) for point in points)

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
            if mention.rescored:  # found by keys or slips before
                known = {point.id for point in points}
                mention.rescored = [point for point in mention.rescored if point.id not in known]
        for mention, points in zip(with_ngrams, answers[len(with_vector) :], strict=True):
            mention.by_ngrams = points

    def _rescore(self, mentions: Sequence[_Mention]) -> None:
        """Fetch dense scores and payloads of points without a score; then payloads of those without a vector."""
        scoring, queries = [], []
        for mention in mentions:
            if mention.vector is None:
                mention.vectorless = _distinct(mention.by_keys, mention.by_slips, mention.by_ngrams)
            elif ids := mention.ids_without_score():
                scoring.append((mention, ids))
                queries.append(NameQuery(len(ids), vector=mention.vector, ids=ids))
        if not queries:
            return
        incomplete = []
        for (mention, ids), points in zip(scoring, self._run_by_ids(queries), strict=True):
            mention.rescored = [*mention.rescored, *points]
            if left := ids.difference(point.id for point in points):
                incomplete.append((mention, left))
        self._fetch_vectorless(incomplete)

    def _pieces(self, query: NameQuery) -> list[NameQuery]:
        """A query for points by their ids, cut into several where the engine takes fewer ids."""
        assert query.ids is not None
        most = self.engine.max_ids
        if most is None or len(query.ids) <= most:
            return [query]
        ids = sorted(query.ids, key=str)
        cut = [frozenset(ids[i : i + most]) for i in range(0, len(ids), most)]
        return [replace(query, limit=len(piece), ids=piece) for piece in cut]

    def _run_by_ids(self, queries: Sequence[NameQuery]) -> list[list[EnginePoint]]:
        """Run queries for points by their ids."""
        pieces = [self._pieces(query) for query in queries]
        answers = iter(self.engine.run(list(chain.from_iterable(pieces))))
        return [[point for _ in of_one for point in next(answers)] for of_one in pieces]

    def _fetch_vectorless(self, incomplete: Sequence[tuple[_Mention, frozenset[str | int | UUID]]]) -> None:
        """Fetch the payloads of points that have no dense vector, by what found them."""
        queries = []
        for mention, left in incomplete:
            slips = mention.slips
            for lexical, points in (
                (mention.keys, mention.by_keys),
                (None if slips is None else (slips.indices, slips.values), mention.by_slips),
                (mention.ngrams, mention.by_ngrams),
            ):
                if found := left.intersection(point.id for point in points):
                    queries.append((mention, NameQuery(len(found), lexical=lexical, ids=found)))
                    left -= found
        if queries:
            for (mention, _), points in zip(queries, self._run_by_ids([query for _, query in queries]), strict=True):
                mention.vectorless = [*mention.vectorless, *points]

    def _search_in_two_requests(self, mention: _Mention, vector: FloatArray) -> None:
        """Find for one mention with vector and n-grams the same points as the other methods, in fewer requests."""
        queries = [NameQuery(self.limit, vector=vector)]
        queries.append(NameQuery(self.lexical_limit, lexical=mention.ngrams, has_payload=False))
        if mention.keys is not None:
            queries.append(self._query_by_keys(mention))
        self._make_slips([mention])
        if mention.slips is not None:
            queries.append(self._query_by_slips(mention))
        mention.by_vector, lexical_points, *others = run_ordered(self.engine, queries)
        mention.by_keys = others.pop(0) if mention.keys is not None else ()
        if self._has_match(mention, mention.nearest()):
            self._rescore([mention])
            return
        key_points = mention.by_keys
        mention.by_slips = others.pop(0) if mention.slips is not None else ()
        quick_points, mention.by_ngrams = mention.by_vector, lexical_points
        ids = mention.ids_without_score()
        queries = [NameQuery(self.limit, vector=vector, is_thorough=True)]
        if ids:
            queries += self._pieces(NameQuery(len(ids), vector=vector, ids=ids))
        thorough, *rescored = run_ordered(self.engine, queries)
        # With several requests, what comes later is not searched where a key or a slip leads to the mention's own name.
        for found in (key_points, [*key_points, *mention.by_slips]):
            wanted = {point.id for point in found}
            mention.rescored = [point for point in chain.from_iterable(rescored) if point.id in wanted]
            if self._has_match(mention, mention.rescored):
                return
        if self._search_widely([mention]):
            return
        scored = [*quick_points, *chain.from_iterable(rescored)]
        mention.by_vector, mention.rescored = thorough, []
        # The thorough search may have found other points than the quick one: compare with its result.
        unscored = mention.ids_without_score()
        mention.rescored = [point for point in scored if point.id in unscored]
        if left := ids.difference(point.id for point in chain(mention.by_vector, *rescored)):
            self._fetch_vectorless([(mention, left)])


def _distinct(*groups: Sequence[EnginePoint]) -> list[EnginePoint]:
    """The points of several results, each once."""
    return list({point.id: point for point in chain(*groups)}.values())
