"""Hybrid search, by dense vector, by keys, by slips and by n-grams: the part that both stores share.

The first call of the engine finds points that share a key with the mention (`lexical.keys`). If one is the mention's
own name, as it stands or but for a slip, the next one finds points by dense vector, quickly. If none is, it finds
points that may be one or two edits away (`lexical.keys`). If none of these is the mention's own name either, the next
one finds points by dense vector, thoroughly, and by n-grams. After each of them, another call computes the dense scores
of points not found by vector.
Measured on 571,000 names with 15 to 17 points each, in us a mention of a warm loop: dense 330 (900 under a filter that
passes 8 %), n-grams 690 (1,240), the third call 220 (300); reading a payload takes 8 of it. One request that finds by
n-grams and scores by vector (a prefetch) takes as long, and loses names without a dense vector.

For a single mention over a network, round trips take most of the time. So what keys, slips and n-grams find comes with
its dense score in the same request, where the server searches among it by vector (a prefetch). A mention whose own name
is found takes one request, any other two: slips, n-grams and the thorough dense search go together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np

from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.lexical.ngrams import SparseRows, UInt32Array
from pearl_qdrant.store.schema import NamePoint
from pearl_qdrant.store.search import (
    EnginePoint,
    IsMatch,
    MakeSlipQuery,
    NameQuery,
    PointId,
    ScoredName,
    SearchEngine,
    SlipQuery,
    best_points,
    check_vectors,
    clear_points,
    clip_cosine,
    order_points,
    point_order,
    run_best,
    run_once,
)

KEY_LIMITS = 2
"""Names requested by keys, as a multiple of those by n-grams: all entities of one name should be among them."""

SLIP_LIMITS = 3  # names requested by slips, as a multiple too

WIDE_LIMITS = 20
"""Names requested by slips where none of the first is near. Without them 5 of 797 mentions with two slips are not
linked, and none of 798 with one (571,070 names)."""


class _Found(NamedTuple):
    """A point that a query found, with its payload read."""

    score: float
    name: NamePoint
    point: EnginePoint

    @property
    def id(self) -> PointId:
        return self.point.id


@dataclass(slots=True)
class _Mention:
    """One mention of a batch, and the points found for it; `number` is the row of the query."""

    number: int
    vector: FloatArray | None  # (dim,)
    ngrams: tuple[UInt32Array, FloatArray] | None  # indices and values
    keys: tuple[UInt32Array, FloatArray] | None = None
    slips: SlipQuery | None = None  # made when they are searched
    by_vector: Sequence[EnginePoint] = ()
    by_keys: Sequence[EnginePoint] = ()  # this and the next two without payloads, if there is a vector
    by_slips: Sequence[EnginePoint] = ()
    by_ngrams: Sequence[EnginePoint] = ()
    rescored: Sequence[_Found] = ()  # that only the others found, with dense scores
    vectorless: Sequence[_Found] = ()  # of these, those that have no vector
    scored: dict[PointId, EnginePoint] = field(default_factory=dict)  # all that a server has sent with dense scores
    # Ids of the points that keys, slips or n-grams found; of those that have a dense score, or no vector. Reading an id
    # converts it, which takes 2 us.
    wanted: set[PointId] = field(default_factory=set)
    done: set[PointId] = field(default_factory=set)

    @property
    def is_wide(self) -> bool:
        """Whether many more names are looked through: none that was found so far is near."""
        if self.vector is None or self.slips is None or self.slips.is_near is None:
            return False
        return not any(self.slips.is_near(found.name) for found in self.rescored)

    def take_nearest(self, points: Sequence[EnginePoint]) -> None:
        """Take what a search by vector found."""
        self.by_vector = points
        known = {point.id for point in points}
        self.done |= known
        if self.rescored:  # found by keys or slips before
            self.rescored = [found for found in self.rescored if found.id not in known]

    def want(self, points: Sequence[EnginePoint]) -> Sequence[EnginePoint]:
        """Note that points need a dense score, and return them."""
        if points and self.vector is not None:
            self.wanted.update([point.id for point in points])
        return points


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
    """Find names near by dense vector, by keys, slips or n-grams. Arguments, result and errors as for
    `protocol.Collection.search_hybrid`.
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
        """Find the points of all mentions; for one mention over a network with as few requests as possible."""
        if self.is_match is not None and self.engine.is_remote and len(mentions) == 1:
            self._search_alone(mentions[0])
            return
        if self.is_match is not None:
            own, others = self._search_by_keys(mentions)
            self._search_quickly(own)
            mentions = self._search_by_slips(others)
        self._search_both_ways(mentions)
        self._rescore(mentions)

    def names(self, mention: _Mention) -> Iterator[ScoredName]:
        """Names by dense score, best first; those without a score last, by id."""
        read = self.engine.read
        near = [_Found(point.score, read(point.payload), point) for point in mention.by_vector]
        for found in order_points([*near, *mention.rescored]):
            yield ScoredName(found.name, clip_cosine(found.score))
        for found in sorted(mention.vectorless, key=point_order):
            yield ScoredName(found.name, None)

    def _search_by_keys(self, mentions: Sequence[_Mention]) -> tuple[list[_Mention], list[_Mention]]:
        """Search by keys: this finds the mention's own name if there is one. Returns where it did, and where not."""
        with_keys = [mention for mention in mentions if mention.keys is not None]
        answers = run_best(self.engine, [self._query_by_keys(mention) for mention in with_keys])
        for mention, points in zip(with_keys, answers, strict=True):
            mention.by_keys = mention.want(points)
        self._rescore(with_keys)
        is_own = [self._has_match(mention) for mention in mentions]
        own = [mention for mention, found in zip(mentions, is_own, strict=True) if found]
        return own, [mention for mention, found in zip(mentions, is_own, strict=True) if not found]

    def _search_quickly(self, mentions: Sequence[_Mention]) -> None:
        """Search by dense vector for what is near a mention whose own name is found."""
        with_vector = [mention for mention in mentions if mention.vector is not None]
        answers = run_best(self.engine, [NameQuery(self.limit, vector=mention.vector) for mention in with_vector])
        for mention, points in zip(with_vector, answers, strict=True):
            mention.take_nearest(points)

    def _run_at_once(
        self, mention: _Mention, dense: Sequence[NameQuery], sparse: Sequence[NameQuery]
    ) -> tuple[list[list[EnginePoint]], list[list[EnginePoint]]]:
        """Run queries of one mention by vector and by n-grams in one request; returns the points of both.

        The server also sends the dense scores of what n-grams find. It then looks for it twice, which takes less time
        than another request, but not for many mentions.
        """
        scoring = [
            query._replace(limit=self._most_scored(query), has_payload=True, scored_by=mention.vector)
            for query in (() if mention.vector is None else sparse)
        ]
        answers = run_best(self.engine, [*dense, *sparse, *scoring])
        ends = len(dense), len(dense) + len(sparse)
        for points in [*answers[: ends[0]], *answers[ends[1] :]]:
            mention.scored.update((point.id, point) for point in points)
        return answers[: ends[0]], answers[ends[0] : ends[1]]

    def _most_scored(self, query: NameQuery) -> int:
        """How many points of a query come with a dense score: not all of a wide one, whose payloads take long. It is
        one more than is wanted: with equal scores at the end it may find another point than the plain query.
        """
        return min(query.limit, SLIP_LIMITS * self.lexical_limit) + 1

    def _search_by_slips(self, mentions: Sequence[_Mention]) -> list[_Mention]:
        """Search for names that differ from the mention by one or two edits; returns where there is none."""
        self._make_slips(mentions)
        with_slips = [mention for mention in mentions if mention.slips is not None]
        if not with_slips:
            return list(mentions)
        before = {mention.number: len(mention.rescored) for mention in with_slips}
        answers = run_best(self.engine, [self._query_by_slips(mention) for mention in with_slips])
        for mention, points in zip(with_slips, answers, strict=True):
            mention.by_slips = mention.want(points)
        self._rescore(with_slips)
        open_mentions = [
            mention
            for mention in mentions
            if mention.slips is None or not self._has_match(mention, before[mention.number])
        ]
        matched = self._search_widely(open_mentions)
        return [mention for mention in open_mentions if mention.number not in matched]

    def _search_widely(self, mentions: Sequence[_Mention]) -> set[int]:
        """Look through many more names that slips may lead to, and keep those that are the mention's own name. Returns
        the numbers of the mentions that have some.
        """
        most = self.engine.allowed(SLIP_LIMITS * self.lexical_limit)  # where slips found fewer, there are no more
        asking = [mention for mention in mentions if len(mention.by_slips) == most and mention.is_wide]
        answers = run_once(self.engine, [self._query_by_slips(mention, WIDE_LIMITS) for mention in asking])
        return self._match_widely(list(zip(asking, answers, strict=True)))

    def _match_widely(self, found: Sequence[tuple[_Mention, Sequence[EnginePoint]]]) -> set[int]:
        """Keep those of many names that are the mention's own; returns as `_search_widely`."""
        matched, read = [], self.engine.read
        for mention, some in found:
            tried, points = mention.wanted, clear_points(some, WIDE_LIMITS * self.lexical_limit)
            own = [point for point in points if point.id not in tried and self._is_match(mention, read(point.payload))]
            if own:
                mention.by_slips = mention.want(own)
                matched.append(mention)
        self._rescore(matched)
        return {mention.number for mention in matched}

    def _make_slips(self, mentions: Sequence[_Mention]) -> None:
        """Make the features of slips; most mentions never need them."""
        if self.slips is not None:
            for mention in mentions:
                mention.slips = self.slips(mention.number)

    def _query_by_slips(self, mention: _Mention, limits: int = SLIP_LIMITS) -> NameQuery:
        assert mention.slips is not None
        features = mention.slips.indices, mention.slips.values
        is_wide = limits > SLIP_LIMITS  # of many names few are the mention's own
        has_payload = mention.vector is None or is_wide
        # One more than is looked at shows whether a tie reaches over the end.
        return NameQuery(limits * self.lexical_limit + is_wide, lexical=features, has_payload=has_payload)

    def _query_by_keys(self, mention: _Mention) -> NameQuery:
        return NameQuery(KEY_LIMITS * self.lexical_limit, lexical=mention.keys, has_payload=mention.vector is None)

    def _query_by_ngrams(self, mention: _Mention) -> NameQuery:
        # A payload is needed here only if no dense query will return it later.
        return NameQuery(self.lexical_limit, lexical=mention.ngrams, has_payload=mention.vector is None)

    def _query_thoroughly(self, mention: _Mention) -> NameQuery:
        return NameQuery(self.limit, vector=mention.vector, is_thorough=True)

    def _is_match(self, mention: _Mention, name: NamePoint) -> bool:
        assert self.is_match is not None
        return self.is_match(mention.number, name)

    def _has_match(self, mention: _Mention, start: int = 0) -> bool:
        """Whether one of the points found is the mention's own name, of those with a dense score from `start` on."""
        return any(self._is_match(mention, found.name) for found in chain(mention.rescored[start:], mention.vectorless))

    def _search_both_ways(self, mentions: Sequence[_Mention]) -> None:
        """Search by dense vector, thoroughly, and by n-grams."""
        dense = [mention for mention in mentions if mention.vector is not None]
        sparse = [mention for mention in mentions if mention.ngrams is not None]
        queries = [self._query_thoroughly(mention) for mention in dense]
        answers = run_best(self.engine, [*queries, *(self._query_by_ngrams(mention) for mention in sparse)])
        for mention, points in zip(dense, answers[: len(dense)], strict=True):
            mention.take_nearest(points)
        for mention, points in zip(sparse, answers[len(dense) :], strict=True):
            mention.by_ngrams = mention.want(points)

    def _search_alone(self, mention: _Mention) -> None:
        """Search for one mention over a network, with one request where its own name is found, else with two."""
        if mention.keys is not None:
            quick = [] if mention.vector is None else [NameQuery(self.limit, vector=mention.vector)]
            by_vector, (by_keys,) = self._run_at_once(mention, quick, [self._query_by_keys(mention)])
            mention.by_keys = mention.want(by_keys)
            self._rescore([mention])
            if self._has_match(mention):
                if by_vector:
                    mention.take_nearest(by_vector[0])
                return
        self._search_further_at_once(mention)

    def _search_further_at_once(self, mention: _Mention) -> None:
        """Search for one mention by slips, by dense vector and by n-grams, in one request. What is searched later with
        several requests does not count where slips lead to the mention's own name.
        """
        self._make_slips([mention])
        dense = [self._query_thoroughly(mention)] if mention.vector is not None else []
        limits = WIDE_LIMITS if mention.is_wide else SLIP_LIMITS
        sparse = [self._query_by_slips(mention, limits)] if mention.slips is not None else []
        n_slips = len(sparse)
        if mention.ngrams is not None:
            sparse.append(self._query_by_ngrams(mention))
        by_vector, by_ngrams = self._run_at_once(mention, dense, sparse)
        n_before = len(mention.rescored)
        if n_slips:
            mention.by_slips = mention.want(best_points(by_ngrams[0], SLIP_LIMITS * self.lexical_limit))
            self._rescore([mention])
            if self._has_match(mention, n_before):
                return
            if mention.is_wide and self._match_widely([(mention, by_ngrams[0])]):
                return
        if dense:
            mention.take_nearest(by_vector[0])
        if mention.ngrams is not None:
            mention.by_ngrams = mention.want(by_ngrams[n_slips])
        self._rescore([mention])

    def _rescore(self, mentions: Sequence[_Mention]) -> None:
        """Fetch dense scores and payloads of points without a score; then payloads of those without a vector."""
        read = self.engine.read
        scoring: list[tuple[_Mention, frozenset[PointId]]] = []
        for mention in mentions:
            if mention.vector is None:
                found = {point.id: point for point in chain(mention.by_keys, mention.by_slips, mention.by_ngrams)}
                mention.vectorless = [_Found(point.score, read(point.payload), point) for point in found.values()]
                continue
            missing = mention.wanted - mention.done
            mention.done |= missing
            if sent := missing & mention.scored.keys():
                self._take_rescored(mention, [mention.scored[one] for one in sent])
            if missing := missing - sent:
                scoring.append((mention, frozenset(missing)))
        if not scoring:
            return
        incomplete = []
        queries = [NameQuery(len(ids), vector=mention.vector, ids=ids) for mention, ids in scoring]
        for (mention, ids), points in zip(scoring, self._run_by_ids(queries), strict=True):
            self._take_rescored(mention, points)
            if len(points) < len(ids):
                incomplete.append((mention, ids.difference(point.id for point in points)))
        self._fetch_vectorless(incomplete)

    def _take_rescored(self, mention: _Mention, points: Sequence[EnginePoint]) -> None:
        """Take points with their dense scores and payloads."""
        read = self.engine.read
        mention.rescored = [*mention.rescored, *(_Found(point.score, read(point.payload), point) for point in points)]

    def _pieces(self, query: NameQuery) -> list[NameQuery]:
        """A query for points by their ids, cut into several where the engine takes fewer ids."""
        assert query.ids is not None
        most = self.engine.max_ids
        if most is None or len(query.ids) <= most:
            return [query]
        ids = sorted(query.ids, key=str)
        cut = [frozenset(ids[i : i + most]) for i in range(0, len(ids), most)]
        return [query._replace(limit=len(piece), ids=piece) for piece in cut]

    def _run_by_ids(self, queries: Sequence[NameQuery]) -> list[list[EnginePoint]]:
        """Run queries for points by their ids."""
        pieces = [self._pieces(query) for query in queries]
        answers = iter(self.engine.run(list(chain.from_iterable(pieces))))
        return [[point for _ in of_one for point in next(answers)] for of_one in pieces]

    def _fetch_vectorless(self, incomplete: Sequence[tuple[_Mention, frozenset[PointId]]]) -> None:
        """Fetch the payloads of points that have no dense vector, by what found them."""
        queries = []
        for mention, left in incomplete:
            slips = mention.slips
            for lexical, points in (
                (mention.keys, mention.by_keys),
                (None if slips is None else (slips.indices, slips.values), mention.by_slips),
                (mention.ngrams, mention.by_ngrams),
            ):
                if ids := left.intersection(point.id for point in points):
                    queries.append((mention, NameQuery(len(ids), lexical=lexical, ids=ids)))
                    left -= ids
        if queries:
            for (mention, _), points in zip(queries, self._run_by_ids([query for _, query in queries]), strict=True):
                found = [_Found(point.score, self.engine.read(point.payload), point) for point in points]
                mention.vectorless = [*mention.vectorless, *found]
