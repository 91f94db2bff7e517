"""Filters and nearest-neighbour queries against a server.

Queries and answers travel as plain JSON. qdrant-client's models copy and check each of them: two queries with 64 hits
took twice as long. Answers become objects that the garbage collector does not look at, which took a quarter of a link.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import orjson
from qdrant_client import models

from pearl_qdrant.store import graph
from pearl_qdrant.store.schema import DENSE, FILTER_FIELD, LEXICAL, OVERSAMPLING, Quantization
from pearl_qdrant.store.search import FoundPoint, NameQuery, storable
from pearl_qdrant.store.server.connection import Connection
from pearl_qdrant.store.server.limits import Limits, at_most

_WHOLE = {"quantization": {"ignore": True}}  # for points that are found already


class Hit(msgspec.Struct, frozen=True, gc=False):
    """A point that a query found; the payload is read when it is wanted."""

    id: str | int
    score: float
    payload: msgspec.Raw = msgspec.Raw(b"null")


class _Found(msgspec.Struct, gc=False):
    """What one query found."""

    points: list[Hit]


class _Answer(msgspec.Struct, gc=False):
    """What a batch of queries is answered."""

    result: list[_Found]


_read_answer = msgspec.json.Decoder(_Answer).decode


def type_filter(types: Sequence[str]) -> models.Filter | None:
    """Points of these types; None if there is nothing that could match, or no filter is wanted.

    A point matches by a native or a coarse type of its base, or, where the base gives no coarse type, by the type
    that the head predicted.
    """
    values = storable(types)
    if not values:
        return None
    return models.Filter(must=[models.FieldCondition(key=FILTER_FIELD, match=models.MatchAny(any=values))])


def run_queries(
    connection: Connection,
    collection: str,
    queries: Sequence[NameQuery],
    *,
    query_filter: models.Filter | None,
    quantization: Quantization,
    limits: Limits,
) -> Sequence[Sequence[FoundPoint]]:
    """Points by dense vector or by n-grams, in one request, or in several where strict mode allows few queries in one.

    Args:
        connection: Where to ask.
        collection: Which collection.
        queries: q queries.
        query_filter: Which points may be found.
        quantization: Of the collection.
        limits: Of strict mode.

    Returns:
        q lists.

    Raises:
        StoreError: If the server does not answer, refuses, or answers something else.
    """
    wanted = None if query_filter is None else query_filter.model_dump(mode="json", exclude_none=True)
    searches = [_search(query, wanted, quantization, limits) for query in queries]
    if connection.is_local:
        return _ask_local(connection, collection, searches)
    found: list[Sequence[FoundPoint]] = []
    n_together = at_most(len(searches), limits.searches)
    for start in range(0, len(searches), max(1, n_together)):
        found += _ask(connection, collection, searches[start : start + n_together])
    return found


def _ask(connection: Connection, collection: str, searches: Sequence[dict[str, Any]]) -> list[list[Hit]]:
    """One request."""
    body = orjson.dumps({"searches": searches}, option=orjson.OPT_SERIALIZE_NUMPY)
    path = "/collections/{name}/points/query/batch"
    return connection.call_rest(
        "POST", path, body, collection=collection, read=lambda content: _hits(content, len(searches))
    )


def _search(
    query: NameQuery, wanted: dict[str, Any] | None, quantization: Quantization, limits: Limits
) -> dict[str, Any]:
    """One query as the server takes it."""
    search: dict[str, Any] = {"limit": query.limit, "with_payload": query.has_payload}
    if query.vector is not None:
        # Quantised vectors only find: Qdrant does not score anew unless told. Of points that are found already, the
        # whole ones are compared at once.
        oversampling = at_most(OVERSAMPLING[quantization], limits.oversampling)
        ef = at_most(graph.candidates(query, is_filtered=wanted is not None), limits.ef)
        rescore = {"hnsw_ef": ef, "quantization": {"rescore": True, "oversampling": oversampling}}
        params = rescore if query.ids is None else _WHOLE
        search |= {"query": np.ascontiguousarray(query.vector, dtype=np.float32), "using": DENSE, "params": params}
    else:
        assert query.lexical is not None
        indices, values = query.lexical
        search |= {"query": {"indices": indices, "values": values}, "using": LEXICAL}
    if query.ids is not None:
        search["filter"] = {"must": [{"has_id": sorted(map(str, query.ids))}]}
    elif wanted is not None:
        search["filter"] = wanted
    return search


def _hits(content: bytes, n_queries: int) -> list[list[Hit]]:
    """What a batch of queries answered.

    Raises:
        ValueError, RecursionError: If it is no such answer.
    """
    found = _read_answer(content).result
    if len(found) != n_queries:
        raise ValueError(f"{len(found)} answers for {n_queries} queries")
    return [one.points for one in found]


def _ask_local(connection: Connection, collection: str, searches: Sequence[dict[str, Any]]) -> list[list[FoundPoint]]:
    """The same of qdrant-client's local mode, which takes models, searches exactly, and warns of parameters."""
    requests = []
    for search in searches:
        plain = orjson.loads(orjson.dumps(search | {"params": None}, option=orjson.OPT_SERIALIZE_NUMPY))
        requests.append(models.QueryRequest.model_validate(plain))
    answers: list[models.QueryResponse] = connection.call(
        lambda: connection.client.query_batch_points(collection, requests=requests), collection=collection
    )
    return [list(answer.points) for answer in answers]
