"""Filters, queries and pages of points, as a server takes and answers them.

Answers become objects that the garbage collector does not follow; with dictionaries it took a quarter of the time of a
link.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import orjson

from pearl_qdrant.store import graph
from pearl_qdrant.store.protocol import PointFilter
from pearl_qdrant.store.schema import DENSE, FILTER_FIELD, LANGUAGE_FIELD, LEXICAL, Quantization
from pearl_qdrant.store.search import EnginePoint, NameQuery
from pearl_qdrant.store.server.answers import Limits, at_most
from pearl_qdrant.store.server.connection import Connection

_FULL_PRECISION = {"quantization": {"ignore": True}}  # for given points: compare vectors at full precision

_POINTS = "/collections/{name}/points"

ServerFilter = dict[str, Any]


class Hit(msgspec.Struct, frozen=True, gc=False):
    """A point that a query found; its payload is parsed when it is used."""

    id: str | int
    score: float
    payload: msgspec.Raw = msgspec.Raw(b"null")


class _QueryResult(msgspec.Struct, gc=False):
    """The answer to one query."""

    points: list[Hit]


def to_filter(point_filter: PointFilter | None) -> ServerFilter | None:
    """Make the server's filter; None if there is no condition."""
    if point_filter is None:
        return None
    wanted = {
        "entity_id": point_filter.entity_ids,
        "name": point_filter.names,
        FILTER_FIELD: point_filter.types,
    }
    must: list[ServerFilter] = [{"key": key, "match": {"any": values}} for key, values in wanted.items() if values]
    if point_filter.languages:
        one_of = {"key": LANGUAGE_FIELD, "match": {"any": point_filter.languages}}
        must.append({"should": [one_of, {"is_empty": {"key": LANGUAGE_FIELD}}]})
    return {"must": must} if must else None


def run_queries(
    connection: Connection,
    collection: str,
    queries: Sequence[NameQuery],
    *,
    query_filter: ServerFilter | None,
    quantization: Quantization,
    limits: Limits,
) -> Sequence[Sequence[EnginePoint]]:
    """Run q queries by dense vector or by n-grams, in one request, or in several if strict mode requires it.

    Returns:
        q lists.

    Raises:
        StoreError: If the server does not answer, refuses the request, or sends an answer of another form.
    """
    searches = [_search(query, query_filter, quantization, limits) for query in queries]
    answers: list[Sequence[EnginePoint]] = []
    n_together = max(1, at_most(len(searches), limits.searches))
    for start in range(0, len(searches), n_together):
        some = searches[start : start + n_together]
        body = orjson.dumps({"searches": some}, option=orjson.OPT_SERIALIZE_NUMPY)
        results = connection.ask(list[_QueryResult], "POST", _POINTS + "/query/batch", body, name=collection)
        if len(results) != len(some):
            raise connection.bad_answer(f"{len(results)} answers for {len(some)} queries", collection)
        answers += [result.points for result in results]
    return answers


class Row(msgspec.Struct, gc=False):
    """A point; with its dense vector, if that was requested and it has one."""

    id: str | int
    payload: msgspec.Raw = msgspec.Raw(b"null")
    vector: dict[str, list[float]] | None = None


class _RowsPage(msgspec.Struct, gc=False):
    """A page of a scroll, and where the next one begins."""

    points: list[Row]
    next_page_offset: str | int | None = None


def scroll(
    connection: Connection,
    collection: str,
    *,
    page: int,
    query_filter: ServerFilter | None = None,
    with_vectors: bool = False,
) -> Iterator[list[Row]]:
    """Yield all points that pass a filter, ordered by point id, in pages; with dense vectors if that is wanted."""
    vectors = [DENSE] if with_vectors else False
    offset: str | int | None = None
    while True:
        request = {"limit": page, "offset": offset, "filter": query_filter, "with_vector": vectors}
        request["with_payload"] = True
        answer = connection.ask(_RowsPage, "POST", _POINTS + "/scroll", request, name=collection)
        yield answer.points
        offset = answer.next_page_offset
        if offset is None:
            return


def retrieve(connection: Connection, collection: str, ids: Sequence[str], *, dim: int | None = None) -> list[Row]:
    """Request points by their ids, in one request; missing ones are left out.

    With `dim`, their dense vectors of that width take the place of payloads.
    """
    wanted = {"with_payload": True, "with_vector": False} if dim is None else {"with_vector": [DENSE]}
    body = {"ids": [*ids], "with_payload": False} | wanted
    rows = connection.ask(list[Row], "POST", _POINTS, body, name=collection)
    if dim is not None and any(len(row.vector.get(DENSE, ())) not in (0, dim) for row in rows if row.vector):
        raise connection.bad_answer(f"a vector does not have {dim} dimensions", collection)
    return rows


def _search(
    query: NameQuery, wanted: ServerFilter | None, quantization: Quantization, limits: Limits
) -> dict[str, Any]:
    """Make one query as the server takes it."""
    search: dict[str, Any] = {"limit": query.limit, "with_payload": query.has_payload}
    if query.vector is not None:
        # Quantised vectors only find candidates. Qdrant scores these with the full vectors only if requested; for
        # given points it compares the full vectors at once.
        oversampling = at_most(graph.OVERSAMPLING[quantization], limits.oversampling)
        ef = at_most(graph.candidates(query, is_filtered=wanted is not None), limits.ef)
        rescore = {"hnsw_ef": ef, "quantization": {"rescore": True, "oversampling": oversampling}}
        params = rescore if query.ids is None else _FULL_PRECISION
        search |= {"query": np.ascontiguousarray(query.vector, dtype=np.float32), "using": DENSE, "params": params}
    else:
        assert query.lexical is not None
        indices, values = query.lexical
        search |= {"query": {"indices": indices, "values": values}, "using": LEXICAL}
        if query.scored_by is not None:
            found = {key: search[key] for key in ("query", "using", "limit")}
            prefetch = found if wanted is None else {**found, "filter": wanted}
            vector = np.ascontiguousarray(query.scored_by, dtype=np.float32)
            return {**search, "prefetch": [prefetch], "query": vector, "using": DENSE, "params": _FULL_PRECISION}
    if query.ids is not None:
        search["filter"] = {"must": [{"has_id": sorted(map(str, query.ids))}]}
    elif wanted is not None:
        search["filter"] = wanted
    return search
