"""What a server says of its collections, as far as it is used here; and the limits of its strict mode."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from pearl_qdrant.errors import StoreRejectedError

N = TypeVar("N", int, float)


class Named(msgspec.Struct):
    """A collection in a list."""

    name: str


class Names(msgspec.Struct):
    """A list of collections."""

    collections: list[Named]


class Limits(msgspec.Struct, frozen=True):
    """Limits of strict mode, to which requests keep; None: no limit.

    Attributes:
        enabled: Whether they apply.
        query: Points that a search, a scroll or a facet may request.
        searches: Queries of one batch (servers from 1.17 on).
        upsert: Points of one upsert.
        values: Values of one condition.
        ef: Candidates of a search in the graph.
        oversampling: Oversampling of quantised vectors.
    """

    enabled: bool | None = None
    query: int | None = msgspec.field(default=None, name="max_query_limit")
    searches: int | None = msgspec.field(default=None, name="search_max_batchsize")
    upsert: int | None = msgspec.field(default=None, name="upsert_max_batchsize")
    values: int | None = msgspec.field(default=None, name="condition_max_size")
    ef: int | None = msgspec.field(default=None, name="search_max_hnsw_ef")
    oversampling: float | None = msgspec.field(default=None, name="search_max_oversampling")

    @property
    def ids(self) -> int | None:
        """Ids that one query may name, since it requests all of them."""
        return min((limit for limit in (self.query, self.values) if limit is not None), default=None)

    def check_query(self, limit: int, collection: str) -> None:
        """Raise StoreRejectedError if a query may not request this many points."""
        if self.query is not None and limit > self.query:
            raise StoreRejectedError(
                f"The server's strict mode allows {self.query} points a query in collection '{collection}' "
                f"(max_query_limit), {limit} are needed. Request fewer candidates, or raise max_query_limit in the "
                f"collection's strict_mode_config."
            )


class VectorParams(msgspec.Struct):
    """How vectors of one name are."""

    size: int
    distance: str


class Params(msgspec.Struct):
    """What a collection was created with; another program's may have vectors without a name."""

    vectors: Any = None
    sparse_vectors: dict[str, Any] | None = None
    replication_factor: int | None = None
    write_consistency_factor: int | None = None

    @property
    def dense(self) -> dict[str, VectorParams]:
        """Dense vectors by name."""
        try:
            return msgspec.convert(self.vectors, dict[str, VectorParams])
        except msgspec.ValidationError:
            return {}


class Optimizer(msgspec.Struct):
    """Settings of the optimizer."""

    indexing_threshold: int | None = None


class Config(msgspec.Struct):
    """Settings of a collection."""

    params: Params
    optimizer_config: Optimizer
    metadata: dict[str, Any] | None = None
    strict_mode_config: Limits | None = None


class CollectionInfo(msgspec.Struct):
    """What the server says of a collection."""

    status: str
    segments_count: int
    config: Config
    payload_schema: dict[str, Any]
    indexed_vectors_count: int | None = None
    optimizer_status: Any = None

    @property
    def metadata(self) -> dict[str, Any]:
        """Its metadata."""
        return self.config.metadata or {}

    @property
    def limits(self) -> Limits:
        """Limits of strict mode; none if it is off."""
        strict = self.config.strict_mode_config
        return strict if strict is not None and strict.enabled else Limits()


def at_most(value: N, limit: N | None) -> N:
    """Return the value, or the limit if that is lower."""
    return value if limit is None else min(value, limit)
