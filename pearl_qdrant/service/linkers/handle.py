"""`CollectionHandle`: one collection of the service, asked by coroutines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from pearl_qdrant.errors import PearlQdrantError
from pearl_qdrant.linking.learned.ledger import LearnedBatch
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.options import AnnotateOptions, LinkOptions
from pearl_qdrant.records import Annotation, Entity, Link
from pearl_qdrant.service.errors import NotReadyError, WritingNotAllowedError
from pearl_qdrant.service.linkers.joining import IsGone, Joiner
from pearl_qdrant.service.linkers.lanes import Lane
from pearl_qdrant.service.names import FoundName
from pearl_qdrant.service.names import NameKeeper
from pearl_qdrant.service.observing.logs import facts
from pearl_qdrant.service.observing.metrics import Metrics
from pearl_qdrant.service.observing.traces import SpanContext, span
from pearl_qdrant.service.settings import ServiceSettings
from pearl_qdrant.store.schema import Manifest

log = logging.getLogger(__name__)

T = TypeVar("T")


class CollectionHandle:
    """A collection that is open. All calls are coroutines that never block the event loop.

    Mentions of all requests are joined into batches. Texts are annotated one after the other, beside them. Look-ups
    and type-ahead wait for neither.

    Each call may raise `QueueFullError` (too much waits), `TimedOutError` (no answer in `timeout_s`), and what the
    linker raises. The service answers all of them; a router need not catch them.

    Attributes:
        name: Name of the collection.
        linker: The linker itself; its calls block, so they belong into `call`.
    """

    def __init__(
        self, name: str, linker: EntityLinker, names: NameKeeper, settings: ServiceSettings, metrics: Metrics
    ) -> None:
        self.name = name
        self.linker = linker
        self._names = names
        self._settings = settings
        self._metrics = metrics
        queued, timeout_s = settings.max_queued_calls, settings.timeout_s
        on_queued = {lane: metrics.queued_calls.labels(name, lane).set for lane in ("texts", "look-ups", "searches")}
        self._batches = Lane("batches", threads=1, max_queued=2, timeout_s=None)
        self._texts = Lane("texts", threads=1, max_queued=queued, timeout_s=timeout_s, on_queued=on_queued["texts"])
        self._look_ups = Lane(
            "look-ups", threads=2, max_queued=queued, timeout_s=timeout_s, on_queued=on_queued["look-ups"]
        )
        self._typing = Lane(
            "searches", threads=1, max_queued=queued, timeout_s=timeout_s, on_queued=on_queued["searches"]
        )
        self._keeping = Lane("keeping", threads=1, max_queued=2, timeout_s=None)
        self._lanes = (self._batches, self._texts, self._look_ups, self._typing, self._keeping)
        self._joiner = Joiner(
            self._link_batch,
            batch_mentions=settings.batch_mentions,
            join_s=settings.join_s,
            max_queued=settings.max_queued_mentions,
            timeout_s=timeout_s,
            on_batch=self._count_batch,
            on_queued=metrics.queued_mentions.labels(name).set,
        )

    @property
    def kb(self) -> str:
        """Short name of the base."""
        return self.manifest.kb

    @property
    def manifest(self) -> Manifest:
        """Base, model and counts, as they were when the collection was opened or read again."""
        return self.linker.collections[0].manifest

    async def link(
        self, mentions: Sequence[str], options: LinkOptions | None = None, *, is_gone: IsGone | None = None
    ) -> list[Link]:
        """The links of some mentions, in their order; joined with the mentions of other requests.

        Args:
            mentions: The strings to link.
            options: How to link them; the defaults of `LinkOptions` if None.
            is_gone: Whether the client has hung up, as `request.is_disconnected`.

        Raises:
            UnknownTypeError: If no entity has one of the types.
        """
        links = await self._joiner.link(mentions, options or LinkOptions(), is_gone=is_gone)
        self._metrics.count_answers(self.name, links)
        return links

    async def annotate(self, text: str, options: AnnotateOptions | None = None) -> list[Annotation]:
        """The mentions of a text, linked."""
        found = await self._texts.run(lambda: self.linker.annotate(text, options))
        self._metrics.count_answers(self.name, [one.link for one in found])
        return found

    async def link_document(
        self,
        text: str,
        spans: Sequence[tuple[int, int]],
        options: LinkOptions | None = None,
        *,
        without: Sequence[str] = (),
    ) -> list[Annotation]:
        """The mentions at these places of a document, linked together; see `EntityLinker.link_document`."""
        found = await self._texts.run(lambda: self.linker.link_document(text, spans, options, without=without))
        self._metrics.count_answers(self.name, [one.link for one in found])
        return found

    async def entity(self, entity_id: str) -> Entity:
        """An entity with all its names.

        Raises:
            EntityNotFoundError: If the collection does not contain it.
        """
        return await self.call(lambda linker: linker.entity(entity_id))

    async def type_counts(self) -> Mapping[str, Mapping[str, int]]:
        """Names by value of each type field: {"types": {"ORG": 12}, "kb_types": ..., "predicted_type": ...}."""
        return await self.call(lambda linker: linker.collections[0].type_counts())

    async def search_names(self, query: str, *, types: Sequence[str] = (), limit: int = 10) -> list[FoundName]:
        """Entities that have a name like what was typed so far; see `NameIndex.find`.

        Raises:
            NotReadyError: If the index of names is not built yet.
        """
        if (index := self._names.index) is None:
            raise NotReadyError(f"The index of the names of collection '{self.name}' is being built.", retry_after_s=5)
        return await self._typing.run(lambda: index.find(query, types=types, limit=limit))

    async def accept(self, mention: str, entity_id: str | None) -> LearnedBatch:
        """Learn that a mention meant an entity; None for no entity.

        Raises:
            EntityNotFoundError: If the collection has no entity of that id.
            LearningError: If the mention is not valid.
            WritingNotAllowedError: If the service may not write.
        """
        self._check_writing()
        return await self.call(lambda linker: linker.accept(mention, entity_id))

    async def reject(self, mention: str, entity_id: str) -> LearnedBatch:
        """Learn that a mention did not mean an entity; errors as for `accept`."""
        self._check_writing()
        return await self.call(lambda linker: linker.reject(mention, entity_id))

    async def call(self, function: Callable[[EntityLinker], T]) -> T:
        """The result of a short look-up with the linker, in a thread of its own."""
        return await self._look_ups.run(lambda: function(self.linker))

    async def refresh(self) -> bool:
        """Open a newer state of the collection if there is one; returns whether there was one.

        Batches before it are of the older state, those after it of the newer one.

        Raises:
            CollectionNotFoundError: If the collection does not exist any more.
            ModelMismatchError: If it was made again with another model.
            StoreError: If it cannot be opened.
        """
        reloaded = await self._keeping.run(self._reload)
        if reloaded:
            self._metrics.reloads.labels(self.name).inc()
            log.info("a newer state of the collection is open", extra=facts(collection=self.name))
        return reloaded

    async def update_names(self) -> None:
        """Build or map the index of names for the state that is open."""
        await self._keeping.run(lambda: self._names.update(self.linker.collections[0]))

    @property
    def has_names(self) -> bool:
        """Whether the index of names is there."""
        return self._names.index is not None

    def _reload(self) -> bool:
        collection = self.linker.collections[0]
        if not collection.is_remote:
            return self.linker.is_outdated and self.linker.reload()
        before = collection.manifest
        self.linker.reload()  # what others have taught it has no sign in the manifest
        return self.linker.collections[0].manifest != before

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits or runs."""
        return not self._joiner.queued and not any(lane.queued for lane in self._lanes)

    def _check_writing(self) -> None:
        if not self._settings.allow_writing:
            raise WritingNotAllowedError(
                "This service was started for reading only. Start it with the option allow_writing to accept and "
                "reject links."
            )

    async def _link_batch(
        self, mentions: Sequence[str], options: LinkOptions, asked_by: Sequence[SpanContext]
    ) -> list[Link]:
        return await self._batches.run(lambda: self._link_here(mentions, options, asked_by))

    def _link_here(self, mentions: Sequence[str], options: LinkOptions, asked_by: Sequence[SpanContext]) -> list[Link]:
        named = span("pearl_qdrant.link_batch", asked_by, collection=self.name, mentions=len(mentions))
        with named, self._metrics.batch_seconds.labels(self.name).time():
            return list(self.linker.link_batch(mentions, options, workers=1))

    def _count_batch(self, mentions: int, requests: int) -> None:
        self._metrics.batch_mentions.labels(self.name).observe(mentions)
        self._metrics.batch_requests.labels(self.name).observe(requests)

    def close(self) -> None:
        """Close the linker; what waits in a queue is not answered."""
        self._names.close()
        for lane in self._lanes:
            lane.close()
        try:
            self.linker.close()
        except PearlQdrantError:
            log.exception("closing collection %s", self.name)
