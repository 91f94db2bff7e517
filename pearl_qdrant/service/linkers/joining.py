"""Joins mentions of many requests into batches.

A batch is what waits at its start. So there is no fixed size: while one batch is linked, the next one gathers, and a
request that comes while nothing is linked waits `join_s` for others. Requests of different options are linked in
different batches; the oldest request is in the next one. A long request is linked in parts, so that short ones do not
wait for all of it.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.records import Link
from pearl_qdrant.service.errors import ClientGoneError
from pearl_qdrant.service.linkers.lanes import queue_full, timed_out
from pearl_qdrant.service.observing.traces import SpanContext, here

log = logging.getLogger(__name__)

LinkMany = Callable[[Sequence[str], LinkOptions, Sequence[SpanContext]], Awaitable[list[Link]]]
"""Links a batch of mentions with the same options, for requests with these spans."""

IsGone = Callable[[], Awaitable[bool]]
"""Whether the client of a request has hung up."""


@dataclass(eq=False)
class _Request:
    """Mentions that wait, and the links that are there so far."""

    mentions: Sequence[str]
    options: LinkOptions
    answer: asyncio.Future[list[Link]]
    is_gone: IsGone | None
    span: SpanContext = field(default_factory=here)
    links: list[Link] = field(default_factory=list)
    taken: int = 0
    has_waited: bool = False

    @property
    def waiting(self) -> int:
        """Mentions that are in no batch yet."""
        return 0 if self.answer.done() else len(self.mentions) - self.taken


class Joiner:
    """Joins requests for one collection.

    Args:
        link: Links one batch; called again when it has answered.
        batch_mentions: Most mentions of a batch.
        join_s: How long a request that finds nothing running waits for others, in seconds.
        max_queued: Mentions that may wait; a request that finds more waiting raises `QueueFullError`.
        timeout_s: Time of a request; after it `TimedOutError`.
        on_batch: Called with the number of mentions and of requests of each batch.
        on_queued: Called with the number of mentions that wait, when it changes.
    """

    def __init__(
        self,
        link: LinkMany,
        *,
        batch_mentions: int,
        join_s: float,
        max_queued: int,
        timeout_s: float,
        on_batch: Callable[[int, int], object] = lambda mentions, requests: None,
        on_queued: Callable[[float], object] = lambda queued: None,
    ) -> None:
        self._link = link
        self._batch_mentions = batch_mentions
        self._join_s = join_s
        self._max_queued = max_queued
        self._timeout_s = timeout_s
        self._on_batch = on_batch
        self._on_queued = on_queued
        self._requests: deque[_Request] = deque()
        self._runner: asyncio.Task[None] | None = None
        self._seconds_a_mention = 0.002

    @property
    def queued(self) -> int:
        """Mentions that wait."""
        return sum(request.waiting for request in self._requests)

    async def link(self, mentions: Sequence[str], options: LinkOptions, *, is_gone: IsGone | None = None) -> list[Link]:
        """The links of some mentions, in their order.

        Args:
            mentions: The strings to link.
            options: How to link them.
            is_gone: Asked when a request has waited for a batch; one that is gone is dropped.

        Raises:
            QueueFullError: If too many mentions wait already.
            TimedOutError: If there is no answer in time.
            ClientGoneError: If the client hung up before its turn came.
        """
        if not mentions:
            return []
        if (queued := self.queued) and queued + len(mentions) > self._max_queued:
            raise queue_full("mentions", self._max_queued, retry_after_s=queued * self._seconds_a_mention)
        request = _Request(mentions, options, asyncio.get_running_loop().create_future(), is_gone)
        self._requests.append(request)
        self._on_queued(self.queued)
        if self._runner is None:
            # In a context of its own: it works for other requests, too, and none of their ids is its own.
            self._runner = contextvars.Context().run(lambda: asyncio.create_task(self._run()))
        try:
            done, _ = await asyncio.wait([request.answer], timeout=self._timeout_s)
        finally:
            if not request.answer.done():
                request.answer.cancel()  # what is in no batch yet never will be
        if not done:
            raise timed_out(self._timeout_s)
        if request.answer.cancelled():
            raise ClientGoneError("The client hung up.")
        return request.answer.result()

    async def _run(self) -> None:
        """Link batches until nothing waits."""
        try:
            await asyncio.sleep(self._join_s)
            while batch := await self._next():
                await self._link_batch(batch)
        finally:
            self._runner = None

    async def _next(self) -> list[tuple[_Request, int]]:
        """The next batch: requests with how many of their mentions; empty if nothing waits."""
        await self._drop_gone()
        waiting = [request for request in self._requests if request.waiting]
        self._requests = deque(waiting)
        if not waiting:
            return []
        joined = [request for request in waiting if request.options == waiting[0].options]
        share = max(1, self._batch_mentions // len(joined))
        room = self._batch_mentions
        parts: dict[_Request, int] = {}
        for least in (share, self._batch_mentions):  # each has its share; what others do not need goes to the oldest
            for request in joined:
                n = min(request.waiting, parts.get(request, 0) + room, max(least, parts.get(request, 0)))
                room -= n - parts.get(request, 0)
                parts[request] = n
        return [(request, n) for request, n in parts.items() if n]

    async def _drop_gone(self) -> None:
        """Drop requests whose client has hung up."""
        for request in list(self._requests):
            if request.has_waited and request.waiting and request.is_gone is not None and await request.is_gone():
                request.answer.cancel()
            request.has_waited = True

    async def _link_batch(self, batch: Sequence[tuple[_Request, int]]) -> None:
        mentions = [mention for request, n in batch for mention in request.mentions[request.taken : request.taken + n]]
        for request, n in batch:
            request.taken += n
        self._on_queued(self.queued)
        self._on_batch(len(mentions), len(batch))
        start = time.monotonic()
        try:
            links = await self._link(mentions, batch[0][0].options, [request.span for request, _ in batch])
        except Exception as error:  # noqa: BLE001 (each request of the batch raises it)
            for request, _ in batch:
                if not request.answer.done():
                    request.answer.set_exception(error)
            return
        seconds = (time.monotonic() - start) / len(mentions)
        self._seconds_a_mention += 0.2 * (seconds - self._seconds_a_mention)
        done = 0
        for request, n in batch:
            request.links += links[done : done + n]
            done += n
            if len(request.links) == len(request.mentions) and not request.answer.done():
                request.answer.set_result(request.links)
