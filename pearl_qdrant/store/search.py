"""Search: what both stores share. Queries and their answers; ties are ordered, payloads read.

An engine may return any of several points with an equal score. The answers here are always the same: equal scores are
ordered by point id, and where a tie reaches over the end of a result, more points are requested.

Both stores build one HNSW graph, with the parameters below. How often the nearest name is missed, in percent, compared
with exact search; 600 mentions of each kind, 571,074 names of a general base, candidates by int8 vectors. Columns:
links (m), candidates while building, of a search (ef).

                                    m 16, 100                       m 24, 200
                                    ef 32   64     128    256       ef 128  256    384
    as they stand                   0.4     0.2    0.0    0.0       0.0     0.0    0.0
    one slip                        7.2     4.4    1.2    0.2       0.8     0.3    0.3
    two slips                       16.0    7.2    4.4    1.8       1.7     0.7    0.2
    NAME in children ...            28.8    20.8   8.4    4.4       5.2     2.3    1.7
    us a query                      150     200    330    550       450     720    1,070
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

import numpy as np

from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.lexical.ngrams import SparseRows, UInt32Array
from pearl_qdrant.store.schema import NamePoint

M = 24  # links of a name in the graph
EF_CONSTRUCT = 200  # candidates while the graph is built
QUICK_EF = 64  # candidates of a search for a mention's own name: if it is found, no other search is needed
THOROUGH_EF = 384  # candidates of a search that also finds names that are only near

FILTER_EF = 64
"""Candidates of a search under a filter. Measured with 571,000 names and the filter ORG (8 %), as recall@15 of mentions
that are ORG and of any mentions: ef 64 0.992 and 0.940 in 0.8 ms, ef 128 0.994 and 0.970 in 1.4, ef 256 0.997 and 0.988
in 3.2."""

FULL_SCAN_KB = 40_000
"""A filter that passes fewer KB of vectors than this (27,000 vectors of 384 dimensions) is searched exactly. With int8
vectors that takes 2 ms, as long as the graph under a filter."""

OVERSAMPLING = 2.0  # times the wanted points that quantised vectors find; these are scored by the full vectors

BATCH_QUERIES = 64  # queries in one request: enough to hide a round trip, few enough to avoid a time-out
BATCH_MENTIONS = 8  # mentions that an embedded store searches together. Batches of 16 link no more mentions a second
_SURROGATE = re.compile("[\ud800-\udfff]")

_MORE = 4  # times the points where a tie reaches over the end
_MAX_TIES = 1000  # points of one score that are ordered at the end of a result


class ScoredName(NamedTuple):
    """A point found by search, with its cosine to the query vector, in [-1, 1]. Without a dense vector of the name or
    the query, there is no score (only from `Collection.search_hybrid`).
    """

    point: NamePoint
    score: float | None


PointId = str | int | UUID


class ScoredPoint(Protocol):
    """A point with a score. Reading a field may convert it, which costs time."""

    @property
    def score(self) -> float: ...

    @property
    def id(self) -> PointId: ...


P = TypeVar("P", bound=ScoredPoint)


class EnginePoint(ScoredPoint, Protocol):
    """A point that a query found, as either engine returns it."""

    @property
    def payload(self) -> Any: ...


Features = tuple[UInt32Array, FloatArray]  # indices and values, not empty


class NameQuery(NamedTuple):
    """One query of a batch: by dense vector, or by n-grams.

    With `ids`, as the engine returned them, only these points are searched; `vector` is then compared with the vectors
    at full precision, and the type filter does not apply. On a server, what `lexical` finds is scored by `scored_by` at
    full precision, and points without a dense vector are left out. A search in the graph that is not thorough is
    faster, and finds the mention's own name, but not all names that are merely near.
    """

    limit: int
    vector: FloatArray | None = None  # (dim,), not zero; None searches by `lexical`
    lexical: Features | None = None
    scored_by: FloatArray | None = None  # (dim,)
    ids: frozenset[PointId] | None = None
    has_payload: bool = True
    is_thorough: bool = False
    has_whole_ties: bool = True  # else the engine chooses which points it returns of those that score as the last one


IsNear = Callable[[NamePoint], bool]  # whether a name is near the query's own


@dataclass(frozen=True, slots=True)
class SlipQuery:
    """A search for the names that a mention may be a slip of, by their features (`lexical.keys.slip_features`)."""

    indices: UInt32Array  # (f,), features that such names have, ascending
    values: FloatArray  # (f,), > 0
    is_near: IsNear | None = None  # unless it is true for one of the first, many more names are looked through


IsMatch = Callable[[int, NamePoint], bool]
"""Takes the row of a query and a name; whether the name is so much the query's own that no other search is needed."""

