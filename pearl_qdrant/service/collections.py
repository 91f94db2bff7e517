"""The collections of the service: opened, asked by coroutines, kept up to date, and closed."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pearl_qdrant import errors
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import CollectionNotFoundError, PearlQdrantError, StoreError
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.records import Annotation, Link, NilReason
from pearl_qdrant.service.lanes import PAUSED, SHORT_TEXT, Lane
from pearl_qdrant.service.names import FoundName, NameKeeper, usable_cache
from pearl_qdrant.service.observing import Metrics, facts
from pearl_qdrant.service.queues import IsGone, Joiner, Keep, KeepAll, time_calls, time_searches
from pearl_qdrant.service.settings import Body, ServiceError, ServiceSettings
from pearl_qdrant.settings import ServerAccess
from pearl_qdrant.store.administration import CollectionSummary, summarize_collections, unfinished_load
from pearl_qdrant.store.open import location_of, open_store
from pearl_qdrant.store.protocol import Store
from pearl_qdrant.store.schema import Manifest

log = logging.getLogger(__name__)

T = TypeVar("T")

_LIST_S = 1.0
"""Seconds for which a list of collections is used again, since every request that names no collection asks for it."""

_IDLE_POLL_S = 0.05

_LONG_TEXTS = 3  # Long texts that have begun and wait for their turn, at most: each takes some 10 MB


class CollectionHandle:
    """A collection that is open. All calls are coroutines that never block the event loop: mentions of all requests are
    joined into batches; clients take turns with texts, long ones in pieces; look-ups and type-ahead wait for neither.
    Each may raise `ServiceError` (too much waits), `TimedOutError` (no answer in `timeout_s`), and what the linker
    raises.

    Attributes:
        linker: The linker itself; its calls block, so they belong into `call`.
    """

    def __init__(
        self, name: str, linker: EntityLinker, names: NameKeeper, settings: ServiceSettings, metrics: Metrics
    ) -> None:
        self.name = name
        self.linker = linker
        self.settings = settings
        self._names = names
        self._metrics = metrics

        def lane(of: str, threads: int, paused: int = PAUSED, before: Sequence[Lane] = ()) -> Lane:
            on_queued, timeout_s = metrics.queued_calls.labels(name, of).set, settings.timeout_s
            return Lane(of, threads=threads, timeout_s=timeout_s, paused=paused, on_queued=on_queued, before=before)

        self._texts, self._look_ups, self._typing = lane("texts", 1), lane("look-ups", 2), lane("searches", 1)
        self._long_texts = lane("long texts", 1, _LONG_TEXTS, (self._texts, self._look_ups, self._typing))
        self._kept: dict[str, tuple[object, Any]] = {}
        self._making: dict[str, asyncio.Lock] = {}
        self._batches = Lane("batches", threads=1, timeout_s=None, paused=0)
        self._keeping = Lane("keeping", threads=1, timeout_s=None, paused=0)
        self._lanes = (self._batches, self._texts, self._long_texts, self._look_ups, self._typing, self._keeping)
        self._joiner = Joiner(
            self._link_batch,
            max_queued=settings.max_queued_mentions,
            timeout_s=settings.timeout_s,
            on_queued=metrics.queued_mentions.labels(name).set,
        )

    @property
    def kb(self) -> str:
        return self.manifest.kb

    @property
    def manifest(self) -> Manifest:
        """Base, model and counts, as they were when the collection was opened or read again."""
        return self.linker.collections[0].manifest

    async def link(
        self, mentions: Sequence[str], options: LinkOptions, *, keep: Keep[T], is_gone: IsGone | None = None
    ) -> list[T]:
        """What `keep` makes of the links of some mentions, in their order; joined with those of other requests.
        `is_gone` tells whether the client has hung up. Raises UnknownTypeError if no entity has one of the types.
        """
        reasons: list[NilReason | None] = []

        def counted(links: list[Link]) -> list[T]:
            reasons.extend(one.nil_reason for one in links)
            return keep(links)

        kept = await self._joiner.link(mentions, options, keep=counted, is_gone=is_gone)
        self._metrics.count_answers(self.name, reasons)
        return kept

    async def of_text(self, characters: int, find: Callable[[EntityLinker], list[Annotation]]) -> list[Annotation]:
        """The mentions of a text of so many characters, linked by a call of the linker. Short texts wait for no long
        ones.
        """
        found = await self._of_length(characters, lambda: find(self.linker))
        self._metrics.count_answers(self.name, [one.link.nil_reason for one in found])
        return found

    async def _of_length(self, characters: int, call: Callable[[], T]) -> T:
        lane = self._texts if characters <= SHORT_TEXT else self._long_texts
        return await lane.run(call, size=characters)

    async def search_names(self, query: str, *, types: Sequence[str] = (), limit: int = 10) -> list[FoundName]:
        """Entities that have a name like what was typed so far; see `NameIndex.find`."""
        if (index := self._names.index) is None:
            text = f"The index of the names of collection '{self.name}' is being built."
            raise ServiceError(text, status=503, code="not_ready", retry_after_s=5)
        return await self._typing.run(lambda: index.find(query, types=types, limit=limit))

    async def call(self, function: Callable[[EntityLinker], T]) -> T:
        """The result of a short look-up with the linker, in a thread of its own."""
        return await self._look_ups.run(lambda: function(self.linker))

    async def kept(self, what: str, state: object, make: Callable[[], Awaitable[T]]) -> T:
        """What is made of the collection once for each of its states."""
        async with self._making.setdefault(what, asyncio.Lock()):
            if what not in self._kept or self._kept[what][0] != state:
                self._kept[what] = state, await make()
            made: T = self._kept[what][1]
            return made

    async def refresh(self) -> None:
        """Open a newer state of the collection if there is one; batches before it are of the older state. Raises
        CollectionNotFoundError if it does not exist any more; ModelMismatchError if it was made again with another
        model; StoreError if it cannot be opened.
        """
        if await self._keeping.run(self._reload):
            self._metrics.reloads.labels(self.name).inc()
            log.info("a newer state of the collection is open", extra=facts(collection=self.name))

    async def update_names(self) -> None:
        """Build or open the index of names for the state that is open."""
        await self._keeping.run(lambda: self._names.update(self.linker.collections[0]))

    def _reload(self) -> bool:
        collection = self.linker.collections[0]
        if not collection.is_remote:
            return self.linker.is_outdated and self.linker.reload()
        before = collection.manifest
        self.linker.reload()  # what others have taught it has no sign in the manifest
        return self.manifest != before

    @property
    def is_idle(self) -> bool:
        return not self._joiner.queued and not any(lane.queued for lane in self._lanes)

    async def _link_batch(
        self, mentions: Sequence[str], options: LinkOptions, n_requests: int, keep: KeepAll
    ) -> list[list[Any]]:
        def link() -> list[list[Any]]:
            with self._metrics.batch_seconds.labels(self.name).time():
                return keep(list(self.linker.link_batch(mentions, options, workers=1)))

        self._metrics.batch_mentions.labels(self.name).observe(len(mentions))
        self._metrics.batch_requests.labels(self.name).observe(n_requests)
        return await self._batches.run(link)

    def close(self) -> None:
        """Close the linker; what waits in a queue is not answered."""
        self._names.close()
        for lane in self._lanes:
            lane.close()
        try:
            self.linker.close()
        except PearlQdrantError:
            log.exception("closing collection %s", self.name)


def open_served_store(settings: ServiceSettings, access: ServerAccess | None = None) -> Store:
    """The store of the settings; how to reach a server is read from the environment, as on the command line."""
    return open_store(
        location_of(settings.store),
        access=access or ServerAccess.from_environment(),
        wait_s=settings.store_wait_s,
        timeout_s=settings.timeout_s,
    )


_FIRST_TEXT = "Acme Paper Mills are in New York."
"""Is annotated when a collection is opened, so that no request waits for tables that are read with their first use."""


class Collections:
    """The collections that the service answers for; those of one model share one encoder."""

    def __init__(self, settings: ServiceSettings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._access = ServerAccess.from_environment()
        self._encoders: dict[tuple[str, str, str], Encoder] = {}
        self._loading = threading.Lock()
        self._handles: dict[str, CollectionHandle] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._problems: dict[str, str] = {}
        self._store: Store | None = None
        self._lane = Lane("store", threads=1, timeout_s=settings.timeout_s, paused=0)  # what it opens is behind a lock
        self._listed: tuple[float, list[str]] | None = None
        self._refreshed: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Open all collections in the background, and keep them up to date."""
        self._spawn(self._keep())

    async def get(self, name: str | None = None) -> CollectionHandle:
        """An open collection; None names the only one there is. Raises CollectionNotFoundError if it does not exist, or
        is not served; ServiceError if there are several or none to choose from; StoreError if it cannot be opened.
        """
        if name in self._handles:
            return self._handles[name]
        names = await self.names()
        if not name:
            if len(names) != 1:
                named = f"Name a collection, one of: {', '.join(names)}."
                text = named if names else "The store has no collection yet."
                raise ServiceError(text, status=422, code="collection_missing")
            [name] = names
        if name not in names:
            raise CollectionNotFoundError(name, names)
        async with self._opening.setdefault(name, asyncio.Lock()):
            if name not in self._handles:
                self._handles[name] = await self._lane.run(lambda: self._open(name))
                log.info("a collection is open", extra=facts(collection=name))
            return self._handles[name]

    async def of(self, body: Body) -> CollectionHandle:
        """The collection that a body names. Raises LimitError if the body is over a limit; else as `get`."""
        body.check(self._settings)
        return await self.get(body.collection)

    async def names(self) -> list[str]:
        """Names of the collections that are served, sorted; the last known ones while the store does not answer. Raises
        StoreError if all of the store are served, and it could never be read.
        """
        if self._settings.collections:
            return sorted(self._settings.collections)
        now = asyncio.get_running_loop().time()
        if self._listed is None or now - self._listed[0] > _LIST_S:
            try:
                self._listed = now, await self._lane.run(self._list)
            except StoreError:
                if self._listed is None:
                    raise
                self._listed = now, self._listed[1]
        return self._listed[1]

    async def summaries(self) -> list[CollectionSummary]:
        """What is known of each collection that is served. Raises StoreError if the store cannot be read."""
        wanted = self._settings.collections
        found = await self._lane.run(lambda: list(summarize_collections(self._opened_store())))
        return [one for one in found if not one.is_foreign and (not wanted or one.name in wanted)]

    async def problems(self) -> list[str]:
        """Why the service is not ready; empty: it is. The texts are fixed: they are told to anybody."""
        try:
            await self._lane.run(lambda: self._opened_store().collections())
            names = await self.names()
        except PearlQdrantError as error:
            log.warning("not ready: %s", error)
            return ["The store does not answer."]
        found = {} if names else {"There is no collection yet.": None}
        for name in names:
            if (handle := self._handles.get(name)) is None:
                is_failed = name in self._problems
                found["A collection cannot be opened." if is_failed else "A collection is being opened."] = None
            elif not handle.manifest.names and unfinished_load(handle.manifest):
                found["The load of a collection did not finish."] = None
        return list(found)

    async def close(self) -> None:
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
                names = await self.names()
                for name in (*names, *(self._handles.keys() - set(names))):
                    await self._keep_one(name)
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
        except (CollectionNotFoundError, errors.ModelMismatchError):
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

    def _list(self) -> list[str]:
        """Names of the collections of the store that pearl-qdrant made."""
        store = self._opened_store()
        return sorted(one.name for one in store.glance(store.collections()) if one.manifest is not None)

    def _opened_store(self) -> Store:
        if self._store is None:
            self._store = open_served_store(self._settings, self._access)
        return self._store

    def _open(self, name: str) -> CollectionHandle:
        """Open a collection, for reading unless the service may write; with its own store, since it may be closed."""
        settings = self._settings
        read_only = not settings.allow_writing
        observe = self._metrics.search_seconds.labels(name).observe
        store = open_served_store(settings, self._access)
        time_searches(store, observe)
        try:
            collection = store.open(name, read_only=read_only)
            encoder_for = None if settings.model else self._encoder
            encoder = self._encoder(collection.manifest)
            linker = EntityLinker(store, [collection], encoder, read_only=read_only, encoder_for=encoder_for)
            linker.annotate(_FIRST_TEXT)
        except BaseException:
            store.close()
            raise
        folder = usable_cache() if settings.cache is None else Path(settings.cache)
        names = NameKeeper(folder, location_of(settings.store), name, self._access)
        return CollectionHandle(name, linker, names, settings, self._metrics)

    def _encoder(self, manifest: Manifest) -> Encoder:
        key = model, pooling, prefix = self._settings.model or manifest.model, manifest.pooling, manifest.prefix
        with self._loading:
            if key not in self._encoders:
                device = self._settings.device
                encoder = load_encoder(model, device=device, pooling=pooling, prefix=prefix)
                time_calls(encoder, self._metrics.encode_seconds.observe, "encode")
                self._encoders[key] = encoder
            return self._encoders[key]
