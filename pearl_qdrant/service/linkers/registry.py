"""`Collections`: the collections of the service by name, opened, kept up to date, and closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from pearl_qdrant.errors import CollectionNotFoundError, ModelMismatchError, PearlQdrantError
from pearl_qdrant.service.errors import NoCollectionNamedError, ServiceError
from pearl_qdrant.service.linkers.handle import CollectionHandle
from pearl_qdrant.service.linkers.lanes import Lane
from pearl_qdrant.service.linkers.opening import Opener
from pearl_qdrant.service.observing.logs import facts
from pearl_qdrant.service.observing.metrics import Metrics
from pearl_qdrant.service.settings import ServiceSettings
from pearl_qdrant.store.administration import CollectionSummary, summarize_collections
from pearl_qdrant.store.protocol import Store
from pearl_qdrant.store.verify import unfinished_load

log = logging.getLogger(__name__)

_LIST_S = 1.0
"""Seconds for which a list of collections is used again, since every request that names no collection asks for it."""

_IDLE_POLL_S = 0.05


class Collections:
    """The collections that the service answers for.

    Args:
        settings: Of the service.
        metrics: Of the service.
    """

    def __init__(self, settings: ServiceSettings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._opener = Opener(settings, metrics)
        self._handles: dict[str, CollectionHandle] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._problems: dict[str, str] = {}
        self._store: Store | None = None
        self._lane = Lane("store", threads=1, max_queued=settings.max_queued_calls, timeout_s=settings.timeout_s)
        self._listed: tuple[float, list[str]] | None = None
        self._refreshed: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Open all collections in the background, and keep them up to date."""
        self._spawn(self._keep())

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
                log.info("a collection is open", extra=facts(collection=name))
            return self._handles[name]

    async def of_base(self, kb: str, collection: str | None = None) -> list[CollectionHandle]:
        """The collections that hold a base, by its short name; one of them if `collection` is given."""
        names = [collection] if collection else await self.names()
        return [handle for name in names if (handle := await self.get(name)).kb == kb]

    async def names(self) -> list[str]:
        """Names of the collections that are served, sorted.

        Raises:
            StoreError: If all of the store are served, and it cannot be read.
        """
        if self._settings.collections:
            return sorted(self._settings.collections)
        now = asyncio.get_running_loop().time()
        if self._listed is None or now - self._listed[0] > _LIST_S:
            self._listed = now, await self._lane.run(self._list)
        return self._listed[1]

    async def summaries(self) -> list[CollectionSummary]:
        """What is known of each collection that is served.

        Raises:
            StoreError: If the store cannot be read.
        """
        wanted = self._settings.collections
        found = await self._lane.run(lambda: list(summarize_collections(self._opened_store())))
        return [one for one in found if not one.is_foreign and (not wanted or one.name in wanted)]

    async def problems(self) -> list[str]:
        """Why the service is not ready; empty: it is. The texts are fixed: they are told to anybody.

        A collection whose first load did not finish is not ready; one that is being updated is.
        """
        try:
            await self._lane.run(lambda: self._opened_store().collections())
            names = await self.names()
        except PearlQdrantError as error:
            log.warning("not ready: %s", error)
            return ["The store does not answer."]
        if not names:
            return ["There is no collection yet."]
        found = []
        for name in names:
            if (handle := self._handles.get(name)) is None:
                found.append(
                    "A collection cannot be opened." if name in self._problems else "A collection is being opened."
                )
            elif not handle.manifest.names and unfinished_load(handle.manifest):
                found.append("The load of a collection did not finish.")
        return list(dict.fromkeys(found))

    async def close(self) -> None:
        """Close all collections and the store."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._lane.close()
        handles, self._handles = list(self._handles.values()), {}
        for handle in handles:
            await asyncio.to_thread(handle.close)
        if self._store is not None:
            await asyncio.to_thread(self._store.close)

    async def _keep(self) -> None:
        """Open what is not open, and newer states of what is, again and again."""
        while True:
            try:
                for name in await self.names():
                    await self._keep_one(name)
                for gone in self._handles.keys() - set(await self.names()):
                    await self._keep_one(gone)
            except PearlQdrantError as error:
                log.warning("the store cannot be read: %s", error)
            except Exception:
                log.exception("looking for newer states failed")
            await asyncio.sleep(self._settings.reload_s)

    async def _keep_one(self, name: str) -> None:
        try:
            handle = await self.get(name)
            now = asyncio.get_running_loop().time()
            is_remote = handle.linker.collections[0].is_remote
            every_s = self._settings.server_reload_s if is_remote else 0
            if name not in self._refreshed or now - self._refreshed[name] >= every_s:
                await self._refresh(handle)
                self._refreshed[name] = now
            self._problems.pop(name, None)
        except (PearlQdrantError, OSError) as error:
            problem = error.message if isinstance(error, PearlQdrantError) else str(error)
            if self._problems.get(name) != problem and not isinstance(error, ServiceError):
                log.warning("%s", error, extra=facts(collection=name))
            self._problems[name] = problem

    async def _refresh(self, handle: CollectionHandle) -> None:
        """Open a newer state, and let the index of names follow; a collection that is gone is closed."""
        try:
            await handle.refresh()
        except (CollectionNotFoundError, ModelMismatchError):
            if self._handles.get(handle.name) is handle:
                del self._handles[handle.name]
            self._listed = None
            self._spawn(self._retire(handle))
            raise
        self._spawn(handle.update_names())

    async def _retire(self, handle: CollectionHandle) -> None:
        """Close a collection when nothing uses it any more."""
        while not handle.is_idle:
            await asyncio.sleep(_IDLE_POLL_S)
        await asyncio.to_thread(handle.close)

    def _spawn(self, coroutine: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, ServiceError):
            log.error("a task of the service failed", exc_info=error)

    async def _only(self) -> str:
        names = await self.names()
        if len(names) == 1:
            return names[0]
        raise NoCollectionNamedError(
            f"Name a collection, one of: {', '.join(names)}." if names else "The store has no collection yet."
        )

    def _list(self) -> list[str]:
        """Names of the collections of the store that pearl-qdrant made."""
        store = self._opened_store()
        return sorted(one.name for one in store.glance(store.collections()) if one.manifest is not None)

    def _open(self, name: str) -> CollectionHandle:
        return CollectionHandle(
            name, self._opener.linker(name), self._opener.names(name), self._settings, self._metrics
        )

    def _opened_store(self) -> Store:
        if self._store is None:
            self._store = self._opener.store()
        return self._store
