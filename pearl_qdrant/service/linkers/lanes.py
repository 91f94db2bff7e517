"""A lane runs blocking calls in a thread, in order, with a bounded queue in front of it."""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pearl_qdrant.service.deadline import set_time
from pearl_qdrant.service.errors import QueueFullError, TimedOutError

T = TypeVar("T")


class Lane:
    """Threads for one kind of call.

    Args:
        name: Of the kind, for errors and thread names.
        threads: Calls that run at once.
        max_queued: Calls that may wait or run; more raise `QueueFullError`.
        timeout_s: Time of a call, waiting included; after it `TimedOutError`. None: no limit.
        on_queued: Called with the number of calls that wait or run, when it changes.
    """

    def __init__(
        self,
        name: str,
        *,
        threads: int,
        max_queued: int,
        timeout_s: float | None,
        on_queued: Callable[[float], object] = lambda queued: None,
    ) -> None:
        self._on_queued = on_queued
        self._name = name
        self._max_queued = max_queued
        self._timeout_s = timeout_s
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=f"pearl-qdrant-{name}")
        self.queued = 0

    async def run(self, call: Callable[[], T]) -> T:
        """The result of a call, which logs with the id of the request that asks, and knows its time (`deadline`).

        Raises:
            QueueFullError: If too many wait.
            TimedOutError: If it does not end in time; one that has not started never does then.
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


def queue_full(what: str, allowed: int, *, retry_after_s: float) -> QueueFullError:
    """The error of a full queue."""
    seconds = max(1, math.ceil(retry_after_s))
    return QueueFullError(
        f"Too much is waiting ({what}: at most {allowed:,}). Send it again in {seconds} s.",
        retry_after_s=seconds,
        allowed=allowed,
    )


def timed_out(timeout_s: float) -> TimedOutError:
    """The error of a call that took too long."""
    return TimedOutError(
        f"There was no answer within timeout_s = {timeout_s:g} s. Send less in one request, or again later.",
        limit="timeout_s",
        allowed=timeout_s,
    )
