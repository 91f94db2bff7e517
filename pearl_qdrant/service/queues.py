"""How work waits and ends: batches of many requests, threads with bounded queues, the time of a request."""

from __future__ import annotations

import asyncio
import contextvars
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar, cast

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.records import Link
from pearl_qdrant.service.settings import ClientGoneError, ServiceError, TimedOutError
from pearl_qdrant.store.protocol import Collection, Store

MAX_QUEUED_CALLS = 64  # Texts or look-ups that may wait for one collection
BATCH_MENTIONS = 128  # Most mentions that are linked together
JOIN_S = 0.002  # How long the first request of a batch waits for others, in seconds

_end: ContextVar[float] = ContextVar("pearl_qdrant_deadline", default=math.inf)


def set_time(seconds: float) -> None:
    """Give what runs in this context so many seconds from now on."""
    _end.set(time.monotonic() + seconds)


def check_time() -> None:
    """End work whose time is over; called in every loop that a request can make long. Raises TimedOutError if it is
    over. Its client has been answered already.
    """
    if time.monotonic() > _end.get():
        raise TimedOutError("The time of the request is over.")


OnSeconds = Callable[[float], None]  # Takes how long something took, in seconds

T = TypeVar("T")
P = ParamSpec("P")


def timed(call: Callable[P, T], on_seconds: OnSeconds) -> Callable[P, T]:
    """A function that says how long each call took, and raises `TimedOutError` for a request whose time is over."""

    def measured(*given: P.args, **named: P.kwargs) -> T:
        check_time()
        start = time.perf_counter()
        try:
            return call(*given, **named)
        finally:
            on_seconds(time.perf_counter() - start)

    return measured


class _Replaced:
    """An object of which some methods are others; all else is its own."""

    def __init__(self, plain: object, **methods: Callable[..., object]) -> None:
        self.__dict__.update(methods, _plain=plain)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)


def timed_encoder(encoder: Encoder, on_seconds: OnSeconds) -> Encoder:
    """An encoder whose calls are `timed`."""
    return cast("Encoder", _Replaced(encoder, encode=timed(encoder.encode, on_seconds)))


def timed_store(store: Store, on_seconds: OnSeconds) -> Store:
    """A store whose collections have `timed` searches."""

    def opened(name: str, *, read_only: bool = False) -> Collection:
        found = store.open(name, read_only=read_only)
        names = ("search", "search_hybrid")
        timed_methods = {method: timed(getattr(found, method), on_seconds) for method in names}
        return cast("Collection", _Replaced(found, **timed_methods))

    return cast("Store", _Replaced(store, open=opened))


