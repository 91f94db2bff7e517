"""The bulk writer of an embedded collection: it sends batches to a child process that holds the shard.

While the child writes a batch, the caller makes the next one. When the child's growing segment is large, the child
compacts it and exits, and the next child starts with little memory.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import final

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.errors import PearlQdrantError, StoreClosedError, StoreError
from pearl_qdrant.store.edge.child_process import COMPACT, FINISH, FLUSH, POINTS, EdgeProcess
from pearl_qdrant.store.edge.folder import CollectionFolder
from pearl_qdrant.store.edge.points import check_points
from pearl_qdrant.store.schema import NamePoint


@final
class EdgeWriter:
    """A bulk load; see `protocol.Writer`. After an error nothing more is written. For one thread at a time."""

    def __init__(self, folder: CollectionFolder) -> None:
        self._folder = folder
        self._hand_over: AbstractContextManager[None] | None = None
        self._child: EdgeProcess | None = None
        self._error: PearlQdrantError | None = None
        self._n_sent = 0  # points that the child has not acknowledged yet
        self._n_growing = 0  # points in the child's growing segment
        self._n_written = 0  # points that were acknowledged
        self._n_before: int | None = None  # points in the collection before the load
        self._n_after = 0  # the same after the last compaction, or the end

    def __enter__(self) -> EdgeWriter:
        self._hand_over = self._folder.hand_over("being loaded")
        self._hand_over.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if not self._folder.guard.is_owner:  # a forked process has neither the child nor the collection
            return
        error, hand_over = exc_info[1], self._hand_over
        assert hand_over is not None
        with ExitStack() as ends:
            ends.callback(hand_over.__exit__, None, None, None)
            ends.callback(self._record_rewritten)
            try:
                if error is None or isinstance(error, Exception):
                    self._finish()
                else:  # Ctrl-C does not wait for a compaction; what was acknowledged is kept
                    self._kill_child()
            except PearlQdrantError:
                if error is None:
                    raise
            finally:
                self._hand_over = None

    def write(self, points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray) -> None:
        """Send points to the child; see `protocol.Writer.write`."""
        self._check_open()
        batches = check_points(points, vectors, encodable, dim=self._folder.manifest.dim)
        with self._working():
            for batch in batches:
                packed = pickle.dumps(batch, protocol=pickle.HIGHEST_PROTOCOL)
                self._acknowledge()
                (self._child or self._start_child()).send(POINTS, packed)
                self._n_sent = len(batch)

    def flush(self) -> None:
        """Return when all points so far are stored durably."""
        with self._working():
            self._acknowledge()
            if self._child is not None:  # a child flushes before it exits
                self._child.request(FLUSH)

    def _finish(self) -> None:
        """Let the child write what it has, and exit."""
        with self._working():
            self._acknowledge()
            if self._child is not None:
                self._end_child(FINISH)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Kill the child if the block fails; later blocks then raise the same error."""
        self._check_open()
        if self._error is not None:
            raise self._error
        try:
            yield
        except BaseException as error:
            stopped = StoreError(f"Writing to collection '{self._folder.name}' was stopped: {error!r}")
            self._error = error if isinstance(error, PearlQdrantError) else stopped
            self._kill_child()
            raise

    def _check_open(self) -> None:
        self._folder.guard.check()
        if self._hand_over is None:
            raise StoreClosedError(
                f"The writer of collection '{self._folder.name}' is not open: use it in a with statement."
            )

    def _start_child(self) -> EdgeProcess:
        self._child, self._n_growing = EdgeProcess(self._folder.job("load")), 0
        n_points = self._child.receive_answer()["points"]
        if self._n_before is None:
            self._n_before = n_points
        return self._child

    def _acknowledge(self) -> None:
        """Wait until the child has written what was sent; with a large growing segment it then compacts and exits."""
        if self._child is None or not self._n_sent:
            return
        compact_after = self._child.receive_answer()["compact_after"]
        self._n_written += self._n_sent
        self._n_growing += self._n_sent
        self._n_sent = 0
        if self._n_growing >= compact_after:
            self._end_child(COMPACT)

    def _end_child(self, kind: bytes) -> None:
        """Send the child's last request, and wait until it has exited."""
        assert self._child is not None
        self._n_after = self._child.request(kind)["points"]
        self._child.end()
        self._child = None

    def _kill_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.end()

    def _record_rewritten(self) -> None:
        """Record how many points this load has written again: they moved from the graph to the growing segment.

        After an error the number of new points is unknown, and all are counted as written again.
        """
        state = self._folder.index_state()
        rewritten = self._n_written - max(0, self._n_after - (self._n_before or 0))
        if state is not None and rewritten > 0:
            with suppress(StoreError):  # a full disk has been reported already
                self._folder.write_index_state(replace(state, rewritten=state.rewritten + rewritten))
