"""The bulk writer of an embedded collection: it sends batches to a child process that holds the shard.

A thread waits for the child's answers, so that `write` only packs its points and returns; at most `QUEUE` batches wait.
When the child's growing segment is large, the child compacts it and exits, and the next child starts with little
memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import final

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.errors import PearlQdrantError, StoreClosedError, StoreError
from pearl_qdrant.store.edge.child_process import COMPACT, COUNT, FINISH, FLUSH, POINTS, Answer, EdgeProcess
from pearl_qdrant.store.edge.folder import CollectionFolder
from pearl_qdrant.store.edge.points import check_points
from pearl_qdrant.store.schema import NamePoint

QUEUE = 8
"""Batches that may wait for the child: 16 MB, or the names encoded in the four seconds that a compaction takes."""

STOP_S = 1.5
"""How long a stopped load lets the child end by itself; a compaction takes longer. What was acknowledged is kept."""


class _Children:
    """The children of a load, one after the other; used by one thread, but for `kill`.

    Attributes:
        error: The first error; after it nothing is sent. None if all went well.
        points_before, points_after: Points in the collection before the load and after the last compaction or its end.
        points_written: Points that the children have acknowledged.
    """

    def __init__(self, folder: CollectionFolder) -> None:
        self.error: PearlQdrantError | None = None
        self.points_before: int | None = None
        self.points_after = 0
        self.points_written = 0
        self._job = folder.load_job()
        self._child: EdgeProcess | None = None
        self._n_growing = 0  # points in the child's growing segment

    def send(self, kind: bytes, body: bytes = b"", n_points: int = 0) -> Answer:
        """Send a request; raises the first error of all."""
        if self.error is not None:
            raise self.error
        try:
            return self._send(kind, body, n_points)
        except Exception as error:
            what = f"Writing to collection '{self._job.collection}' failed: {error!r}"
            self.error = error if isinstance(error, PearlQdrantError) else StoreError(what)
            self._end()
            raise self.error from error

    def _send(self, kind: bytes, body: bytes, n_points: int) -> Answer:
        if self._child is None and kind in (FLUSH, FINISH):
            return {}  # a child flushes before it exits
        if self._child is None:
            self._child, self._n_growing = EdgeProcess(self._job), 0
            ready = self._child.receive_answer()
            self.points_before = ready["points"] if self.points_before is None else self.points_before
        answer = self._child.request(kind, body)
        if kind == POINTS:
            self.points_written += n_points
            self._n_growing += n_points
            if self._n_growing >= answer["compact_after"]:
                self.points_after = self._child.request(COMPACT)["points"]
                self._end()
        elif kind == FINISH:
            self.points_after = answer["points"]
            self._end()
        return answer

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def kill(self) -> None:
        """Kill the child; the request that waits fails."""
        if (child := self._child) is not None:
            child.kill()


@final
class EdgeWriter:
    """A bulk load; see `protocol.Writer`. After an error nothing more is written."""

    def __init__(self, folder: CollectionFolder) -> None:
        self._folder = folder
        self._hand_over: AbstractContextManager[None] | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._pending: deque[Future[Answer]] = deque()

    def __enter__(self) -> EdgeWriter:
        self._hand_over = self._folder.hand_over("being loaded")
        self._hand_over.__enter__()
        self._children = _Children(self._folder)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="pearl-qdrant-edge-writer")
        self._folder.count_in_writer = self._count
        return self

    def __exit__(self, *exc_info: object) -> None:
        pool, self._pool = self._pool, None
        if not self._folder.guard.is_owner:  # a forked process has neither the thread nor the collection
            return
        hand_over, children = self._hand_over, self._children
        assert hand_over is not None
        assert pool is not None
        try:
            is_stopped = exc_info[0] is not None and not isinstance(exc_info[1], Exception)  # by Ctrl-C
            self._finish(pool, is_failed=exc_info[0] is not None, patience_s=STOP_S if is_stopped else None)
            self._record_rewritten(children)
            if exc_info[0] is None and children.error is not None:
                raise children.error
        finally:
            hand_over.__exit__(None, None, None)

    def write(
        self,
        points: Sequence[NamePoint],
        vectors: FloatArray,
        encodable: BoolArray,
        *,
        descriptions: FloatArray | None = None,
    ) -> None:
        """Queue points; see `protocol.Writer.write`."""
        pool = self._open_pool()
        if self._children.error is not None:
            raise self._children.error
        for batch in check_points(points, vectors, encodable, self._folder.manifest, descriptions):
            while self._pending and (len(self._pending) >= QUEUE or self._pending[0].done()):
                self._pending[0].result()
                self._pending.popleft()
            self._pending.append(pool.submit(self._children.send, POINTS, batch.pack(), len(batch)))

    def flush(self) -> None:
        """Return when all points so far are stored durably."""
        self._ask(FLUSH)

    def _count(self) -> int:
        """Count the points in the collection, including all points written so far."""
        return int(self._ask(COUNT)["points"])

    def _ask(self, kind: bytes) -> Answer:
        try:
            return self._open_pool().submit(self._children.send, kind).result()
        except (CancelledError, RuntimeError) as error:  # another thread has ended the load
            raise StoreClosedError(f"The load of collection '{self._folder.name}' has ended.") from error

    def _finish(self, pool: ThreadPoolExecutor, *, is_failed: bool, patience_s: float | None) -> None:
        """Let the child write what waits and exit; after an error, what waits is dropped.

        The child is killed on Ctrl-C, and after `patience_s` seconds.
        """
        try:
            if is_failed:
                for waiting in self._pending:
                    waiting.cancel()
            wait([pool.submit(self._children.send, FINISH)], patience_s)
        finally:
            self._pending.clear()
            # It does nothing if the child has ended.
            self._children.kill()
            pool.shutdown(wait=True, cancel_futures=True)

    def _record_rewritten(self, children: _Children) -> None:
        """Record how many points this load has written again: they moved from the graph to the growing segment.

        After an error the number of new points is unknown, and all are counted as written again.
        """
        state = self._folder.index_state()
        rewritten = children.points_written - max(0, children.points_after - (children.points_before or 0))
        if state is not None and rewritten > 0:
            with suppress(StoreError):  # a full disk has been reported already
                self._folder.write_index_state(replace(state, rewritten=state.rewritten + rewritten))

    def _open_pool(self) -> ThreadPoolExecutor:
        self._folder.guard.check()
        if self._pool is None:
            raise StoreClosedError(
                f"The writer of collection '{self._folder.name}' is not open: use it in a with statement."
            )
        return self._pool