MakeSlipQuery = Callable[[int], SlipQuery | None]  # takes the row of a query; None where nothing is to be searched


@dataclass(frozen=True, slots=True)
class OwnNames:
    """How the names that are a query's own are found, and told from others.

    Attributes:
        is_match: If it is true for a name that shares a key, the query is searched by keys and quickly by vector; if
            for one that slips find, by keys and slips alone.
        keys: q rows of keys (`lexical.keys.key_rows`); at most 2 x `lexical_limit` names are found by them.
        slips: Features of names one or two edits away; a query without a match is searched by them before n-grams, for
            at most 3 x `lexical_limit` names.
    """

    is_match: IsMatch
    keys: SparseRows | None = None
    slips: MakeSlipQuery | None = None


RunQueries = Callable[[Sequence[NameQuery]], "Sequence[Sequence[EnginePoint]]"]
"""One call of the engine: q queries to q lists, best first."""

SearchBatch = Callable[[range], "list[list[ScoredName]]"]
MapBatches = Callable[[SearchBatch, Sequence[range]], "Iterable[list[list[ScoredName]]]"]
"""As the built-in `map`; may run several batches at the same time."""


@dataclass(frozen=True, slots=True)
class SearchEngine:
    """One collection as the shared searches see it, under one type filter."""

    run: RunQueries  # one call of the engine
    read: Callable[[Any], NamePoint]  # of a payload
    dim: int
    max_points: int | None = None  # that one query may request
    max_ids: int | None = None  # that one query may name
    batch_mentions: int = BATCH_MENTIONS  # of a hybrid search in one call of the engine
    map_batches: MapBatches = map  # in order
    is_remote: bool = False  # a call of the engine is a request over a network

    def allowed(self, limit: int) -> int:
        """A number of points, cut to what one query may request."""
        return limit if self.max_points is None else min(limit, self.max_points)


_score = itemgetter(0)


def search_lexical(engine: SearchEngine, rows: SparseRows, limits: Sequence[int]) -> list[list[NamePoint]]:
    """Find names by features alone; arguments, result and errors as for `protocol.Collection.search_lexical`."""
    results: list[list[NamePoint]] = []
    queries = [
        NameQuery(engine.allowed(limit + 1), lexical=rows.row(i), has_whole_ties=False)
        for i, limit in enumerate(limits)
    ]
    for start in range(0, len(queries), BATCH_QUERIES):
        found = engine.run(queries[start : start + BATCH_QUERIES])
        for points, limit in zip(found, limits[start:], strict=False):
            kept = clear_points(points, limit) or best_points(points, limit)
            results.append([engine.read(point.payload) for point in kept])
    return results


def run_best(engine: SearchEngine, queries: Sequence[NameQuery]) -> list[list[EnginePoint]]:
    """Run q queries at once, each for at most its `limit`; again for more where a tie reaches over the end of a result.

    Returns:
        q lists, in any order; of the points that score as the last one, the first by id (`NameQuery.has_whole_ties`).
    """
    results: list[list[EnginePoint]] = [[] for _ in queries]
    most = [engine.allowed(query.limit + _MAX_TIES * query.has_whole_ties) for query in queries]
    # One point more than wanted shows whether a tie reaches over the end; where points take little, so many that the
    # tie mostly ends among them.
    wanted = [query.limit + 1 if query.has_payload else _MORE * query.limit for query in queries]
    n_requested = [min(n, n_most) for n, n_most in zip(wanted, most, strict=True)]
    open_rows = list(range(len(queries)))
    while open_rows:
        tied = []
        answers = engine.run([queries[i]._replace(limit=n_requested[i]) for i in open_rows])
        for i, points in zip(open_rows, answers, strict=True):
            limit = min(queries[i].limit, n_requested[i])
            is_cut = len(points) == n_requested[i] < most[i]
            if is_cut and (scores := sorted([point.score for point in points]))[-limit] == scores[0]:
                tied.append(i)
                n_requested[i] = min(_MORE * n_requested[i], most[i])
            else:
                results[i] = best_points(points, limit)
        open_rows = tied
    return results


