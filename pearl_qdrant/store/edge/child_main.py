"""The process that writes an embedded collection: ``python -m pearl_qdrant.store.edge.child_main JOB``.

Started by `bulk_writer.py` (a load) and `collection.py` (`finalize`); not for use by hand.

A load writes into one growing segment. Payload indexes cost more than everything else in writing: with them a point
takes 40 us to write, 50 to 90 to compact and 1.4 KB of anonymous memory, without them 20, 11 and 0.2. Qdrant also
builds them again with the graph. So when a load makes a collection without a graph large, it drops them, and `finalize`
makes them: the index of the type filter before the graph, which takes its links for filters from it, the others after
it. Until then filters work, but read the payloads.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

from qdrant_edge import EdgeShard

from pearl_qdrant.errors import StoreError
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.child_process import (
    COMPACT,
    FAILED,
    FINISH,
    FLUSH,
    OK,
    POINTS,
    Answer,
    Job,
    receive,
    send,
)
from pearl_qdrant.store.edge.points import PointBatch
from pearl_qdrant.store.graph import share_indexed
from pearl_qdrant.store.schema import LEXICAL

_PR_SET_PDEATHSIG = 1  # prctl(2)
_MANY_SEGMENTS = 1000  # never merge while loading


class ShardLoad:
    """One child's part of a load."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._path = Path(job.shard)
        # Two compacted segments must not fit into one: merging them again and again would take quadratic time.
        points = job.compact_points if job.has_graph else job.compact_unindexed_points
        config = edge_shard.shard_config(
            job.dim,
            m=job.graph_m if job.has_graph else 0,
            ef_construct=job.graph_ef_construct,
            segments=_MANY_SEGMENTS,
            max_segment_kb=max(1, points * job.dim * 4 // 1024),
            threshold_kb=job.threshold_kb,
            quantization=job.quantization if job.has_graph else "none",
        )
        self._shard: EdgeShard = edge_shard.load_shard(self._path, job.collection, config)
        self._has_indexes = edge_shard.has_indexes(self._shard)
        self._growing_bytes = 0

    def count(self) -> Answer:
        """Exact number of points."""
        return {"points": edge_shard.count_points(self._shard)}

    def write(self, packed: bytes) -> Answer:
        """Write one batch; return how many points a child may write before it must compact."""
        job = self._job
        edge_shard.check_space(self._path, job.collection)
        batch: PointBatch = pickle.loads(packed)  # noqa: S301 - our own parent packed it
        edge_shard.upsert(self._shard, batch)
        self._growing_bytes += len(packed)
        if self._has_indexes and not job.has_graph and self._shard.info().points_count > job.small_points:
            edge_shard.drop_indexes(self._shard)
            self._has_indexes = False
        return {"compact_after": job.compact_points if self._has_indexes else job.compact_unindexed_points}

    def flush(self) -> Answer:
        """Make all writes durable."""
        self._shard.flush()
        return {}

    def compact(self) -> Answer:
        """Turn the growing segment into one of mapped files, and close. Until that is done, both are on the disk."""
        self._shard.flush()
        edge_shard.check_space(self._path, self._job.collection, self._growing_bytes + edge_shard.MIN_FREE_BYTES)
        self._shard.optimize()
        return self.close()

    def close(self) -> Answer:
        """Flush and close."""
        answer = self.count()
        self._shard.flush()
        self._shard.close()
        return answer


def _serve(load: ShardLoad, requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until one of them ends this child, or the parent has closed the pipe."""
    actions: dict[bytes, Callable[[], Answer]] = {FLUSH: load.flush, COMPACT: load.compact, FINISH: load.close}
    while frame := receive(requests):
        kind, body = frame
        send(answers, OK, load.write(body) if kind == POINTS else actions[kind]())
        if kind in (COMPACT, FINISH):
            return
    load.close()


def _finalize(job: Job) -> Answer:
    """Build the graph, and the payload indexes that are missing."""
    path = Path(job.shard)
    config = edge_shard.shard_config(
        job.dim,
        m=job.graph_m,
        ef_construct=job.graph_ef_construct,
        segments=edge_shard.MAX_SEGMENTS - 1 + job.parts if job.has_graph else 1,
        threshold_kb=job.threshold_kb,
        quantization=job.quantization,
    )
    shard = edge_shard.load_shard(path, job.collection, config)
    edge_shard.create_filter_index(shard)
    shard.optimize()
    # Made before the graph they would be built twice: in the old segments, and in the new one that replaces them.
    edge_shard.create_indexes(shard)
    shard.flush()
    n_vectors = edge_shard.count_vectors(shard)
    n_sparse = edge_shard.count_vectors(shard, LEXICAL)
    # The engine counts deleted points until their segment is rebuilt.
    indexed = share_indexed(shard.info().indexed_vectors_count, n_vectors, n_sparse)
    shard.close()
    return {"vectors": n_vectors, "indexed": indexed}


def _die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies: `optimize()` does not read the pipe, and locks the shard.

    Linux watches the parent's thread that started this process, not the whole parent: that thread must live longer
    than this process.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        pipe = select.poll()
        pipe.register(0, select.POLLHUP)
        if any(event & select.POLLHUP for _, event in pipe.poll(0)):  # the parent died before the call above
            sys.exit(1)


def main() -> None:
    """Do the job given on the command line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches this process too; the parent decides
    job = Job(**json.loads(sys.argv[1]))
    _die_with_parent()
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with the frames
    try:
        with edge_shard.edge_errors(job.collection, "writing to it"):
            if job.task == "finalize":
                send(answers, OK, _finalize(job))
            else:
                load = ShardLoad(job)
                send(answers, OK, load.count())
                _serve(load, requests, answers)
    except BrokenPipeError:
        sys.exit(1)
    except StoreError as error:
        send(answers, FAILED, error)
        sys.exit(1)


if __name__ == "__main__":
    main()
