"""`CollectionHandle`: one collection of the service, asked by coroutines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from pearl_qdrant.errors import PearlQdrantError
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.options import AnnotateOptions, LinkOptions
from pearl_qdrant.records import Annotation, Entity, Link
from pearl_qdrant.service.linkers.joining import IsGone, Joiner
from pearl_qdrant.service.linkers.lanes import Lane
from pearl_qdrant.service.settings import ServiceSettings
from pearl_qdrant.store.schema import Manifest

log = logging.getLogger(__name__)

T = TypeVar("T")


class CollectionHandle:
    """A collection that is open. All calls are coroutines that never block the event loop.

    Mentions of all requests are joined into batches. Texts are annotated one after the other, beside them. Look-ups
    wait for neither.

    Each call may raise `QueueFullError` (too much waits), `TimedOutError` (no answer in `timeout_s`), and what the
    linker raises. The service answers all of them; a router need not catch them.

    Attributes:
        name: Name of the collection.
        linker: The linker itself; its calls block, so they belong into `call`.
    """

    def __init__(self, name: str, linker: EntityLinker, settings: ServiceSettings) -> None:
        self.name = name
        self.linker = linker
        self._settings = settings
        queued, timeout_s = settings.max_queued_calls, settings.timeout_s
        self._batches = Lane("batches", threads=1, max_queued=2, timeout_s=None)
        self._texts = Lane("texts", threads=1, max_queued=queued, timeout_s=timeout_s)
        self._look_ups = Lane("look-ups", threads=2, max_queued=queued, timeout_s=timeout_s)
        self._joiner = Joiner(
            self._link_batch,
            batch_mentions=settings.batch_mentions,
            join_s=settings.join_s,
            max_queued=settings.max_queued_mentions,
            timeout_s=timeout_s,
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
        return await self._joiner.link(mentions, options or LinkOptions(), is_gone=is_gone)

    async def annotate(self, text: str, options: AnnotateOptions | None = None) -> list[Annotation]:
        """The mentions of a text, linked."""
        return await self._texts.run(lambda: self.linker.annotate(text, options))

    async def link_document(
        self,
        text: str,
        spans: Sequence[tuple[int, int]],
        options: LinkOptions | None = None,
        *,
        without: Sequence[str] = (),
    ) -> list[Annotation]:
        """The mentions at these places of a document, linked together; see `EntityLinker.link_document`."""
        return await self._texts.run(lambda: self.linker.link_document(text, spans, options, without=without))

    async def entity(self, entity_id: str) -> Entity:
        """An entity with all its names.

        Raises:
            EntityNotFoundError: If the collection does not contain it.
        """
        return await self.call(lambda linker: linker.entity(entity_id))

    async def type_counts(self) -> Mapping[str, Mapping[str, int]]:
        """Names by value of each type field: {"types": {"ORG": 12}, "kb_types": ..., "predicted_type": ...}."""
        return await self.call(lambda linker: linker.collections[0].type_counts())

    async def call(self, function: Callable[[EntityLinker], T]) -> T:
        """The result of a short look-up with the linker, in a thread of its own."""
        return await self._look_ups.run(lambda: function(self.linker))

    async def _link_batch(self, mentions: Sequence[str], options: LinkOptions) -> list[Link]:
        return await self._batches.run(lambda: list(self.linker.link_batch(mentions, options, workers=1)))

    def close(self) -> None:
        """Close the linker; what waits in a queue is not answered."""
        for lane in (self._batches, self._texts, self._look_ups):
            lane.close()
        try:
            self.linker.close()
        except PearlQdrantError:
            log.exception("closing collection %s", self.name)