class Lane:
    """Threads for one kind of call, `threads` at once; a call takes at most `timeout_s` seconds, waiting included, and
    at most `max_queued` wait or run. `on_queued` gets their number when it changes.
    """

    def __init__(
        self,
        name: str,
        *,
        threads: int,
        timeout_s: float | None,
        max_queued: int = MAX_QUEUED_CALLS,
        on_queued: Callable[[float], object] = lambda queued: None,
    ) -> None:
        self._on_queued = on_queued
        self._name = name
        self._max_queued = max_queued
        self._timeout_s = timeout_s
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=f"pearl-qdrant-{name}")
        self.queued = 0

    async def run(self, call: Callable[[], T]) -> T:
        """The result of a call, which logs with the id of the request that asks, and knows its time. Raises
        ServiceError if too many wait; TimedOutError if it does not end in time; one that has not started never does
        then.
        """
        if self.queued >= self._max_queued:
            raise queue_full(self._name, self._max_queued, retry_after_s=1)
        context = contextvars.copy_context()
        if self._timeout_s is not None:
            context.run(set_time, self._timeout_s)
        submitted = self._executor.submit(context.run, call)
        self.queued += 1
        self._on_queued(self.queued)
        # It counts as queued until its thread is free again, even if nobody waits for it any more.
        future = asyncio.wrap_future(submitted)
        future.add_done_callback(self._done)
        try:
            done, _ = await asyncio.wait([future], timeout=self._timeout_s)
        except asyncio.CancelledError:
            submitted.cancel()  # if it has not started
            raise
        if not done:
            assert self._timeout_s is not None
            submitted.cancel()
            raise timed_out(self._timeout_s)
        return future.result()

    def _done(self, future: asyncio.Future[T]) -> None:
        self.queued -= 1
        self._on_queued(self.queued)
        if not future.cancelled():
            future.exception()  # nobody may wait for it any more: it is not reported as lost

    def close(self) -> None:
        """End the threads; a call that runs ends first."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def queue_full(what: str, allowed: int, *, retry_after_s: float) -> ServiceError:
    """The error of a full queue."""
    seconds = max(1, math.ceil(retry_after_s))
    text = f"Too much is waiting ({what}: at most {allowed:,}). Send it again in {seconds} s."
    return ServiceError(text, status=429, code="busy", retry_after_s=seconds, allowed=allowed)


def timed_out(timeout_s: float) -> TimedOutError:
    """The error of a call that took too long."""
    return TimedOutError(
        f"There was no answer within timeout_s = {timeout_s:g} s. Send less in one request, or again later.",
        limit="timeout_s",
        allowed=timeout_s,
    )


LinkMany = Callable[[Sequence[str], LinkOptions, int], Awaitable[list[Link]]]
"""Links a batch of mentions with the same options, for so many requests."""

IsGone = Callable[[], Awaitable[bool]]  # Whether the client of a request has hung up


@dataclass(eq=False)
class _Request:
    """Mentions that wait, and the links that are there so far."""

    mentions: Sequence[str]
    options: LinkOptions
    answer: asyncio.Future[list[Link]]
    is_gone: IsGone | None
    links: list[Link] = field(default_factory=list)
    taken: int = 0
    has_waited: bool = False

    @property
    def waiting(self) -> int:
        """Mentions that are in no batch yet."""
        return 0 if self.answer.done() else len(self.mentions) - self.taken


class Joiner:
    """Joins requests for one collection into batches of at most `batch_mentions`. A request that finds nothing running
    waits `join_s` seconds for others; `timeout_s` bounds each; `max_queued` mentions may wait.
    """

    def __init__(
        self,
        link: LinkMany,
        *,
        max_queued: int,
        timeout_s: float,
        batch_mentions: int = BATCH_MENTIONS,
        join_s: float = JOIN_S,
        on_queued: Callable[[float], object] = lambda queued: None,
    ) -> None:
        self._link = link
        self._batch_mentions = batch_mentions
        self._join_s = join_s
        self._max_queued = max_queued
        self._timeout_s = timeout_s
        self._on_queued = on_queued
        self._requests: deque[_Request] = deque()
        self._runner: asyncio.Task[None] | None = None
        self._seconds_a_mention = 0.002

    @property
    def queued(self) -> int:
        return sum(request.waiting for request in self._requests)

    async def link(self, mentions: Sequence[str], options: LinkOptions, *, is_gone: IsGone | None = None) -> list[Link]:
        """The links of some mentions, in their order. `is_gone` is asked when a request has waited for a batch. Raises
        ServiceError if too many mentions wait already; TimedOutError if there is no answer in time; ClientGoneError
        if the client hung up before its turn came.
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
        for request in list(self._requests):
            if request.has_waited and request.waiting and request.is_gone is not None and await request.is_gone():
                request.answer.cancel()
            request.has_waited = True

    async def _link_batch(self, batch: Sequence[tuple[_Request, int]]) -> None:
        mentions = [mention for request, n in batch for mention in request.mentions[request.taken : request.taken + n]]
        for request, n in batch:
            request.taken += n
        self._on_queued(self.queued)
        start = time.monotonic()
        try:
            links = await self._link(mentions, batch[0][0].options, len(batch))
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
