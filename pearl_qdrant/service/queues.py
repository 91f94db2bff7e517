"""How mentions wait: batches of many requests, in which clients take turns; what the parts of a batch take."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.pieces import pause
from pearl_qdrant.records import Link
from pearl_qdrant.service.lanes import asking
from pearl_qdrant.service.settings import ClientGoneError, queue_full, timed_out
from pearl_qdrant.store.protocol import Collection, Store

BATCH_MENTIONS = 128  # Most mentions that are linked together
BATCH_CHARACTERS = 64 * BATCH_MENTIONS  # and their characters: 128 mentions of 1,000 take two seconds
_LEAST_MENTIONS = 16  # of them, where each takes so long that all others would wait for over `_BATCH_S` seconds
_BATCH_S = 0.5
_IN_CONTEXT = 8  # Mentions that take as long as one with a context
_SMALL = 16  # Mentions of a request that finds room although large ones of its client fill the queue
_CLIENTS = 4  # The mentions of all clients that wait are at most those of so many
JOIN_S = 0.002  # How long the first request of a batch waits for others, in seconds

OnSeconds = Callable[[float], None]  # Takes how long something took, in seconds

T = TypeVar("T")
P = ParamSpec("P")


def timed(call: Callable[P, T], on_seconds: OnSeconds) -> Callable[P, T]:
    """A function that says how long each call took, and is a piece of the work."""

    def measured(*given: P.args, **named: P.kwargs) -> T:
        pause()
        start = time.perf_counter()
        try:
            return call(*given, **named)
        finally:
            on_seconds(time.perf_counter() - start)

    return measured


def time_calls(of: object, on_seconds: OnSeconds, *methods: str) -> None:
    """Make all later calls of some methods of an object `timed`."""
    for name in methods:
        setattr(of, name, timed(getattr(of, name), on_seconds))


def time_searches(store: Store, on_seconds: OnSeconds) -> None:
    """Make the searches of the collections that a store opens from now on `timed`."""

    def opened(name: str, *, read_only: bool = False) -> Collection:
        found = open_plain(name, read_only=read_only)
        time_calls(found, on_seconds, "search", "search_hybrid", "search_lexical")
        return found

    open_plain = store.open
    store.open = opened  # type: ignore[method-assign, assignment]


Keep = Callable[[list[Link]], list[T]]  # Makes of links what a request keeps of them until it has all
KeepAll = Callable[[list[Link]], list[list[Any]]]  # and of those of a batch what each of its requests keeps
LinkMany = Callable[[Sequence[str], LinkOptions, int, KeepAll], Awaitable[list[list[Any]]]]
"""Links a batch of mentions with the same options, for so many requests, and gives what they keep."""

IsGone = Callable[[], Awaitable[bool]]  # Whether the client of a request has hung up


@dataclass(eq=False)
class _Request:
    """Mentions that wait, and what is kept of the links that are there so far."""

    mentions: Sequence[str]
    options: LinkOptions
    keep: Keep[Any]
    answer: asyncio.Future[list[Any]]
    is_gone: IsGone | None
    client: object
    turn: tuple[int, int]  # the number of the last batch before it came, or that follows its last one; its own number
    kept: list[Any] = field(default_factory=list)
    taken: int = 0
    has_waited: bool = False

    @property
    def waiting(self) -> int:
        """Mentions that are in no batch yet."""
        return 0 if self.answer.done() else len(self.mentions) - self.taken

    @property
    def queue(self) -> tuple[object, bool]:
        """Whose mentions they are, and whether they are few."""
        return self.client, len(self.mentions) <= _SMALL

    def fitting(self, start: int, most: int, characters: int) -> tuple[int, int]:
        """How many mentions from `start` on fit into so many characters, at most `most`; and their size."""
        n = used = 0
        for mention in self.mentions[start : start + most]:
            if used + len(mention) > characters:
                break
            n, used = n + 1, used + len(mention)
        return n, used


class Joiner:
    """Joins requests for one collection into batches of at most `batch_mentions`. A request that finds nothing running
    waits `join_s` seconds for others; `timeout_s` bounds each; `max_queued` mentions of a client may wait. The client
    whose mentions had least so far is in the next batch, with the request that has waited longest, and all that have
    its options.
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
        self._requests: list[_Request] = []
        self._had: dict[object, float] = {}  # characters that each client with requests had
        self._n_batches = 0
        self._numbers = itertools.count()
        self._runner: asyncio.Task[None] | None = None
        self._seconds_a_mention = 0.002

    @property
    def queued(self) -> int:
        return sum(request.waiting for request in self._requests)

    async def link(
        self, mentions: Sequence[str], options: LinkOptions, *, keep: Keep[T], is_gone: IsGone | None = None
    ) -> list[T]:
        """What `keep` makes of the links of some mentions, in their order: batch by batch, in the thread that links,
        since a thousand links with their candidates are 60 MB of objects. `is_gone` is asked when a request has waited
        for a batch. Raises ServiceError if too many mentions wait already; TimedOutError if there is no answer in time;
        ClientGoneError if the client hung up before its turn came.
        """
        if not mentions:
            return []
        turn = self._n_batches, next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        request = _Request(mentions, options, keep, answer, is_gone, asking.get(), turn)
        queued = self.queued
        own = sum(one.waiting for one in self._requests if one.queue == request.queue)
        if (own and own + len(mentions) > self._max_queued) or queued > _CLIENTS * self._max_queued:
            raise queue_full("mentions", self._max_queued, retry_after_s=queued * self._seconds_a_mention)
        self._requests.append(request)
        self._had.setdefault(request.client, min(self._had.values(), default=0.0))
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
        waiting = self._requests = [request for request in self._requests if request.waiting]
        clients = {request.client for request in waiting}
        self._had = {client: had for client, had in self._had.items() if client in clients}
        if not waiting:
            return []
        waiting.sort(key=lambda request: (self._had[request.client], request.turn))
        joined = [request for request in waiting if request.options == waiting[0].options]
        first = joined[0]
        n_most = min(self._batch_mentions, max(_LEAST_MENTIONS, int(_BATCH_S / self._seconds_a_mention)))
        if first.options.context is not None:
            n_most = min(n_most, max(1, self._batch_mentions // _IN_CONTEXT))
        room, characters = n_most - 1, BATCH_CHARACTERS - len(first.mentions[first.taken])
        parts = {request: int(request is first) for request in joined}
        shares = max(1, n_most // len(joined)), BATCH_CHARACTERS // len(joined)
        # What others do not need of their shares goes to the oldest.
        for most, length in (shares, (n_most, BATCH_CHARACTERS)):
            for request in joined:
                wanted = min(room, max(0, most - parts[request]))
                n, used = request.fitting(request.taken + parts[request], wanted, min(length, characters))
                parts[request] += n
                room, characters = room - n, characters - used
        return [(request, n) for request, n in parts.items() if n]

    async def _drop_gone(self) -> None:
        for request in list(self._requests):
            if request.has_waited and request.waiting and request.is_gone is not None and await request.is_gone():
                request.answer.cancel()
            request.has_waited = True

    async def _link_batch(self, batch: Sequence[tuple[_Request, int]]) -> None:
        mentions = [mention for request, n in batch for mention in request.mentions[request.taken : request.taken + n]]
        self._n_batches += 1
        for request, n in batch:
            request.turn = self._n_batches + 1, request.turn[1]  # after those who come while it is linked
            self._had[request.client] += sum(map(len, request.mentions[request.taken : request.taken + n])) + n
            request.taken += n
        self._on_queued(self.queued)
        start = time.monotonic()

        def keep(links: list[Link]) -> list[list[Any]]:
            rest = iter(links)
            return [request.keep(list(itertools.islice(rest, n))) for request, n in batch]

        try:
            parts = await self._link(mentions, batch[0][0].options, len(batch), keep)
        except Exception as error:  # noqa: BLE001 (each request of the batch raises it)
            for request, _ in batch:
                if not request.answer.done():
                    request.answer.set_exception(error)
            return
        seconds = (time.monotonic() - start) / len(mentions)
        self._seconds_a_mention += 0.2 * (seconds - self._seconds_a_mention)
        for (request, _), part in zip(batch, parts, strict=True):
            request.kept += part
            if len(request.kept) == len(request.mentions) and not request.answer.done():
                request.answer.set_result(request.kept)
