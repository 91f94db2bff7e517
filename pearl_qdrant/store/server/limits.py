"""What a server's strict mode allows in one collection: read from it, so that no request runs into a limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from qdrant_client import models

from pearl_qdrant.errors import StoreRejectedError

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of strict mode; None: there is none.

    Attributes:
        query: Points that a search, a scroll or a facet may ask for (`max_query_limit`).
        searches: Queries of one batch (`search_max_batchsize`).
        upsert: Points of one upsert (`upsert_max_batchsize`).
        values: Values of one condition (`condition_max_size`).
        ef: Candidates of a search in the graph (`search_max_hnsw_ef`).
        oversampling: Of quantised vectors (`search_max_oversampling`).
    """

    query: int | None = None
    searches: int | None = None
    upsert: int | None = None
    values: int | None = None
    ef: int | None = None
    oversampling: float | None = None

    @classmethod
    def of(cls, info: models.CollectionInfo) -> Limits:
        """Those of a collection; none where strict mode is off."""
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

    def check_query(self, limit: int, collection: str) -> None:
        """Refuse what the server would refuse.

        Raises:
            StoreRejectedError: If so many points may not be asked for.
        """
        if self.query is not None and limit > self.query:
            raise StoreRejectedError(
                f"The server's strict mode allows {self.query} points a query in collection '{collection}' "
                f"(max_query_limit), {limit} are needed. Ask for fewer candidates, or raise max_query_limit in the "
                f"collection's strict_mode_config."
            )


def at_most(value: N, limit: N | None) -> N:
    """The value, or the limit where that is lower."""
    return value if limit is None else min(value, limit)
