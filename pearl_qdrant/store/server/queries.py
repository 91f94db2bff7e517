"""Filters and nearest-neighbour queries against a server.

Queries and answers are plain JSON, without qdrant-client's models: those copy and check everything, and two queries
with 64 hits took twice as long. Answers become objects that the garbage collector does not follow; with dictionaries
it took a quarter of the time of a link.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
import orjson
from qdrant_client import models

from pearl_qdrant.errors import StoreRejectedError
from pearl_qdrant.store.protocol import PointFilter
from pearl_qdrant.store.schema import DENSE, FILTER_FIELD, LANGUAGE_FIELD, LEXICAL
from pearl_qdrant.store.search import OVERSAMPLING, EnginePoint, NameQuery, n_candidates
from pearl_qdrant.store.server.connection import Connection
from pearl_qdrant.store.server.sizes import Learned

N = TypeVar("N", int, float)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of strict mode; None: no limit."""

    query: int | None = None  # points that a search, a scroll or a facet may request
    searches: int | None = None  # queries of one batch
    upsert: int | None = None  # points of one upsert
    values: int | None = None  # values of one condition
    ef: int | None = None  # candidates of a search in the graph
    oversampling: float | None = None  # of quantised vectors
    reads: int | None = None  # in a minute; a batch of queries costs its queries
    writes: int | None = None  # in a minute
    allows_exact: bool | None = None  # counts and facets; None: yes

    @classmethod
    def of(cls, info: models.CollectionInfo) -> Limits:
        """Read the limits of a collection; none if strict mode is off."""
        config = info.config.strict_mode_config
        if config is None or not config.enabled:
            return cls()
        return cls(
            query=config.max_query_limit,
            searches=getattr(config, "search_max_batchsize", None),  # servers from 1.17 on
            upsert=config.upsert_max_batchsize,
            values=config.condition_max_size,
            ef=config.search_max_hnsw_ef,
            oversampling=config.search_max_oversampling,
            reads=config.read_rate_limit,
            writes=config.write_rate_limit,
            allows_exact=False if config.search_allow_exact is False else None,
        )

    @property
    def ids(self) -> int | None:
        """Ids that one query may name, since it requests all of them."""
        return min((limit for limit in (self.query, self.values) if limit is not None), default=None)

    def check_query(self, limit: int, collection: str) -> None:
        if self.query is not None and limit > self.query:
            raise StoreRejectedError(
                f"The server's strict mode allows {self.query} points a query in collection '{collection}' "
                f"(max_query_limit), {limit} are needed. Request fewer candidates, or raise max_query_limit in the "
                f"collection's strict_mode_config."
            )


def at_most(value: N, limit: N | None) -> N:
    """Return the value, or the limit if that is lower."""
    return value if limit is None else min(value, limit)


_MAX_QUERIES = 1000  # in one request; those who search keep to fewer
_FULL_PRECISION = {"quantization": {"ignore": True}}  # for given points: compare vectors at full precision


class Hit(msgspec.Struct, frozen=True, gc=False):
    """A point that a query found; its payload is parsed when it is used."""

    id: str | int
    score: float
    payload: msgspec.Raw = msgspec.Raw(b"null")


class _QueryResult(msgspec.Struct, gc=False):
    points: list[Hit]


class Answer(msgspec.Struct, Generic[T], gc=False):
    """What a server answers."""

    result: T


_read_answer = msgspec.json.Decoder(Answer[list[_QueryResult]]).decode


def of_base(kb: str) -> models.FieldCondition:
    """The condition that a point is of this base: points that another program wrote have none."""
    return models.FieldCondition(key="kb", match=models.MatchValue(value=kb))


def to_filter(point_filter: PointFilter | None) -> models.Filter | None:
    """Make the server's filter; None if there is no condition."""
    if point_filter is None:
        return None
    wanted = {"entity_id": point_filter.entity_ids, "name": point_filter.names, FILTER_FIELD: point_filter.types}
    must: list[models.Condition] = [
        models.FieldCondition(key=field, match=models.MatchAny(any=list(values)))
        for field, values in wanted.items()
        if values
    ]
    if point_filter.languages:
        one_of = models.FieldCondition(key=LANGUAGE_FIELD, match=models.MatchAny(any=list(point_filter.languages)))
        none = models.IsEmptyCondition(is_empty=models.PayloadField(key=LANGUAGE_FIELD))
        must.append(models.Filter(should=[one_of, none]))
    return models.Filter(must=must) if must else None


def _to_json(query_filter: models.Filter | None) -> dict[str, Any] | None:
    return None if query_filter is None else query_filter.model_dump(mode="json", exclude_none=True)


