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

from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeVar, cast

import numpy as np

from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.lexical.ngrams import SparseRows
from pearl_qdrant.store.schema import NamePoint
from pearl_qdrant.store.search import (
    BATCH_QUERIES,
    EnginePoint,
    Features,
    NameQuery,
    OwnNames,
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
    ngrams: Features | None
    keys: Features | None = None
    is_alone: bool = False  # over a network: it takes as few requests as possible
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


T = TypeVar("T")

_Steps = Generator[list[NameQuery], list[list[EnginePoint]], T]
"""A part of the search for one mention: it yields the queries of one call of the engine and is sent their points."""


def search_hybrid(
    engine: SearchEngine,
    vectors: FloatArray,
    lexical: SparseRows | None,
    *,
    limit: int,
    lexical_limit: int,
    own: OwnNames | None,
) -> list[list[ScoredName]]:
    """Find names near by dense vector, by keys, slips or n-grams, or without any of these by vector alone. Arguments,
    result and errors as for `protocol.Collection.search_hybrid`.
    """
    check_vectors(vectors, engine.dim, limit)
    if lexical_limit < 1:
        raise ValueError(f"lexical_limit must be positive, it is {lexical_limit}")
    keys = None if own is None else own.keys
    for rows_of in (lexical, keys):
        if rows_of is not None and (len(rows_of) != len(vectors) or not np.isfinite(rows_of.values).all()):
            raise ValueError(
                f"n-gram rows must be finite and as many as vectors: {len(rows_of)} rows, {len(vectors)} vectors"
            )
    searcher = _HybridSearcher(engine, limit, lexical_limit, own)
    has_vector = cast("list[bool]", vectors.any(axis=1).tolist())
    is_lexical = own is None and not any(has_vector)  # no steps, and no scores

    def search_batch(rows: range) -> list[list[ScoredName]]:
        if is_lexical:
            asked = {i: NameQuery(lexical_limit, lexical=row) for i in rows if (row := _row(lexical, i)) is not None}
            found = dict(zip(asked, run_best(engine, [*asked.values()]), strict=True))
            by_id = (sorted(found.get(i, ()), key=point_order) for i in rows)
            return [[ScoredName(engine.read(point.payload), None) for point in points] for points in by_id]
        is_alone = own is not None and engine.is_remote and len(rows) == 1
        mentions = [
            _Mention(i, vectors[i] if has_vector[i] else None, _row(lexical, i), _row(keys, i), is_alone) for i in rows
        ]
        searcher.search(mentions)
        return [list(searcher.names(mention)) for mention in mentions]

    n = BATCH_QUERIES if is_lexical else engine.batch_mentions
    batches = [range(start, min(start + n, len(vectors))) for start in range(0, len(vectors), n)]
    return list(chain.from_iterable(engine.map_batches(search_batch, batches)))


def _row(rows: SparseRows | None, i: int) -> Features | None:
    """One row, or None if it is empty or there are none."""
    return None if rows is None or rows.offsets[i] == rows.offsets[i + 1] else rows.row(i)


@dataclass(frozen=True, slots=True)
class _HybridSearcher:
    """Searches for the mentions of a batch. It has no state, so several threads may use it at the same time."""

    engine: SearchEngine
    limit: int
    lexical_limit: int
    own: OwnNames | None

    def search(self, mentions: Sequence[_Mention]) -> None:
        """Find the points of all mentions, side by side: those that are not done yet share each call of the engine."""
        running = [(steps, next(steps, [])) for steps in map(self._search, mentions)]
        while running:
            answers = iter(run_best(self.engine, list(chain.from_iterable(queries for _, queries in running))))
            going = []
            for steps, queries in running:
                points = [next(answers) for _ in queries]
                with suppress(StopIteration):
                    going.append((steps, steps.send(points)))
            running = going

    def names(self, mention: _Mention) -> Iterator[ScoredName]:
        """Names by dense score, best first; those without a score last, by id."""
        read = self.engine.read
        near = [_Found(point.score, read(point.payload), point) for point in mention.by_vector]
        for found in order_points([*near, *mention.rescored]):
            yield ScoredName(found.name, clip_cosine(found.score))
        for found in sorted(mention.vectorless, key=point_order):
            yield ScoredName(found.name, None)

    def _search(self, mention: _Mention) -> _Steps[None]:
        """Search for one mention, until its own name is found, or else in all ways."""
        if self.own is not None:
            if mention.keys is not None and (yield from self._search_by_keys(mention)):
                return
            if self.own.slips is not None:  # most mentions never need them
                mention.slips = self.own.slips(mention.number)
        yield from self._search_further(mention)

    def _search_by_keys(self, mention: _Mention) -> _Steps[bool]:
        """Search by keys; returns whether they find the mention's own name, with what is quickly found near it."""
        quick = [] if mention.vector is None else [NameQuery(self.limit, vector=mention.vector)]
        by_keys = NameQuery(KEY_LIMITS * self.lexical_limit, lexical=mention.keys, has_payload=mention.vector is None)
        near, found = yield from self._ask(mention, quick if mention.is_alone else [], [by_keys])
        mention.by_keys = mention.want(found[0])
        yield from self._rescore(mention)
        if not self._has_match(mention):
            return False
        if quick:
            mention.take_nearest((near or (yield quick))[0])
        return True

    def _search_further(self, mention: _Mention) -> _Steps[None]:
        """Search by slips, and if these do not lead to the mention's own name, by dense vector, thoroughly, and by
        n-grams. For a mention alone that is one request, of which the rest does not count where slips do.
        """
        has_vector, is_alone = mention.vector is not None, mention.is_alone
        thorough = [NameQuery(self.limit, vector=mention.vector, is_thorough=True)] if has_vector else []
        # A payload is needed here only if no dense query will return it later.
        of_ngrams = NameQuery(self.lexical_limit, lexical=mention.ngrams, has_payload=not has_vector)
        by_ngrams = [] if mention.ngrams is None else [of_ngrams]
        limits = WIDE_LIMITS if is_alone and mention.is_wide else SLIP_LIMITS
        by_slips = [] if mention.slips is None else [self._query_by_slips(mention, limits)]
        if is_alone:
            near, found = yield from self._ask(mention, thorough, [*by_slips, *by_ngrams])
        if by_slips:
            slipped = found.pop(0) if is_alone else (yield by_slips)[0]
            if (yield from self._match_slips(mention, slipped)):
                return
        if not is_alone:
            near, found = yield from self._ask(mention, thorough, by_ngrams)
        if thorough:
            mention.take_nearest(near[0])
        if by_ngrams:
            mention.by_ngrams = mention.want(found[0])
        yield from self._rescore(mention)

    def _ask(
        self, mention: _Mention, dense: Sequence[NameQuery], sparse: Sequence[NameQuery]
    ) -> _Steps[tuple[list[list[EnginePoint]], list[list[EnginePoint]]]]:
        """Run queries by vector and by n-grams in one call; returns the points of both.

        For a mention alone the server also sends the dense scores of what n-grams find. It then looks for it twice,
        which takes less time than another request, but not for many mentions.
        """
        scoring = [
            query._replace(limit=self._most_scored(query), has_payload=True, scored_by=mention.vector)
            for query in (sparse if mention.is_alone and mention.vector is not None else ())
        ]
        answers = yield [*dense, *sparse, *scoring]
        near, found = answers[: len(dense)], answers[len(dense) : len(dense) + len(sparse)]
        if mention.is_alone:
            scored = chain.from_iterable([*near, *answers[len(dense) + len(sparse) :]])
            mention.scored.update((point.id, point) for point in scored)
        return near, found

    def _most_scored(self, query: NameQuery) -> int:
        """How many points of a query come with a dense score: not all of a wide one, whose payloads take long. It is
        one more than is wanted: with equal scores at the end it may find another point than the plain query.
        """
        return min(query.limit, SLIP_LIMITS * self.lexical_limit) + 1

    def _query_by_slips(self, mention: _Mention, limits: int) -> NameQuery:
        assert mention.slips is not None
        features = mention.slips.indices, mention.slips.values
        is_wide = limits > SLIP_LIMITS  # of many names few are the mention's own
        has_payload = mention.vector is None or is_wide
        # One more than is looked at shows whether a tie reaches over the end.
        return NameQuery(limits * self.lexical_limit + is_wide, lexical=features, has_payload=has_payload)

    def _match_slips(self, mention: _Mention, points: Sequence[EnginePoint]) -> _Steps[bool]:
        """Take what slips found, and where nothing of it is near, look through many more names, to keep those that are
        the mention's own. Returns whether there is one.
        """
        n_before, most = len(mention.rescored), SLIP_LIMITS * self.lexical_limit
        mention.by_slips = mention.want(best_points(points, most))
        yield from self._rescore(mention)
        if self._has_match(mention, n_before):
            return True
        # Where slips found fewer, there are no more.
        if len(mention.by_slips) < self.engine.allowed(most) or not mention.is_wide:
            return False
        if not mention.is_alone:
            wide = self._query_by_slips(mention, WIDE_LIMITS)
            points = (yield [wide._replace(has_whole_ties=False)])[0]
        tried, read = mention.wanted, self.engine.read
        some = clear_points(points, WIDE_LIMITS * self.lexical_limit)
        own = [point for point in some if point.id not in tried and self._is_match(mention, read(point.payload))]
        if own:
            mention.by_slips = mention.want(own)
            yield from self._rescore(mention)
        return bool(own)

    def _is_match(self, mention: _Mention, name: NamePoint) -> bool:
        return self.own is not None and self.own.is_match(mention.number, name)

    def _has_match(self, mention: _Mention, start: int = 0) -> bool:
        """Whether one of the points found is the mention's own name, of those with a dense score from `start` on."""
        return any(self._is_match(mention, found.name) for found in chain(mention.rescored[start:], mention.vectorless))

    def _rescore(self, mention: _Mention) -> _Steps[None]:
        """Fetch dense scores and payloads of points without a score; then payloads of those without a vector."""
        read = self.engine.read
        if mention.vector is None:
            found = {point.id: point for point in chain(mention.by_keys, mention.by_slips, mention.by_ngrams)}
            mention.vectorless = [_Found(point.score, read(point.payload), point) for point in found.values()]
            return
        missing = mention.wanted - mention.done
        mention.done |= missing
        n, sent = len(missing), missing & mention.scored.keys()
        points = [mention.scored[one] for one in sent]
        if missing := missing - sent:
            fetched = yield self._queries_by_ids(missing, vector=mention.vector)
            points += chain.from_iterable(fetched)
            # Mostly all have a vector, and reading an id takes 2 us.
            missing = missing.difference(point.id for point in points) if len(points) < n else set()
        mention.rescored = [*mention.rescored, *(_Found(point.score, read(point.payload), point) for point in points)]
        queries = []
        slips = None if mention.slips is None else (mention.slips.indices, mention.slips.values)
        for lexical, by_lexical in (
            (mention.keys, mention.by_keys),
            (slips, mention.by_slips),
            (mention.ngrams, mention.by_ngrams),
        ):
            ids = missing.intersection(point.id for point in by_lexical) if missing else missing
            queries += self._queries_by_ids(ids, lexical=lexical)
            missing = missing - ids
        if queries:
            fetched = yield queries
            found_now = [_Found(one.score, read(one.payload), one) for one in chain.from_iterable(fetched)]
            mention.vectorless = [*mention.vectorless, *found_now]

    def _queries_by_ids(
        self, ids: Collection[PointId], *, vector: FloatArray | None = None, lexical: Features | None = None
    ) -> list[NameQuery]:
        """Queries for points by their ids; several where the engine takes fewer ids."""
        most, listed = self.engine.max_ids or len(ids), [*ids]
        pieces = [frozenset(listed[i : i + most]) for i in range(0, len(listed), most)] if listed else []
        return [NameQuery(len(piece), vector, lexical, ids=piece, has_whole_ties=False) for piece in pieces]
