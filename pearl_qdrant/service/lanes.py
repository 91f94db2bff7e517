"""Threads in which clients take turns: long calls go on in pieces, and short ones of any client pass them."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar

from pearl_qdrant.pieces import with_pauses
from pearl_qdrant.service.settings import TimedOutError, queue_full, timed_out

MAX_QUEUED_CALLS = 64  # Calls of one client that may wait or run
_CLIENTS = 4  # The calls of all clients are at most those of so many
PAUSED = 16  # Calls that have begun and wait for their turn, at most, since each keeps what it has so far
SHORT_TEXT = 2000  # Characters of a text for which a lane of its own waits for no longer ones
_GIVE_WAY_S = 0.25  # A long call stands still for those of other lanes so long at most between two pieces, in seconds
_PIECE_S = 0.05  # A turn lasts so long at least, in seconds

asking: ContextVar[tuple[str, bytes]] = ContextVar("pearl_qdrant_asking", default=("", b""))
"""The client whose request is being answered: the network of its address, and its key."""

T = TypeVar("T")


@dataclass(eq=False)
class _Call(Generic[T]):
    """A call that waits, runs or is paused; `kind` orders calls of a client, short ones first, then by their age."""

    function: Callable[[], T]
    client: object
    kind: tuple[int, int]
    ends_at: float
    answer: Future[T] = field(default_factory=Future)
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    may_go: threading.Event = field(default_factory=threading.Event)
    has_begun: bool = False
    thread: int = 0
    turn_began: float = 0.0


class Lane:
    """Calls of one kind in threads, `threads` of them at a time; each takes at most `timeout_s` seconds, waiting
    included. At each pause, what waits in the lanes of `before` ends first, since each step of it would wait for the
    interpreter beside a long call. Then the client goes on that had the least time so far, with its shortest call; at
    most `paused` that have begun wait, and none of them may hold a lock that another call needs. At most `max_queued`
    calls of a client wait or run; `on_queued` gets the number of all when it changes.
    """

    def __init__(
        self,
        name: str,
        *,
        threads: int,
        timeout_s: float | None,
        paused: int = PAUSED,
        max_queued: int = MAX_QUEUED_CALLS,
        on_queued: Callable[[float], object] = lambda queued: None,
        before: Sequence[Lane] = (),
    ) -> None:
        self._name = name
        self._threads = threads
        self._most_begun = threads + paused
        self._timeout_s = timeout_s
        self._max_queued = max_queued
        self._on_queued = on_queued
        self._before = before
        self._executor = ThreadPoolExecutor(threads + paused, thread_name_prefix=f"pearl-qdrant-{name}")
        self._numbers = itertools.count()
        self._lock = threading.Lock()  # of what follows, which threads change
        self._waiting: list[_Call[Any]] = []
        self._running: set[_Call[Any]] = set()
        self._had: dict[object, float] = {}  # seconds that each client with calls had
        self._is_closed = False
        self.n_of: Counter[object] = Counter()  # calls that wait or run, by client

    @property
    def queued(self) -> int:
        """How many calls wait or run."""
        return self.n_of.total()

    async def run(self, call: Callable[[], T], *, size: int = 0) -> T:
        """The result of a call, which logs with the id of the request that asks. `size` is how long it may be, in any
        unit. Raises ServiceError if too many wait; TimedOutError if it does not end in time: one that has not begun
        never does then, and one that has begun ends at its next pause.
        """
        client = asking.get()
        if self.n_of[client] >= self._max_queued or self.queued >= _CLIENTS * self._max_queued:
            raise queue_full(self._name, self._max_queued, retry_after_s=1)
        ends_at = float("inf") if self._timeout_s is None else time.monotonic() + self._timeout_s
        one: _Call[T] = _Call(call, client, (size.bit_length(), next(self._numbers)), ends_at)
        one.context.run(with_pauses, partial(self._pause, one))
        self.n_of[client] += 1
        self._on_queued(self.queued)
        # It counts as queued until its thread is free again, even if nobody waits for it any more.
        future = asyncio.wrap_future(one.answer)
        future.add_done_callback(partial(self._done, client))
        with self._lock:
            self._had.setdefault(client, min(self._had.values(), default=0.0))
            self._waiting.append(one)
            self._fill()
        try:
            done, _ = await asyncio.wait([future], timeout=self._timeout_s)
        except asyncio.CancelledError:
            self._give_up(one)
            raise
        if not done:
            self._give_up(one)
            assert self._timeout_s is not None
            raise timed_out(self._timeout_s)
        return future.result()

    def answers(self) -> list[Future[Any]]:
        """Of the calls that wait or run now."""
        with self._lock:
            return [one.answer for one in (*self._running, *self._waiting)]

    def _done(self, client: object, future: asyncio.Future[T]) -> None:
        self.n_of[client] -= 1
        if not self.n_of[client]:
            del self.n_of[client]
            with self._lock:
                self._had.pop(client, None)
        self._on_queued(self.queued)
        if not future.cancelled():
            future.exception()  # nobody may wait for it any more: it is not reported as lost

    def _give_up(self, one: _Call[T]) -> None:
        """End a call at its next pause; one that has not begun never does."""
        with self._lock:
            one.ends_at = 0.0
            if not one.has_begun and one in self._waiting:
                self._waiting.remove(one)
                one.answer.cancel()
            one.may_go.set()

    def _fill(self) -> None:
        """Let those go on whose turn it is. The lock is held."""
        while len(self._running) < self._threads and (one := self._next()) is not None:
            self._waiting.remove(one)
            self._running.add(one)
            one.turn_began = time.monotonic()
            if one.has_begun:
                one.may_go.set()
            else:
                one.has_begun = True
                self._executor.submit(self._work, one)

    def _next(self) -> _Call[Any] | None:
        """Whose turn it is of those that wait."""
        n_begun = len(self._running) + sum(one.has_begun for one in self._waiting)
        may = [one for one in self._waiting if one.has_begun or n_begun < self._most_begun]
        return min(may, key=self._order, default=None)

    def _order(self, one: _Call[Any]) -> tuple[float, tuple[int, int]]:
        return self._had.get(one.client, 0.0), one.kind

    def _work(self, one: _Call[Any]) -> None:
        one.thread = threading.get_ident()
        try:
            one.answer.set_result(one.context.run(one.function))
        except BaseException as error:  # noqa: BLE001 (who waits for it raises it)
            one.answer.set_exception(error)
        finally:
            with self._lock:
                self._count_time(one)
                self._running.discard(one)
                self._fill()

    def _count_time(self, one: _Call[Any]) -> None:
        now = time.monotonic()
        if one.client in self._had:
            self._had[one.client] += now - one.turn_began
        one.turn_began = now

    def _pause(self, one: _Call[Any]) -> None:
        """A piece of a call is done. Raises TimedOutError if its time is over."""
        now = time.monotonic()
        if now > one.ends_at:
            self._end(one)
        if now - one.turn_began < _PIECE_S or threading.get_ident() != one.thread:
            return
        wait(itertools.chain.from_iterable(lane.answers() for lane in self._before), timeout=_GIVE_WAY_S)
        one.turn_began += time.monotonic() - now  # of others
        with self._lock:
            self._count_time(one)
            other = self._next()
            if other is None or self._order(other) >= self._order(one):
                return
            self._running.discard(one)
            self._waiting.append(one)
            one.may_go.clear()
            self._fill()
        one.may_go.wait()
        if not one.ends_at:
            with self._lock:
                if one in self._waiting:
                    self._waiting.remove(one)
            self._end(one)

    def _end(self, one: _Call[Any]) -> NoReturn:
        if one.ends_at and self._timeout_s is not None:
            raise timed_out(self._timeout_s)
        raise TimedOutError("The call was ended: nobody waits for it any more.")

    def close(self) -> None:
        """End the threads; a call that runs ends at its next pause."""
        with self._lock:
            for one in (*self._running, *self._waiting):
                one.ends_at = 0.0
                if not one.has_begun:
                    one.answer.cancel()
                one.may_go.set()
            self._waiting = [one for one in self._waiting if one.has_begun]
        self._executor.shutdown(wait=False)
