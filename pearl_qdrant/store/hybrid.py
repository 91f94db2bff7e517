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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from uuid import UUID

import numpy as np

from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.lexical.ngrams import SparseRows, UInt32Array
from pearl_qdrant.store.search import (
    EnginePoint,
    IsMatch,
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
        scored: All points with a dense score that a server has sent so far, by id.
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
    scored: dict[str | int | UUID, EnginePoint] = field(default_factory=dict)

    @property
    def is_wide(self) -> bool:
        """Whether many more names are looked through where slips do not lead to its own."""
        return self.slips is not None and self.slips.is_wide and self.vector is not None

    def take_nearest(self, points: Sequence[EnginePoint]) -> None:
        """Take what a search by vector found."""
        self.by_vector = points
        if self.rescored:  # found by keys or slips before
            known = {point.id for point in points}
            self.rescored = [point for point in self.rescored if point.id not in known]

    def take_scored(self) -> frozenset[str | int | UUID]:
        """Take the scores that are known by now; returns the ids of the points without one."""
        ids = self.ids_without_score()
        found = [self.scored[one] for one in ids if one in self.scored] if self.scored else []
        self.rescored = [*self.rescored, *found]
        return ids.difference(point.id for point in found)

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
    """Find names near by dense vector, by keys, slips or n-grams.

    Arguments, result and errors as for `protocol.Collection.search_hybrid`.
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
        points = mention.by_vector
        if mention.rescored:
            points, _ = order_points([*points, *mention.rescored])
        for point in points:
            yield ScoredName(read(point.payload), clip_cosine(point.score))
        for point in sorted(mention.vectorless, key=lambda point: str(point.id)):
            yield ScoredName(read(point.payload), None)

    def _search_by_keys(self, mentions: Sequence[_Mention]) -> tuple[list[_Mention], list[_Mention]]:
        """Search by keys: this finds the mention's own name if there is one. Returns where it did, and where not."""
        with_keys = [mention for mention in mentions if mention.keys is not None]
        answers = run_ordered(self.engine, [self._query_by_keys(mention) for mention in with_keys])
        for mention, points in zip(with_keys, answers, strict=True):
            mention.by_keys = points
        self._rescore(with_keys)
        is_own = [self._has_match(mention, chain(mention.rescored, mention.vectorless)) for mention in mentions]
        own = [mention for mention, found in zip(mentions, is_own, strict=True) if found]
        return own, [mention for mention, found in zip(mentions, is_own, strict=True) if not found]

    def _search_quickly(self, mentions: Sequence[_Mention]) -> None:
        """Search by dense vector for what is near a mention whose own name is found."""
        with_vector = [mention for mention in mentions if mention.vector is not None]
        answers = run_ordered(self.engine, [NameQuery(self.limit, vector=mention.vector) for mention in with_vector])
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
            replace(query, limit=self._most_scored(query), has_payload=True, scored_by=mention.vector)
            for query in (() if mention.vector is None else sparse)
        ]
        answers = run_ordered(self.engine, [*dense, *sparse, *scoring])
        ends = len(dense), len(dense) + len(sparse)
        for points in [*answers[: ends[0]], *answers[ends[1] :]]:
            mention.scored.update((point.id, point) for point in points)
        return answers[: ends[0]], answers[ends[0] : ends[1]]

    def _most_scored(self, query: NameQuery) -> int:
        """How many points of a query come with a dense score: not all of a wide one, whose payloads take long.

        It is one more than is wanted: with equal scores at the end it may find another point than the plain query.
        """
        return min(query.limit, SLIP_LIMITS * self.lexical_limit) + 1

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

        Returns the numbers of the mentions that have some.
        """
        asking = [mention for mention in mentions if mention.is_wide]
        answers = run_ordered(self.engine, [self._query_by_slips(mention, WIDE_LIMITS) for mention in asking])
        return self._match_widely(list(zip(asking, answers, strict=True)))

    def _match_widely(self, found: Sequence[tuple[_Mention, list[EnginePoint]]]) -> set[int]:
        """Keep those of many names that are the mention's own; returns as `_search_widely`."""
        matched = []
        for mention, points in found:
            tried = {point.id for point in mention.by_slips}
            own = [point for point in points if point.id not in tried and self._has_match(mention, [point])]
            if own:
                mention.by_slips = own
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
        has_payload = mention.vector is None or limits > SLIP_LIMITS  # of many names few are the mention's own
        return NameQuery(limits * self.lexical_limit, lexical=features, has_payload=has_payload)

    def _query_by_keys(self, mention: _Mention) -> NameQuery:
        return NameQuery(KEY_LIMITS * self.lexical_limit, lexical=mention.keys, has_payload=mention.vector is None)

    def _query_by_ngrams(self, mention: _Mention) -> NameQuery:
        # A payload is needed here only if no dense query will return it later.
        return NameQuery(self.lexical_limit, lexical=mention.ngrams, has_payload=mention.vector is None)

    def _query_thoroughly(self, mention: _Mention) -> NameQuery:
        return NameQuery(self.limit, vector=mention.vector, is_thorough=True)

    def _has_match(self, mention: _Mention, points: Iterable[EnginePoint]) -> bool:
        """Whether one of some points is the mention's own name."""
        assert self.is_match is not None
        return any(self.is_match(mention.number, self.engine.read(point.payload)) for point in points)

    def _search_both_ways(self, mentions: Sequence[_Mention]) -> None:
        """Search by dense vector, thoroughly, and by n-grams."""
        dense = [mention for mention in mentions if mention.vector is not None]
        sparse = [mention for mention in mentions if mention.ngrams is not None]
        queries = [self._query_thoroughly(mention) for mention in dense]
        answers = run_ordered(self.engine, [*queries, *(self._query_by_ngrams(mention) for mention in sparse)])
        for mention, points in zip(dense, answers[: len(dense)], strict=True):
            mention.take_nearest(points)
        for mention, points in zip(sparse, answers[len(dense) :], strict=True):
            mention.by_ngrams = points

    def _search_alone(self, mention: _Mention) -> None:
        """Search for one mention over a network, with one request where its own name is found, else with two."""
        if mention.keys is not None:
            quick = [] if mention.vector is None else [NameQuery(self.limit, vector=mention.vector)]
            by_vector, (mention.by_keys,) = self._run_at_once(mention, quick, [self._query_by_keys(mention)])
            self._rescore([mention])
            if self._has_match(mention, chain(mention.rescored, mention.vectorless)):
                if by_vector:
                    mention.take_nearest(by_vector[0])
                return
        self._search_further_at_once(mention)

    def _search_further_at_once(self, mention: _Mention) -> None:
        """Search for one mention by slips, by dense vector and by n-grams, in one request.

        What is searched later with several requests does not count where slips lead to the mention's own name.
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
            mention.by_slips = by_ngrams[0][: SLIP_LIMITS * self.lexical_limit]
            self._rescore([mention])
            if self._has_match(mention, chain(mention.rescored[n_before:], mention.vectorless)):
                return
            if mention.is_wide and self._match_widely([(mention, by_ngrams[0])]):
                return
        if dense:
            mention.take_nearest(by_vector[0])
        if mention.ngrams is not None:
            mention.by_ngrams = by_ngrams[n_slips]
        self._rescore([mention])

    def _rescore(self, mentions: Sequence[_Mention]) -> None:
        """Fetch dense scores and payloads of points without a score; then payloads of those without a vector."""
        scoring, queries = [], []
        for mention in mentions:
            if mention.vector is None:
                mention.vectorless = _distinct(mention.by_keys, mention.by_slips, mention.by_ngrams)
            elif ids := mention.take_scored():
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


def _distinct(*groups: Sequence[EnginePoint]) -> list[EnginePoint]:
    """The points of several results, each once."""
    return list({point.id: point for point in chain(*groups)}.values())
