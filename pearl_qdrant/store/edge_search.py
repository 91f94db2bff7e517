"""Nearest-neighbour queries against an embedded collection."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qdrant_edge import (
    AcornSearchParams,
    CountRequest,
    Filter,
    HasIdCondition,
    QuantizationSearchParams,
    Query,
    QueryBatchRequest,
    QueryRequest,
    SearchParams,
    SparseVector,
)

from pearl_qdrant.store.edge_folder import CollectionFolder
from pearl_qdrant.store.edge_points import RECORD_FIELD
from pearl_qdrant.store.schema import DENSE, LEXICAL, OVERSAMPLING
from pearl_qdrant.store.search import FoundPoint, NameQuery

HNSW_EF = 32
"""Candidates that a search in the graph keeps; at least `limit` in any case. 74,000 names of a general base, int8
vectors rescored from twice as many: recall@16 0.984 (ef 32, 140 us a query), 0.990 (64, 210 us), 0.993 (128, 340 us),
the nearest name found every time; whole vectors with ef 128: 0.992 in 765 us."""

FILTER_EF = 64
"""The same under a filter. 571,000 names, ORG (8 %), recall@15 of mentions that are ORG and of any mentions: ef 64
0.992 and 0.940 in 0.8 ms, ef 128 0.994 and 0.970 in 1.4, ef 256 0.997 and 0.988 in 3.2."""

NARROW_SHARE = 0.15
"""A filter that passes less than this share of the points has links of its own in the graph. A wider one is searched by
ACORN, which looks past a neighbour that does not pass: GPE (42 %) 0.97 and 0.93 in 3 to 4 ms, where ef 256 without it
finds 0.97 and 0.89 in 1.8; ORG with ACORN 0.994 and 0.960 in 3 to 7 ms."""

_WHOLE = SearchParams(quantization=QuantizationSearchParams(ignore=True))  # for points that are found already


def is_narrow(folder: CollectionFolder, query_filter: Filter) -> bool:
    """Whether a filter passes less than `NARROW_SHARE` of the points, as the payload index estimates."""
    with folder.shard("searching it") as shard:
        n_points = shard.count(CountRequest(exact=False))
        return shard.count(CountRequest(exact=False, filter=query_filter)) < NARROW_SHARE * n_points


def run_queries(
    folder: CollectionFolder, queries: Sequence[NameQuery], *, query_filter: Filter | None, is_narrow: bool = False
) -> Sequence[Sequence[FoundPoint]]:
    """Points by dense vector or by n-grams, in one call of the engine.

    Args:
        folder: The open collection.
        queries: q queries.
        query_filter: Which points may be found.
        is_narrow: Whether that is less than `NARROW_SHARE` of them.

    Returns:
        q lists; payloads are records (`edge_points.py`).
    """
    dense = _dense_params(folder, query_filter, is_narrow)
    requests = [_request(query, query_filter, dense) for query in queries]
    with folder.shard("searching it") as shard:
        return shard.query_batch(QueryBatchRequest(requests))


def _request(query: NameQuery, query_filter: Filter | None, dense: Callable[[int], SearchParams]) -> QueryRequest:
    """One query as Edge takes it."""
    params = None
    if query.vector is not None:
        nearest = Query.Nearest(memoryview(query.vector), using=DENSE)  # type: ignore[arg-type] # half a list's time
        params = dense(query.limit) if query.ids is None else _WHOLE
    else:
        assert query.lexical is not None
        indices, values = query.lexical
        nearest = Query.Nearest(SparseVector(indices.tolist(), values.tolist()), using=LEXICAL)
    return QueryRequest(
        query=nearest,
        filter=query_filter if query.ids is None else Filter(must=[HasIdCondition({*query.ids})]),
        limit=query.limit,
        params=params,
        with_payload=[RECORD_FIELD] if query.has_payload else False,
    )


def _dense_params(
    folder: CollectionFolder, query_filter: Filter | None, is_narrow: bool
) -> Callable[[int], SearchParams]:
    """From the points wanted to how the graph is searched."""
    ef, acorn = HNSW_EF, None
    if query_filter is not None:
        ef = FILTER_EF
        acorn = None if is_narrow else AcornSearchParams(enable=True, max_selectivity=1.0)
    # Quantised vectors only find: Qdrant does not score anew unless told.
    rescore = QuantizationSearchParams(rescore=True, oversampling=OVERSAMPLING[folder.manifest.quantization])
    return lambda limit: SearchParams(hnsw_ef=max(ef, limit), acorn=acorn, quantization=rescore)
