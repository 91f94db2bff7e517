"""Filters and nearest-neighbour queries against a server."""

from __future__ import annotations

from collections.abc import Sequence

from qdrant_client import models

from pearl_qdrant.store.schema import DENSE, FILTER_FIELD, LEXICAL, OVERSAMPLING, Quantization
from pearl_qdrant.store.search import FoundPoint, NameQuery, storable
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


def run_queries(
    connection: Connection,
    collection: str,
    queries: Sequence[NameQuery],
    *,
    query_filter: models.Filter | None,
    quantization: Quantization,
) -> Sequence[Sequence[FoundPoint]]:
    """Points by dense vector or by n-grams, in one request.

    Args:
        connection: Where to ask.
        collection: Which collection.
        queries: q queries.
        query_filter: Which points may be found.
        quantization: Of the collection.

    Returns:
        q lists.
    """
    requests = [_request(query, query_filter, quantization, is_local=connection.is_local) for query in queries]
    answers: list[models.QueryResponse] = connection.call(
        lambda: connection.client.query_batch_points(collection, requests=requests), collection=collection
    )
    return [answer.points for answer in answers]


def _request(
    query: NameQuery, query_filter: models.Filter | None, quantization: Quantization, *, is_local: bool
) -> models.QueryRequest:
    """One query as the server takes it."""
    nearest: list[float] | models.SparseVector
    params = None
    if query.vector is not None:
        nearest = query.vector.tolist()
        if not is_local:  # local mode searches exactly, and warns of any
            # Quantised vectors only find: Qdrant does not score anew unless told. Of points that are found already,
            # the whole ones are compared at once.
            found = models.QuantizationSearchParams(ignore=True)
            rescore = models.QuantizationSearchParams(rescore=True, oversampling=OVERSAMPLING[quantization])
            params = models.SearchParams(quantization=rescore if query.ids is None else found)
    else:
        assert query.lexical is not None
        indices, values = query.lexical
        nearest = models.SparseVector(indices=indices.tolist(), values=values.tolist())
    if query.ids is not None:
        ids: list[models.ExtendedPointId] = sorted(map(str, query.ids))
        query_filter = models.Filter(must=[models.HasIdCondition(has_id=ids)])
    return models.QueryRequest(
        query=nearest,
        using=LEXICAL if query.vector is None else DENSE,
        filter=query_filter,
        limit=query.limit,
        with_payload=query.has_payload,
        params=params,
    )
