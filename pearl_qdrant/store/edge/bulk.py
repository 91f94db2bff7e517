"""The bulk writer of an embedded collection: batches go to a child process, one request and one answer at a time.

A thread does the talking, so that `write` only packs its points and goes on; at most `QUEUE` batches wait. When the
child's growing segment has grown large it compacts it and ends, and the next child begins with little memory.

Ctrl-C may come at any moment: between the lines of `queue.Queue` or `threading.Event` it leaves a lock taken or a
waiter forgotten, and the other thread waits for ever. So the two sides share a `SimpleQueue` and plain locks, whose
calls are done or not done.
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
from pearl_qdrant.store.edge.folder import CollectionFolder
from pearl_qdrant.store.edge.points import check_points
from pearl_qdrant.store.edge.process import COMPACT, COUNT, FINISH, FLUSH, POINTS, Answer, EdgeProcess
from pearl_qdrant.store.schema import NamePoint

QUEUE = 8
"""Batches that may wait for the child: 16 MB, and the four seconds of encoding that a compaction takes."""


_FULL_S = 0.005  # how long `write` sleeps while too much waits
_LOOK_S = 0.5  # how often who waits for an answer looks whether anybody is there to give it


def _taken_lock() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(slots=True)
class _Request:
    """One request to the child, and its answer when `done` is released."""

    kind: bytes
    body: bytes = b""
    n_points: int = 0
    answer: Answer = field(default_factory=dict)
    done: threading.Lock = field(default_factory=_taken_lock)


class _Talk(threading.Thread):
    """Does requests in order, starting children as needed. After an error it does none, and answers at once."""

    def __init__(self, folder: CollectionFolder) -> None:
        super().__init__(name="pearl-qdrant-edge-writer", daemon=True)
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()
        self.error: PearlQdrantError | None = None
        self.dropping = False
        self.points_before = 0
        self.points_after = 0
        self.points_written = 0
        self._job = folder.load_job()
        self._child: EdgeProcess | None = None
        self._is_first = True
        self._in_growing = 0

    def ask(self, request: _Request) -> Answer:
        """Queue a request and wait until it is done.

        Raises:
            StoreClosedError: If the load ended before it.
            StoreError: If it, or one before it, failed.
        """
        self.put(request)
        while not request.done.acquire(timeout=_LOOK_S):
            if self.is_alive():
                continue
            if request.done.acquire(blocking=False):
                break
            # Another thread has ended the load meanwhile: what was put after its end nobody takes.
            raise StoreClosedError(f"The load of collection '{self._job.collection}' has ended.")
        if self.error is not None:
            raise self.error
        return request.answer

    def put(self, request: _Request) -> None:
        """Queue a request; waits while there are too many."""
        while self._requests.qsize() >= QUEUE:
            time.sleep(_FULL_S)
        self._requests.put(request)

    def kill(self) -> None:
        """Kill the child: what waits fails."""
        self.dropping = True
        child = self._child
        if child is not None:
            child.kill()

    def run(self) -> None:
        while True:
            request = self._requests.get()
            try:
                if self.error is None and not (self.dropping and request.kind == POINTS):
                    request.answer = self._do(request)
            except PearlQdrantError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001 - a thread must hand on whatever ends it
                self._fail(StoreError(f"Writing to collection '{self._job.collection}' failed: {error!r}"))
            request.done.release()
            if request.kind == FINISH:
                self._end_child()
                return

    def _do(self, request: _Request) -> Answer:
        if self._child is None and request.kind in (FLUSH, FINISH):
            return {}  # a child that has ended has flushed
        child = self._child or self._start()
        answer = child.request(request.kind, request.body)
        if request.kind == POINTS:
            self.points_written += request.n_points
            self._in_growing += request.n_points
            if self._in_growing >= answer["compact_after"]:
                self.points_after = child.request(COMPACT)["points"]
                self._end_child()
        elif request.kind == FINISH:
            self.points_after = answer["points"]
        return answer

    def _start(self) -> EdgeProcess:
        self._child = EdgeProcess(self._job)
        ready = self._child.wait_answer()
        self._in_growing = 0
        if self._is_first:
            self.points_before, self._is_first = ready["points"], False
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
    """A bulk load; as in `protocol.Writer`. An error stays: after it nothing more is written."""

    def __init__(self, folder: CollectionFolder) -> None:
        self._folder = folder
        self._lent: AbstractContextManager[None] | None = None
        self._talk: _Talk | None = None

    def __enter__(self) -> EdgeWriter:
        self._lent = self._folder.lent("being loaded")
        self._lent.__enter__()
        try:
            self._talk = _Talk(self._folder)
            self._talk.start()
        except BaseException:
            self._lent.__exit__(None, None, None)
            raise
        self._folder.count_while_lent = self._count
        return self

    def __exit__(self, *exc_info: object) -> None:
        if not self._folder.owner.is_here:  # a fork has neither the thread nor the collection
            self._talk = self._lent = None
            return
        talk, lent = self._open_talk(), self._lent
        assert lent is not None
        self._talk = self._lent = None
        try:
            talk.dropping = exc_info[0] is not None
            self._finish(talk)
            self._note_rewritten(talk)
            if exc_info[0] is None and talk.error is not None:
                raise talk.error
        finally:
            lent.__exit__(None, None, None)

    def write(self, points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray) -> None:
        """Hand points over; as in `protocol.Writer.write`."""
        talk = self._open_talk()
        if talk.error is not None:
            raise talk.error
        for batch in check_points(points, vectors, encodable, dim=self._folder.manifest.dim):
            talk.put(_Request(POINTS, batch.pack(), len(batch)))

    def flush(self) -> None:
        """Return when all that was written is stored durably."""
        self._open_talk().ask(_Request(FLUSH))

    def _count(self) -> int:
        """Points in the collection, all that was written included."""
        return int(self._open_talk().ask(_Request(COUNT))["points"])

    def _finish(self, talk: _Talk) -> None:
        """End the child in good order, or on Ctrl-C at once."""
        try:
            talk.put(_Request(FINISH))
            talk.join()
        except BaseException:
            talk.kill()
            talk.join(timeout=10)
            raise

    def _note_rewritten(self, talk: _Talk) -> None:
        """Points that were there before have left the graph for the growing segment; after an error, all may have."""
        state = self._folder.index_state()
        rewritten = talk.points_written - max(0, talk.points_after - talk.points_before)
        if state is not None and rewritten > 0:
            with suppress(StoreError):  # a full disk is told of already
                self._folder.write_index_state(replace(state, rewritten=state.rewritten + rewritten))

    def _open_talk(self) -> _Talk:
        self._folder.owner.check()
        if self._talk is None:
            raise StoreClosedError(
                f"The writer of collection '{self._folder.name}' is not open: use it in a with statement."
            )
        return self._talk
