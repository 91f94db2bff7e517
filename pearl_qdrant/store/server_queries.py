"""Filters and nearest-neighbour queries against a server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from qdrant_client import models

from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.store.schema import DENSE, FILTER_FIELD
from pearl_qdrant.store.server_connection import Connection

MAX_BATCH_QUERIES = 64
"""Queries a request: enough to hide the round trip, and few enough for a request's time-out."""

_MAX_TIES = 1000  # points of one score that are put in order at the end of a result


@dataclass(frozen=True, slots=True)
class FoundPoint:
    """A point that a query found: its id, payload and cosine."""

    id: str
    payload: dict[str, Any]
    score: float


def storable(values: Iterable[str]) -> list[str]:
    """The values that a point can have at all: one with a lone surrogate matches nothing and cannot be sent."""
    kept = []
    for value in values:
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            continue
        kept.append(value)
    return kept


def chunks(values: Sequence[str], n: int) -> Iterator[list[str]]:
    """Cut values into lists of at most `n`."""
    for start in range(0, len(values), n):
        yield list(values[start : start + n])


def type_filter(types: Sequence[str]) -> models.Filter | None:
    """Points of these types; None if there is nothing that could match, or no filter is wanted.

    A point matches by a native or a coarse type of its base, or, where the base gives no coarse type, by the type
    that the head predicted.
    """
    values = storable(types)
    if not values:
        return None

    return models.Filter(must=[models.FieldCondition(key=FILTER_FIELD, match=models.MatchAny(any=values))])


def nearest(
    connection: Connection, collection: str, vectors: FloatArray, *, limit: int, query_filter: models.Filter | None
) -> list[list[FoundPoint]]:
    """Nearest points of each vector, best first, equal scores by point id.

    Args:
        connection: Where to ask.
        collection: Which collection.
        vectors: (q, dim), no row of zeros.
        limit: Points a query at most.
        query_filter: Which points may be found.

    Returns:
        q lists.
    """
    results: list[list[FoundPoint]] = []
    for start in range(0, len(vectors), MAX_BATCH_QUERIES):
        rows = vectors[start : start + MAX_BATCH_QUERIES].tolist()
        results += _nearest_in_order(connection, collection, rows, limit, query_filter)
    return results


def _nearest_in_order(
    connection: Connection, collection: str, rows: list[list[float]], limit: int, query_filter: models.Filter | None
) -> list[list[FoundPoint]]:
    """One request; asks again, for more points, where a tie reaches over the end of the result.

    A server returns any of several points with an equal score. Which one stands at the end must not be left to it.
    """
    results: list[list[FoundPoint]] = [[] for _ in rows]
    open_rows, fetch, most = list(range(len(rows))), limit + 1, limit + _MAX_TIES
    while open_rows:
        found = _query(connection, collection, [rows[i] for i in open_rows], fetch, query_filter)
        tied = []
        for i, points in zip(open_rows, found, strict=True):
            results[i] = points[:limit]
            if len(points) == fetch and points[limit - 1].score == points[-1].score and fetch < most:
                tied.append(i)
        open_rows, fetch = tied, min(4 * fetch, most)
    return results


def _query(
    connection: Connection, collection: str, rows: list[list[float]], limit: int, query_filter: models.Filter | None
) -> list[list[FoundPoint]]:
    """One batch request."""
    requests = [
        models.QueryRequest(query=row, using=DENSE, filter=query_filter, limit=limit, with_payload=True) for row in rows
    ]
    answers = connection.call(
        lambda: connection.client.query_batch_points(collection, requests=requests), collection=collection
    )
    results = []
    for answer in answers:
        # Rounding in the engine can take a cosine just past 1.
        points = [FoundPoint(str(p.id), p.payload or {}, max(-1.0, min(1.0, p.score))) for p in answer.points]
        results.append(sorted(points, key=lambda point: (-point.score, point.id)))
    return results
