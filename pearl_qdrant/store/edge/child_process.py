"""The child process that holds a shard during a load, or while the graph is built: its parent's side, and bulk loads.

Edge's growing segments take anonymous memory that a process never returns, and `update` and `optimize` hold the
interpreter lock. In a child the memory is returned at its end, the parent's encoder keeps running, and Ctrl-C can stop
it. There is one answer for each request. A small load has no child: to start one takes longer than to write the points.
"""

from __future__ import annotations

import pickle
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import msgspec
from qdrant_edge import EdgeShard

from pearl_qdrant.child import ChildProcess, why_ended
from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.errors import PearlQdrantError, StoreClosedError, StoreError
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.folder import CollectionFolder, Job
from pearl_qdrant.store.edge.shard import PointBatch, check_points
from pearl_qdrant.store.schema import NamePoint
from pearl_qdrant.store.system import resource_error

MODULE = "pearl_qdrant.store.edge.child_main"

POINTS, FLUSH, COMPACT, FINISH = b"P", b"F", b"C", b"E"
"""Requests: write a batch; flush; compact, flush and exit; flush and exit."""

OK, FAILED = b"+", b"!"

Answer = dict[str, Any]

DIRECT_POINTS = 1000  # points that a load writes in this process, as an edit does: a child takes 0.4 s to start


class EdgeProcess(ChildProcess):
    """One child. It first sends an answer by itself, when it is ready. After an error it exits, and flushes before."""

    def __init__(self, job: Job) -> None:
        self._job = job
        try:
            super().__init__(MODULE, msgspec.json.encode(job).decode())
        except OSError as error:  # also if the disk is full: then there is no folder for temporary files
            failed = f"Cannot start the process that writes collection '{job.collection}'"
            raise resource_error(error, failed) or StoreError(
                f"{failed} ({error}). Free some space, or point TMPDIR to another disk."
            ) from error

    def receive_answer(self) -> Answer:
        """Wait for the next answer; StoreError if the child reports an error, or died."""
        frame = self.receive()
        if frame is None:
            raise self._died()
        if frame[0] == FAILED:
            raise frame[1]
        answer: Answer = frame[1]
        return answer

    def request(self, kind: bytes, body: bytes = b"") -> Answer:
        self.send(kind, body)
        return self.receive_answer()

    def _died(self) -> StoreError:
        code, output = self.ended()
        name, is_graph = self._job.collection, self._job.task == "finalize"
        why = why_ended(code)
        is_bus = -code == getattr(signal, "SIGBUS", None)
        free = self._free_bytes()
        if free < (edge_shard.MIN_FREE_BYTES if is_bus else edge_shard.OPEN_BYTES):
            what = f"{free / 1e6:,.0f} MB free; the process that writes it {why}"
            return edge_shard.disk_full_error(name, what, doing="building its graph" if is_graph else "writing to it")
        if is_bus:
            why += f": a write to a mapped file failed, although {free / 1e6:,.0f} MB are free now"
        elif -code == getattr(signal, "SIGKILL", None):
            why += ", perhaps because memory ran out"
        doing = "builds the graph of" if is_graph else "writes"
        if (lack := resource_error(output, f"The process that {doing} collection '{name}' {why}")) is not None:
            return lack
        kept = "is stored in it" if is_graph else "it had acknowledged"
        return StoreError(
            f"The process that {doing} collection '{name}' {why}. What {kept} is kept; run the same command again to "
            f"resume." + (f"\nIts last output: {output}" if output else "")
        )

    def _free_bytes(self) -> int:
        """Return the free space on the shard's disk; unlimited if the shard is gone."""
        try:
            return shutil.disk_usage(Path(self._job.shard).parent).free
        except OSError:
            return sys.maxsize


@final
class EdgeWriter:
    """A bulk load; see `protocol.Writer`. After an error nothing more is written. For one thread at a time.

    The first points are written here. While a child writes a batch, the caller makes the next one. When the child's
    growing segment is large, the child compacts it and exits, and the next child starts with little memory.
    """

    def __init__(self, folder: CollectionFolder) -> None:
        self._folder = folder
        self._hand_over: AbstractContextManager[EdgeShard] | None = None
        self._shard: EdgeShard | None = None  # until a child is started
        self._child: EdgeProcess | None = None
        self._error: PearlQdrantError | None = None
        self._n_sent = 0  # points that the child has not acknowledged yet
        self._n_growing = 0  # points in the child's growing segment
        self._n_written = 0  # points that were acknowledged
        self._n_before: int | None = None  # points in the collection before the load
        self._n_after = 0  # the same after the last compaction, or the end

    def __enter__(self) -> EdgeWriter:
        self._hand_over = self._folder.hand_over("being loaded")
        self._shard = self._hand_over.__enter__()
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
                self._hand_over = self._shard = None

    def write(self, points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray) -> None:
        self._check_open()
        batches = check_points(points, vectors, encodable, dim=self._folder.manifest.dim)
        with self._working():
            for batch in batches:
                if self._shard is not None and self._n_written + len(batch) <= DIRECT_POINTS:
                    self._write_here(self._shard, batch)
                    continue
                packed = pickle.dumps(batch, protocol=pickle.HIGHEST_PROTOCOL)
                self._acknowledge()
                (self._child or self._start_child()).send(POINTS, packed)
                self._n_sent = len(batch)

    def flush(self) -> None:
        with self._working():
            self._acknowledge()
            if self._child is not None:  # a child flushes before it exits
                self._child.request(FLUSH)
            elif self._shard is not None:
                self._shard.flush()

    def _finish(self) -> None:
        with self._working():
            self._acknowledge()
            if self._child is not None:
                self._end_child(FINISH)
            elif self._shard is not None and self._n_written:
                self._n_after = edge_shard.count_points(self._shard)

    def _write_here(self, shard: EdgeShard, batch: PointBatch) -> None:
        if self._n_before is None:
            self._n_before = edge_shard.count_points(shard)
        edge_shard.check_space(self._folder.path, self._folder.name)
        edge_shard.upsert(shard, batch)
        self._n_written += len(batch)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Kill the child if the block fails; later blocks then raise the same error."""
        self._check_open()
        if self._error is not None:
            raise self._error
        try:
            with edge_shard.edge_errors(self._folder.name, "writing to it"):
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
        self._shard = None
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
        """Record how many points this load has written again: they moved from the graph to the growing segment. After
        an error the number of new points is unknown, and all are counted as written again.
        """
        state = self._folder.index
        rewritten = self._n_written - max(0, self._n_after - (self._n_before or 0))
        if state is not None and rewritten > 0:
            with suppress(StoreError):  # a full disk has been reported already
                self._folder.write_index_state(replace(state, rewritten=state.rewritten + rewritten))
