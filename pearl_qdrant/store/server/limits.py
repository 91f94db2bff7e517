"""The limits of a server's strict mode for one collection: read from the server, so that requests keep to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from qdrant_client import models

from pearl_qdrant.errors import StoreRejectedError

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of strict mode; None: no limit.

    Attributes:
        query: Points that a search, a scroll or a facet may request (`max_query_limit`).
        searches: Queries of one batch (`search_max_batchsize`).
        upsert: Points of one upsert (`upsert_max_batchsize`).
        values: Values of one condition (`condition_max_size`).
        ef: Candidates of a search in the graph (`search_max_hnsw_ef`).
        oversampling: Oversampling of quantised vectors (`search_max_oversampling`).
    """

    query: int | None = None
    searches: int | None = None
    upsert: int | None = None
    values: int | None = None
    ef: int | None = None
    oversampling: float | None = None

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
        )

    @property
    def ids(self) -> int | None:
        """Ids that one query may name, since it requests all of them."""
        return min((limit for limit in (self.query, self.values) if limit is not None), default=None)

    def check_query(self, limit: int, collection: str) -> None:
        """Refuse a query that the server would refuse.

        Raises:
            StoreRejectedError: If a query may not request this many points.
        """
        if self.query is not None and limit > self.query:
            raise StoreRejectedError(
                f"The server's strict mode allows {self.query} points a query in collection '{collection}' "
                f"(max_query_limit), {limit} are needed. Request fewer candidates, or raise max_query_limit in the "
                f"collection's strict_mode_config."
            )


def at_most(value: N, limit: N | None) -> N:
    """Return the value, or the limit if that is lower."""
    return value if limit is None else min(value, limit)
