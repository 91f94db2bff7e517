"""`Collections`: the collections of the service by name, each opened when it is first asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from pearl_qdrant.errors import CollectionNotFoundError, PearlQdrantError
from pearl_qdrant.service.errors import NoCollectionNamedError
from pearl_qdrant.service.linkers.handle import CollectionHandle
from pearl_qdrant.service.linkers.lanes import Lane
from pearl_qdrant.service.linkers.opening import Opener
from pearl_qdrant.service.settings import ServiceSettings
from pearl_qdrant.store.administration import CollectionSummary, summarize_collections
from pearl_qdrant.store.protocol import Store

log = logging.getLogger(__name__)


class Collections:
    """The collections that the service answers for."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._opener = Opener(settings)
        self._handles: dict[str, CollectionHandle] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._store: Store | None = None
        self._lane = Lane("store", threads=1, max_queued=settings.max_queued_calls, timeout_s=settings.timeout_s)

    async def get(self, name: str | None = None) -> CollectionHandle:
        """An open collection.

        Args:
            name: Its name; None: the only one there is.

        Raises:
            CollectionNotFoundError: If it does not exist, or is not served.
            NoCollectionNamedError: If `name` is None, and there are several or none.
            StoreError: If it cannot be opened.
        """
        name = name or await self._only()
        if name in self._handles:
            return self._handles[name]
        names = await self.names()
        if name not in names:
            raise CollectionNotFoundError(name, names)
        async with self._opening.setdefault(name, asyncio.Lock()):
            if name not in self._handles:
                self._handles[name] = await self._lane.run(lambda: self._open(name))
            return self._handles[name]

    async def of_base(self, kb: str, collection: str | None = None) -> list[CollectionHandle]:
        """The collections that hold a base, by its short name; one of them if `collection` is given."""
        names = [collection] if collection else await self.names()
        return [handle for name in names if (handle := await self.get(name)).kb == kb]

    async def names(self) -> list[str]:
        """Names of the collections that are served, sorted."""
        if self._settings.collections:
            return sorted(self._settings.collections)
        return await self._lane.run(lambda: self._opened_store().collections())

    async def summaries(self) -> list[CollectionSummary]:
        """What is known of each collection that is served."""
        found = await self._lane.run(lambda: list(summarize_collections(self._opened_store())))
        return [one for one in found if self._serves(one.name) and not one.is_foreign]

    async def problems(self) -> Sequence[str]:
        """Why the service is not ready: the store does not answer, or a collection cannot be opened. Empty: ready."""
        try:
            names = await self.names()
            for name in names:
                await self.get(name)
        except PearlQdrantError as error:
            return [str(error)]
        return [] if names else ["There is no collection yet. Create one with pearl-qdrant ingest."]

    async def close(self) -> None:
        """Close all collections and the store."""
        self._lane.close()
        handles, self._handles = list(self._handles.values()), {}
        for handle in handles:
            await asyncio.to_thread(handle.close)
        if self._store is not None:
            await asyncio.to_thread(self._store.close)

    def _serves(self, name: str) -> bool:
        return not self._settings.collections or name in self._settings.collections

    async def _only(self) -> str:
        names = await self.names()
        if len(names) == 1:
            return names[0]
        raise NoCollectionNamedError(
            f"Name a collection, one of: {', '.join(names)}." if names else "The store has no collection yet."
        )

    def _open(self, name: str) -> CollectionHandle:
        return CollectionHandle(name, self._opener.linker(name), self._settings)

    def _opened_store(self) -> Store:
        if self._store is None:
            self._store = self._opener.store()
        return self._store
