"""Payload indexes and the HNSW graph of a collection on a server: held back during a load, built after it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pearl_qdrant.errors import StoreError, StoreFullError, StoreRejectedError
from pearl_qdrant.store import graph
from pearl_qdrant.store.protocol import Placement
from pearl_qdrant.store.schema import DENSE, INDEXED_FIELDS, LEXICAL, Manifest, Quantization
from pearl_qdrant.store.server.answers import CollectionInfo
from pearl_qdrant.store.server.connection import Connection

LOAD_KEY = "pearl_qdrant_load"
"""Key in the collection's metadata while a load has indexing switched off; its value is the setting to restore."""

_NO_INDEXING = 0
"""This `indexing_threshold` switches the building of graphs off."""

_DEFAULT_THRESHOLD_KB = 10_000
"""Qdrant's default `indexing_threshold` (since 1.15; 20,000 before), for a collection that reports none."""

_FINISHED_POLLS = 2
"""The graph counts as built after this many polls in a row: at the first poll the optimizer may not have started."""


@dataclass(frozen=True, slots=True)
class Indexing:
    """How `finalize` waits for the graph: seconds between two polls, and without a change until it gives up."""

    poll_s: float = 0.5
    stall_s: float = 1800.0


_QUANTIZED: dict[Quantization, dict[str, object]] = {
    "int8": {"scalar": {"type": "int8", "always_ram": True}},
    "binary": {"binary": {"always_ram": True}},
    "turbo": {"turbo": {"always_ram": True}},
}


def creation(manifest: Manifest, placement: Placement) -> dict[str, object]:
    """Make the request that creates a collection, without metadata."""
    dense = {"size": manifest.dim, "distance": "Cosine"}
    if (quantized := _QUANTIZED.get(manifest.quantization)) is not None:
        dense["quantization_config"] = quantized
    placed = {
        "shard_number": placement.shards,
        "replication_factor": placement.replicas,
        "write_consistency_factor": placement.write_consistency,
    }
    return {
        "vectors": {DENSE: dense},
        # weighted by IDF; in mapped files: 300 bytes a name
        "sparse_vectors": {LEXICAL: {"modifier": "idf", "index": {"on_disk": True}}},
        "hnsw_config": {"m": graph.M, "ef_construct": graph.EF_CONSTRUCT, "full_scan_threshold": graph.FULL_SCAN_KB},
        **{key: value for key, value in placed.items() if value is not None},
    }


def ensure_payload_indexes(connection: Connection, name: str) -> None:
    """Create missing payload indexes.

    Besides the fields of the schema `is_canonical` is indexed, since strict mode otherwise refuses to count by it, and
    `kb`, for users who query the server directly.
    """
    schema = connection.info(name).payload_schema
    wanted = dict.fromkeys((*INDEXED_FIELDS, "kb"), "keyword") | {"is_canonical": "bool"}
    for field, kind in wanted.items():
        if field not in schema:
            body = {"field_name": field, "field_schema": kind}
            connection.ask(object, "PUT", "/collections/{name}/index?wait=true", body, name=name)


def begin_load(connection: Connection, name: str) -> None:
    """Switch indexing off, and store the old setting in the same request; a setting stored before is kept."""
    info = connection.info(name)
    if LOAD_KEY not in info.metadata:
        threshold = info.config.optimizer_config.indexing_threshold or _DEFAULT_THRESHOLD_KB
        mark = {LOAD_KEY: {"indexing_threshold": threshold}}
        connection.merge_metadata(name, mark, indexing_threshold=_NO_INDEXING)


def end_load(connection: Connection, name: str) -> None:
    """Switch indexing on again, if a load has switched it off, even one that died."""
    mark = connection.info(name).metadata.get(LOAD_KEY)
    if mark is not None:
        threshold = mark.get("indexing_threshold") if isinstance(mark, dict) else None
        threshold_kb = int(threshold or _DEFAULT_THRESHOLD_KB)
        connection.merge_metadata(name, {LOAD_KEY: None}, indexing_threshold=threshold_kb)


def is_built(info: CollectionInfo, *, n_vectors: int, dim: int) -> bool:
    """Whether the server has nothing left to index.

    Segments below the threshold never get a graph and are searched exactly: such a collection is finished too. But if
    the average segment is above it and nothing is indexed, the optimizer has not started, even if the status is green.
    """
    if LOAD_KEY in info.metadata:
        return False
    threshold_kb = info.config.optimizer_config.indexing_threshold or _DEFAULT_THRESHOLD_KB
    segment_kb = n_vectors * dim * 4 / 1024 / max(info.segments_count, 1)
    not_started = segment_kb > threshold_kb and not info.indexed_vectors_count
    return info.status == "green" and not not_started


def wait_until_built(
    connection: Connection,
    name: str,
    indexing: Indexing,
    *,
    n_vectors: int,
    n_sparse: int,
    dim: int,
    on_progress: Callable[[int, int], None] | None,
) -> None:
    """Wait until the graph is built; `on_progress` is called at each look with (vectors indexed, all dense vectors).

    Dense and sparse vectors are counted once, by the caller: an exact count takes a server time that its graph needs.

    Raises:
        StoreError: If nothing changes for `indexing.stall_s`.
        StoreRejectedError, StoreFullError: If the server reports that its optimizer failed.
    """
    n_finished, last_change = 0, time.monotonic()
    last_state: object = None
    while True:
        info = connection.info(name)
        _raise_failure(info, name, connection)
        indexed = graph.share_indexed(info.indexed_vectors_count or 0, n_vectors, n_sparse)
        if on_progress is not None:
            on_progress(indexed, n_vectors)
        is_finished = is_built(info, n_vectors=n_vectors, dim=dim)
        n_finished = n_finished + 1 if is_finished else 0
        if n_finished >= _FINISHED_POLLS:
            return
        state = (indexed, info.status, info.segments_count, str(_optimizations(connection, name)))
        if state != last_state:
            last_state, last_change = state, time.monotonic()
        elif time.monotonic() - last_change > indexing.stall_s:
            raise StoreError(
                f"The graph of collection '{name}' at {connection.location} has not grown for {indexing.stall_s:.0f} s "
                f"({indexed:,} of {n_vectors:,} vectors indexed). Search still works. See the "
                f"server's log, then continue with: pearl-qdrant collections finalize {name}"
            )
        time.sleep(indexing.poll_s)


def _optimizations(connection: Connection, name: str) -> object:
    """Return the progress of running optimizations; None if the server is too old to report it."""
    try:
        return connection.ask(object, "GET", "/collections/{name}/optimizations", name=name)
    except StoreRejectedError:
        return None


def _raise_failure(info: CollectionInfo, name: str, connection: Connection) -> None:
    """Raise the error of the server's optimizer, if there is one."""
    status = info.optimizer_status
    error = connection.redact(str(status["error"])) if isinstance(status, dict) and status.get("error") else None
    if error is None and info.status != "red":
        return
    message = f"Qdrant at {connection.location} cannot index collection '{name}': {error or 'its status is red'}."
    if error and "no space left" in error.lower():
        raise StoreFullError(f"{message} Free some space, then run: pearl-qdrant collections finalize {name}")
    raise StoreRejectedError(f"{message} See the server's log, then run: pearl-qdrant collections finalize {name}")
