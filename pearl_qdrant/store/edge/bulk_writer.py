"""The bulk writer of an embedded collection: it sends batches to a child process that holds the shard.

A thread waits for the child's answers, so that `write` only packs its points and returns; at most `QUEUE` batches wait.
When the child's growing segment is large, the child compacts it and exits, and the next child starts with little
memory.

Ctrl-C may arrive at any moment. Between the lines of `queue.Queue` or `threading.Event` it can leave a lock taken or a
waiting thread forgotten, and then the other thread waits for ever. So the two threads share only a `SimpleQueue` and
plain locks, whose calls are written in C and cannot be interrupted half-way.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import final

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.errors import PearlQdrantError, StoreClosedError, StoreError
from pearl_qdrant.store.edge.child_process import COMPACT, COUNT, FINISH, FLUSH, POINTS, Answer, EdgeProcess
from pearl_qdrant.store.edge.folder import CollectionFolder
from pearl_qdrant.store.edge.points import check_points
from pearl_qdrant.store.schema import NamePoint

QUEUE = 8
"""Batches that may wait for the child: 16 MB, or the names encoded in the four seconds that a compaction takes."""

_FULL_QUEUE_SLEEP_S = 0.005
STOP_S = 1.5
"""How long a stopped load lets the child end by itself; a compaction takes longer. What was acknowledged is kept."""

_CHECK_THREAD_S = 0.5  # how often a caller that waits for an answer checks that the thread is alive


def _new_taken_lock() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(slots=True)
class _Request:
    """One request to the child. Its answer is there once `done` can be acquired."""

    kind: bytes
    body: bytes = b""
    n_points: int = 0
    answer: Answer = field(default_factory=dict)
    done: threading.Lock = field(default_factory=_new_taken_lock)


class _WriterThread(threading.Thread):
    """Sends requests to the child in order, and starts children as needed.

    After an error it sends nothing more: later requests are marked as done at once.

    Attributes:
        error: The first error; None if all went well.
        drops_points: Skip the batches that still wait: the load was stopped by an exception.
        points_before, points_after: Points in the collection before the load and after the last compaction or its end.
        points_written: Points that the children have acknowledged.
    """

    def __init__(self, folder: CollectionFolder) -> None:
        super().__init__(name="pearl-qdrant-edge-writer", daemon=True)
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()
        self.error: PearlQdrantError | None = None
        self.drops_points = False
        self.points_before = 0
        self.points_after = 0
        self.points_written = 0
        self._job = folder.load_job()
        self._child: EdgeProcess | None = None
        self._is_first_child = True
        self._n_growing = 0  # points in the child's growing segment

    def submit_and_wait(self, request: _Request) -> Answer:
        """Queue a request and wait until it is done.

        Raises:
            StoreClosedError: If the load ended before it.
            StoreError: If it, or an earlier one, failed.
        """
        self.submit(request)
        while not request.done.acquire(timeout=_CHECK_THREAD_S):
            if self.is_alive():
                continue
            # It may have been done just before the thread ended.
            if request.done.acquire(blocking=False):
                break
            # Another thread has ended the load: a request queued after FINISH is never taken.
            raise StoreClosedError(f"The load of collection '{self._job.collection}' has ended.")
        if self.error is not None:
            raise self.error
        return request.answer

    def submit(self, request: _Request) -> None:
        """Queue a request; waits while the queue is full."""
        while self._requests.qsize() >= QUEUE:
            time.sleep(_FULL_QUEUE_SLEEP_S)
        self._requests.put(request)

    def submit_at_once(self, request: _Request) -> None:
        """Queue a request, even if the queue is full."""
        self._requests.put(request)

    def kill_child(self) -> None:
        """Kill the child; requests that wait fail."""
        self.drops_points = True
        child = self._child
        if child is not None:
            child.kill()

    def run(self) -> None:
        """Do requests until FINISH."""
        while True:
            request = self._requests.get()
            try:
                if self.error is None and not (self.drops_points and request.kind == POINTS):
                    request.answer = self._send(request)
            except PearlQdrantError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001 - a thread must report every error
                self._fail(StoreError(f"Writing to collection '{self._job.collection}' failed: {error!r}"))
            request.done.release()
            if request.kind == FINISH:
                self._end_child()
                return

    def _send(self, request: _Request) -> Answer:
        if self._child is None and request.kind in (FLUSH, FINISH):
            return {}  # a child flushes before it exits
        child = self._child or self._start_child()
        answer = child.request(request.kind, request.body)
        if request.kind == POINTS:
            self.points_written += request.n_points
            self._n_growing += request.n_points
            if self._n_growing >= answer["compact_after"]:
                self.points_after = child.request(COMPACT)["points"]
                self._end_child()
        elif request.kind == FINISH:
            self.points_after = answer["points"]
        return answer

    def _start_child(self) -> EdgeProcess:
        self._child = EdgeProcess(self._job)
        ready = self._child.receive_answer()
        self._n_growing = 0
        if self._is_first_child:
            self.points_before, self._is_first_child = ready["points"], False
        return self._child

    def _fail(self, error: PearlQdrantError) -> None:
        self.error = error
        self._end_child()

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()


@final
class EdgeWriter:
    """A bulk load; see `protocol.Writer`. After an error nothing more is written."""

    def __init__(self, folder: CollectionFolder) -> None:
        self._folder = folder
        self._hand_over: AbstractContextManager[None] | None = None
        self._thread: _WriterThread | None = None

    def __enter__(self) -> EdgeWriter:
        self._hand_over = self._folder.hand_over("being loaded")
        self._hand_over.__enter__()
        try:
            self._thread = _WriterThread(self._folder)
            self._thread.start()
        except BaseException:
            self._hand_over.__exit__(None, None, None)
            raise
        self._folder.count_in_writer = self._count
        return self

    def __exit__(self, *exc_info: object) -> None:
        if not self._folder.guard.is_owner:  # a forked process has neither the thread nor the collection
            self._thread = self._hand_over = None
            return
        thread, hand_over = self._running_thread(), self._hand_over
        assert hand_over is not None
        self._thread = self._hand_over = None
        try:
            thread.drops_points = exc_info[0] is not None
            is_stopped = exc_info[0] is not None and not isinstance(exc_info[1], Exception)  # by Ctrl-C
            self._finish(thread, STOP_S if is_stopped else None)
            self._record_rewritten(thread)
            if exc_info[0] is None and thread.error is not None:
                raise thread.error
        finally:
            hand_over.__exit__(None, None, None)

    def write(self, points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray) -> None:
        """Queue points; see `protocol.Writer.write`."""
        thread = self._running_thread()
        if thread.error is not None:
            raise thread.error
        for batch in check_points(points, vectors, encodable, dim=self._folder.manifest.dim):
            thread.submit(_Request(POINTS, batch.pack(), len(batch)))

    def flush(self) -> None:
        """Return when all points so far are stored durably."""
        self._running_thread().submit_and_wait(_Request(FLUSH))

    def _count(self) -> int:
        """Count the points in the collection, including all points written so far."""
        return int(self._running_thread().submit_and_wait(_Request(COUNT))["points"])

    def _finish(self, thread: _WriterThread, patience_s: float | None) -> None:
        """Let the child write what waits and exit; kill it on Ctrl-C, and after `patience_s` seconds."""
        try:
            if patience_s is None:
                thread.submit(_Request(FINISH))
            else:
                thread.submit_at_once(_Request(FINISH))
            thread.join(patience_s)
            if thread.is_alive():
                thread.kill_child()
                thread.join(timeout=10)
        except BaseException:
            thread.kill_child()
            thread.join(timeout=10)
            raise

    def _record_rewritten(self, thread: _WriterThread) -> None:
        """Record how many points this load has written again: they moved from the graph to the growing segment.

        After an error the number of new points is unknown, and all are counted as written again.
        """
        state = self._folder.index_state()
        rewritten = thread.points_written - max(0, thread.points_after - thread.points_before)
        if state is not None and rewritten > 0:
            with suppress(StoreError):  # a full disk has been reported already
                self._folder.write_index_state(replace(state, rewritten=state.rewritten + rewritten))

    def _running_thread(self) -> _WriterThread:
        self._folder.guard.check()
        if self._thread is None:
            raise StoreClosedError(
                f"The writer of collection '{self._folder.name}' is not open: use it in a with statement."
            )
        return self._thread