def run_queries(
    connection: Connection,
    collection: str,
    queries: Sequence[NameQuery],
    *,
    query_filter: models.Filter | None,
    limits: Limits,
    learned: Learned,
    only_kb: str | None = None,
) -> Sequence[Sequence[EnginePoint]]:
    """Run q queries by dense vector or by n-grams, in one request, or in several if the server requires it; q lists.
    With `only_kb`, points of another program are not found. StoreError if the server does not answer, refuses a
    request, or sends an answer of another form.
    """
    ours = [] if only_kb is None else [of_base(only_kb)]
    is_filtered = query_filter is not None
    wanted = _to_json(models.Filter(must=[*([query_filter] if query_filter else []), *ours]) if ours else query_filter)
    searches = [
        orjson.dumps(_search(query, wanted, limits, is_filtered=is_filtered), option=orjson.OPT_SERIALIZE_NUMPY)
        for query in queries
    ]
    half_of_rate = None if limits.reads is None else max(1, limits.reads // 2)  # other reads have room beside them
    sizes = learned.of("queries", max(1, at_most(at_most(_MAX_QUERIES, limits.searches), half_of_rate)))
    return [*chain.from_iterable(sizes.send(searches, len, partial(_send, connection, collection)))]


def _send(connection: Connection, collection: str, searches: Sequence[bytes]) -> list[list[Hit]]:
    body = b'{"searches":[%s]}' % b",".join(searches)
    path = "/collections/{name}/points/query/batch"
    return connection.call_rest(
        "POST", path, body, collection=collection, read=lambda content: _hits(content, len(searches))
    )


class Row(msgspec.Struct, gc=False):
    """A point; with its dense vector, if that was requested and it has one."""

    id: str | int
    payload: msgspec.Raw = msgspec.Raw(b"null")
    vector: dict[str, list[float]] | None = None


class _RowsPage(msgspec.Struct, gc=False):
    points: list[Row]
    next_page_offset: str | int | None = None


_read_page = msgspec.json.Decoder(Answer[_RowsPage]).decode
_read_rows = msgspec.json.Decoder(Answer[list[Row]]).decode


def scroll(
    connection: Connection,
    collection: str,
    *,
    page: int,
    query_filter: models.Filter | None = None,
    with_payload: bool = True,
    with_vectors: bool = False,
) -> Iterator[list[Row]]:
    """Yield all points that pass a filter, ordered by id, `page` in one request; raises as `run_queries`."""
    request: dict[str, Any] = {"limit": page, "filter": _to_json(query_filter), "with_payload": with_payload}
    request["with_vector"] = [DENSE] if with_vectors else False
    offset: str | int | None = None
    while True:
        body = orjson.dumps(request | {"offset": offset})
        path = "/collections/{name}/points/scroll"
        page_read = connection.call_rest("POST", path, body, collection=collection, read=_read_page).result
        yield page_read.points
        offset = page_read.next_page_offset
        if offset is None:
            return


def retrieve(connection: Connection, collection: str, ids: Sequence[str], *, dim: int | None = None) -> list[Row]:
    """Request points by their ids, in one request; missing ones are left out. Raises as `run_queries`. With `dim`,
    dense vectors of that width are requested in place of payloads.
    """
    wanted = {"with_payload": True, "with_vector": False} if dim is None else {"with_vector": [DENSE]}

    def read(content: bytes) -> list[Row]:
        rows = _read_rows(content).result
        vectors = [row.vector[DENSE] for row in rows if row.vector and DENSE in row.vector]
        if dim is not None and any(len(vector) != dim for vector in vectors):
            raise ValueError(f"a vector does not have {dim} dimensions")
        return rows

    body = orjson.dumps({"ids": [*ids], "with_payload": False} | wanted)
    return connection.call_rest("POST", "/collections/{name}/points", body, collection=collection, read=read)


def _search(query: NameQuery, wanted: dict[str, Any] | None, limits: Limits, *, is_filtered: bool) -> dict[str, Any]:
    search: dict[str, Any] = {"limit": query.limit, "with_payload": query.has_payload}
    if query.vector is not None:
        # Quantised vectors only find candidates. Qdrant scores these with the full vectors only if requested; for
        # given points it compares the full vectors at once.
        oversampling = at_most(OVERSAMPLING, limits.oversampling)
        ef = at_most(n_candidates(query, is_filtered=is_filtered), limits.ef)
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


def _hits(content: bytes, n_queries: int) -> list[list[Hit]]:
    """Parse the answer to a batch of queries; ValueError or RecursionError if it has another form."""
    results = _read_answer(content).result
    if len(results) != n_queries:
        raise ValueError(f"{len(results)} answers for {n_queries} queries")
    return [result.points for result in results]