def best_points(points: Sequence[EnginePoint], limit: int) -> list[EnginePoint]:
    """The `limit` best points in any order; of those that score as the last one, the first by id."""
    if len(points) <= limit:
        return list(points)
    scored = [(point.score, point) for point in points]
    last = sorted([score for score, _ in scored], reverse=True)[limit - 1]
    better = [point for score, point in scored if score > last]
    equal = [point for score, point in scored if score == last]
    if len(better) + len(equal) > limit:
        equal = sorted(equal, key=point_order)[: limit - len(better)]
    return better + equal


def clear_points(points: Sequence[EnginePoint], limit: int) -> list[EnginePoint]:
    """The best points, at most `limit`, without those that score as one that is left out; of more than `limit`."""
    if len(points) <= limit:
        return list(points)
    scored = [(point.score, point) for point in points]
    left_out = sorted([score for score, _ in scored], reverse=True)[limit]
    return [point for score, point in scored if score > left_out]


def point_order(point: ScoredPoint) -> int | str:
    """The id of a point, in the order of the texts of ids."""
    point_id = point.id
    return point_id.int if isinstance(point_id, UUID) else str(point_id)


def check_vectors(vectors: FloatArray, dim: int, limit: int) -> None:
    """Raise ValueError if vectors have another width or are not finite, or `limit` is not positive."""
    if vectors.ndim != 2 or vectors.shape[1] != dim or not np.isfinite(vectors).all():
        raise ValueError(f"query vectors must be finite and of shape (q, {dim}), these are {vectors.shape}")
    check_limit(limit)


def check_limit(limit: int) -> None:
    """Raise ValueError if a limit is not positive."""
    if limit < 1:
        raise ValueError(f"limit must be positive, it is {limit}")


def clip_cosine(score: float) -> float:
    """Clip a score of the engine to [-1, 1]: rounding can take it just past 1."""
    return max(-1.0, min(1.0, score))


def order_points(points: Sequence[P]) -> list[P]:
    """Order points, best first, equal scores by point id."""
    scored = sorted([(point.score, point) for point in points], key=_score, reverse=True)
    ordered: list[P] = []
    for _, group in groupby(scored, key=_score):
        equal = [point for _, point in group]
        if len(equal) > 1:  # reading an id takes 4 us
            equal.sort(key=point_order)
        ordered += equal
    return ordered


def keep_valid(values: Iterable[str]) -> list[str]:
    """Keep the values that are valid Unicode: no point has another one, and it cannot be sent."""
    return [value for value in values if _SURROGATE.search(value) is None]


def chunks(values: Sequence[str], n: int) -> Iterable[list[str]]:
    """Cut values into lists of at most `n`."""
    for start in range(0, len(values), n):
        yield list(values[start : start + n])


@dataclass(frozen=True, slots=True)
class CollectionStatus:
    """Counts, graph and indexes of a collection.

    Attributes:
        points, segments: Exact numbers.
        vectors: Points with a dense vector; the others are unencodable names.
        indexed_vectors: Dense vectors in an HNSW graph; the others are searched exactly.
        is_finalized: Whether the graph is built, or the collection is too small to need one.
        payload_indexes: Indexed payload fields.
        foreign_points: Points that another program wrote, on a server; no other number counts them.
    """

    points: int
    vectors: int
    indexed_vectors: int
    segments: int
    is_finalized: bool
    payload_indexes: tuple[str, ...]
    foreign_points: int = 0


def n_candidates(query: NameQuery, *, is_filtered: bool) -> int:
    """Return the candidates of a search in the graph; at least as many as are wanted."""
    ef = THOROUGH_EF if query.is_thorough else QUICK_EF
    return max(FILTER_EF if is_filtered else ef, query.limit)


def share_indexed(indexed: int, n_vectors: int, n_sparse: int) -> int:
    """Estimate how many of `n_vectors` dense ones are in a graph, from Qdrant's count, which has sparse ones too."""
    return min(n_vectors, round(indexed * n_vectors / max(1, n_vectors + n_sparse)))
