"""Answers in order, from workers: windows of items are split over them, and the next ones wait in their pipes.

Memory is bounded: at most `AHEAD` windows are sent and not yet taken, and one is with the caller.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pearl_qdrant.errors import WorkerError
from pearl_qdrant.linking.workers.jobs import Job, Part
from pearl_qdrant.linking.workers.messages import DONE, FAILED, OTHER_STATE, Setup, pack_task, unpack_error
from pearl_qdrant.linking.workers.packing import unpack
from pearl_qdrant.linking.workers.pool import WorkerPool

AHEAD = 2
"""Windows that workers have, while the caller takes the answers of the one before."""

SLOW_SOURCE_S = 0.1
"""If reading a window takes longer, what was read is answered before more is read."""

log = logging.getLogger(__name__)

T = TypeVar("T")
A = TypeVar("A")


class _AnswerHereError(Exception):
    """The workers cannot answer: this process does."""


@dataclass(slots=True)
class _Sent:
    """A part of a window at a worker."""

    part: Part
    task: bytes
    setup: bytes = b""
    answer: Future[tuple[bytes, bytes]] | None = None


@dataclass(slots=True)
class _Window(Generic[T]):
    """Items, and what was sent of them; nothing if this process answers."""

    items: list[T]
    sent: list[_Sent] = field(default_factory=list)


@dataclass(slots=True)
class WorkerStream(Generic[T, A]):
    """One batch.

    Attributes:
        job: What to do with the items.
        pool: The workers.
        n_workers: How many of them to use.
        setup: What the workers must have open by now, packed; None if only this process has the state of the
            collections.
        is_required: Whether the caller asked for workers: then it is an error if they cannot be used. Otherwise this
            process goes on alone.
    """

    job: Job[T, A]
    pool: WorkerPool
    n_workers: int
    setup: Callable[[], bytes | None]
    is_required: bool
    _is_alone: bool = False

    def answers(self, items: Iterator[T]) -> Iterator[A]:
        """Answer items in order. An error of the iterator is raised after the answers for what it gave before."""
        waiting: deque[_Window[T]] = deque()
        failed: Exception | None = None
        is_slow = False
        while True:
            while waiting and (is_slow or len(waiting) > AHEAD):
                yield from self._finish(waiting.popleft())
            start = time.monotonic()
            try:
                window = self.job.take(items, self.n_workers)
            except Exception as error:  # noqa: BLE001 - raised below
                failed = error
                break
            is_slow = time.monotonic() - start > SLOW_SOURCE_S or self._is_alone
            if not window:
                break
            waiting.append(self._send_all(window))
        while waiting:
            yield from self._finish(waiting.popleft())
        if failed is not None:
            raise failed

    def _send_all(self, items: list[T]) -> _Window[T]:
        """Send a window to the workers."""
        window = _Window(items)
        setup = None if self._is_alone else self.setup()
        if setup is None:
            return window
        try:
            parts = self.job.split(items, self.n_workers)
            self.pool.start(part.worker for part in parts)
            for part in parts:
                window.sent.append(_Sent(part, pack_task(part.items, self.job.options)))
                self._send(window.sent[-1], setup)
        except WorkerError as error:
            self._give_up(error)
            window.sent = []
        return window

    def _send(self, sent: _Sent, setup: bytes) -> None:
        sent.setup = setup
        sent.answer = self.pool.submit(sent.part.worker, setup, self.job.kind, sent.task)

    def _finish(self, window: _Window[T]) -> Iterator[A]:
        """The answers for a window."""
        try:
            found = self._collect(window)
        except _AnswerHereError:
            return self.job.here(window.items)
        return iter(found)

    def _collect(self, window: _Window[T]) -> list[A]:
        """The answers of the workers.

        Raises:
            _AnswerHereError: If there are none.
            WorkerError: If workers were asked for, and fail.
            Exception: That of a task.
        """
        if not window.sent:
            raise _AnswerHereError
        packed = [self._packed(sent) for sent in window.sent]
        answers: list[Any] = [None] * len(window.items)
        for sent, results in zip(window.sent, packed, strict=True):
            for places, result in zip(sent.part.places, results, strict=True):
                for place in places:  # read for each place: callers may change what they get
                    answers[place] = self.job.read(result, window.items[place])
        return answers

    def _packed(self, sent: _Sent) -> list[Any]:
        """The answers for a part; it is sent again if its worker died, once, or the collections changed since."""
        is_second = False
        while True:
            setup = self.setup()
            if setup is None or self._is_alone:
                raise _AnswerHereError
            if sent.answer is None or sent.setup != setup:
                try:
                    self._send(sent, setup)
                except WorkerError as error:
                    self._give_up(error)
                    raise _AnswerHereError from error
            assert sent.answer is not None
            try:
                kind, body = sent.answer.result()
            except WorkerError as error:
                sent.answer = None
                if is_second or not self.pool.is_usable or not self.is_required:
                    self._give_up(error)
                    raise _AnswerHereError from error
                is_second = True
                continue
            if self.setup() != setup:
                continue
            if kind == DONE:
                return unpack(body)
            if kind == FAILED:
                raise unpack_error(body)
            if kind == OTHER_STATE:
                log.info("The collections changed after they were opened here: no worker process can have that state.")
                self._is_alone = True
                raise _AnswerHereError
            self._give_up(unpack_error(body))
            raise _AnswerHereError

    def _give_up(self, error: Exception) -> None:
        """Go on alone; raise the error if workers were asked for."""
        if self.is_required or not self.pool.is_usable:
            raise error
        log.warning("Linking goes on in one process: %s", error)
        self._is_alone = True


def packed_once(setup: Callable[[], Setup | None]) -> Callable[[], bytes | None]:
    """The setup as bytes, packed again only if it is another one."""
    last: list[tuple[Setup, bytes]] = []

    def packed() -> bytes | None:
        now = setup()
        if now is None:
            return None
        if not last or last[0][0] is not now:
            last[:] = [(now, now.pack())]
        return last[0][1]

    return packed
