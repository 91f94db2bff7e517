"""The process that writes an embedded collection: ``python -m pearl_qdrant.store.edge.child_main JOB``.

Started by `child_process.py` (a load) and `collection.py` (`finalize`); not for use by hand.

A load writes into one growing segment. Payload indexes cost more than everything else in writing: with them a point
takes 40 us to write, 50 to 90 to compact and 1.4 KB of anonymous memory, without them 20, 11 and 0.2. Qdrant also
builds them again with the graph. So when a load makes a collection without a graph large, it drops them, and `finalize`
makes them: the index of the type filter before the graph, which takes its links for filters from it, the others after
it. Until then filters work, but read the payloads.
"""

from __future__ import annotations

import ctypes
import pickle
import select
import signal
import sys
from pathlib import Path
from typing import IO

import msgspec

from pearl_qdrant.child import begin, receive, send
from pearl_qdrant.errors import StoreError
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.child_process import COMPACT, FAILED, FLUSH, OK, POINTS, Answer
from pearl_qdrant.store.edge.content import IndexState
from pearl_qdrant.store.edge.folder import Job
from pearl_qdrant.store.edge.shard import PointBatch
from pearl_qdrant.store.schema import LEXICAL
from pearl_qdrant.store.search import EF_CONSTRUCT, share_indexed

_PR_SET_PDEATHSIG = 1  # prctl(2)
_MANY_SEGMENTS = 1000  # never merge while loading


def _load(job: Job, requests: IO[bytes], answers: IO[bytes]) -> None:
    """Do one child's part of a load: answer requests until one ends it, or the parent has closed the pipe."""
    path, index = Path(job.shard), job.index
    # Two compacted segments must not fit into one: merging them again and again would take quadratic time.
    points = job.compact_unindexed_points if index is None else job.compact_points
    config = edge_shard.shard_config(
        job.dim,
        m=0 if index is None else index.m,
        ef_construct=EF_CONSTRUCT if index is None else index.ef_construct,
        segments=_MANY_SEGMENTS,
        max_segment_kb=max(1, points * job.dim * 4 // 1024),
        threshold_kb=job.threshold_kb,
        quantization=job.quantization,
        is_loading=index is None,
    )
    shard = edge_shard.load_shard(path, job.collection, config)
    has_indexes, growing_bytes = edge_shard.has_indexes(shard), 0
    send(answers, OK, {"points": edge_shard.count_points(shard)})
    while frame := receive(requests):
        kind, body = frame
        if kind not in (POINTS, FLUSH):
            break
        answer: Answer = {}
        if kind == FLUSH:
            shard.flush()
        else:
            edge_shard.check_space(path, job.collection)
            batch: PointBatch = pickle.loads(body)  # noqa: S301 - our own parent packed it
            edge_shard.upsert(shard, batch)
            growing_bytes += len(body)
            if has_indexes and index is None and shard.info().points_count > job.small_points:
                edge_shard.drop_indexes(shard)
                has_indexes = False
            answer = {"compact_after": job.compact_points if has_indexes else job.compact_unindexed_points}
        send(answers, OK, answer)
    if frame is not None and frame[0] == COMPACT:
        # The growing segment becomes one of mapped files. Until that is done, both are on the disk.
        shard.flush()
        edge_shard.check_space(path, job.collection, growing_bytes + edge_shard.MIN_FREE_BYTES)
        shard.optimize()
    answer = {"points": edge_shard.count_points(shard)}
    shard.flush()
    shard.close()
    if frame is not None:
        send(answers, OK, answer)


def _finalize(job: Job) -> Answer:
    """Build the graph, and the payload indexes that are missing."""
    path, index = Path(job.shard), job.index or IndexState(0)
    config = edge_shard.shard_config(
        job.dim,
        m=index.m,
        ef_construct=index.ef_construct,
        segments=1 if job.index is None else edge_shard.MAX_SEGMENTS - 1 + index.parts,
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
    requests, answers = begin()
    job = msgspec.json.decode(sys.argv[1], type=Job)
    _die_with_parent()
    try:
        with edge_shard.edge_errors(job.collection, "writing to it"):
            if job.task == "finalize":
                send(answers, OK, _finalize(job))
            else:
                _load(job, requests, answers)
    except BrokenPipeError:
        sys.exit(1)
    except StoreError as error:
        send(answers, FAILED, error)
        sys.exit(1)


if __name__ == "__main__":
    main()
