"""Filters and nearest-neighbour queries against a server."""

from __future__ import annotations

from collections.abc import Sequence

from qdrant_client import models

from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.store.schema import DENSE, FILTER_FIELD, OVERSAMPLING, Quantization
from pearl_qdrant.store.search import FoundPoint, storable
from pearl_qdrant.store.server_connection import Connection


def type_filter(types: Sequence[str]) -> models.Filter | None:
    """Points of these types; None if there is nothing that could match, or no filter is wanted.

    A point matches by a native or a coarse type of its base, or, where the base gives no coarse type, by the type
    that the head predicted.
    """
    values = storable(types)
    if not values:
        return None
    return models.Filter(must=[models.FieldCondition(key=FILTER_FIELD, match=models.MatchAny(any=values))])


def query_batch(
    connection: Connection,
    collection: str,
    vectors: FloatArray,
    *,
    limit: int,
    query_filter: models.Filter | None,
    quantization: Quantization,
) -> Sequence[Sequence[FoundPoint]]:
    """Points near each vector, in one request.

    Args:
        connection: Where to ask.
        collection: Which collection.
        vectors: (q, dim), no row of zeros.
        limit: Points a query at most.
        query_filter: Which points may be found.
        quantization: Of the collection.

    Returns:
        q lists.
    """
    params = None  # local mode searches exactly, and warns of any
    if not connection.is_local:
        # Quantised vectors only find: Qdrant does not score anew unless told.
        rescore = models.QuantizationSearchParams(rescore=True, oversampling=OVERSAMPLING[quantization])
        params = models.SearchParams(quantization=rescore)
    requests = [
        models.QueryRequest(query=row, using=DENSE, filter=query_filter, limit=limit, with_payload=True, params=params)
        for row in vectors.tolist()
    ]
    answers: list[models.QueryResponse] = connection.call(
        lambda: connection.client.query_batch_points(collection, requests=requests), collection=collection
    )
    return [answer.points for answer in answers]
