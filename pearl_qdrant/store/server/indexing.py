"""Payload indexes and the HNSW graph of a collection on a server: held back during a load, built after it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from qdrant_client import models

from pearl_qdrant.errors import StoreError, StoreFullError, StoreRejectedError
from pearl_qdrant.store.graph import share_indexed
from pearl_qdrant.store.schema import INDEXED_FIELDS, Manifest
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


def dense_params(manifest: Manifest) -> models.VectorParams:
    """Make the parameters of dense vectors."""
    int8 = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
    quantization = models.ScalarQuantization(scalar=int8) if manifest.quantization == "int8" else None
    return models.VectorParams(size=manifest.dim, distance=models.Distance.COSINE, quantization_config=quantization)


def sparse_params() -> models.SparseVectorParams:
    """Make the parameters of sparse vectors, weighted by IDF. The index is in mapped files: 300 bytes a name."""
    return models.SparseVectorParams(modifier=models.Modifier.IDF, index=models.SparseIndexParams(on_disk=True))


def ensure_payload_indexes(connection: Connection, name: str) -> None:
    """Create missing payload indexes.

    Besides the fields of the schema `is_canonical` is indexed, since strict mode otherwise refuses to count by it, and
    `kb`, for users who query the server directly.
    """
    client = connection.client
    schema = connection.info(name).payload_schema
    wanted = dict.fromkeys(INDEXED_FIELDS, models.PayloadSchemaType.KEYWORD)
    wanted["kb"] = models.PayloadSchemaType.KEYWORD
    wanted["is_canonical"] = models.PayloadSchemaType.BOOL
    for field, kind in wanted.items():
        if field not in schema:
            create = partial(client.create_payload_index, name, field, field_schema=kind, wait=True)
            connection.call(create, collection=name)


def begin_load(connection: Connection, name: str) -> None:
    """Switch indexing off, and store the old setting in the same request; a setting stored before is kept."""
    info = connection.info(name)
    if LOAD_KEY in (info.config.metadata or {}):
        return
    threshold = info.config.optimizer_config.indexing_threshold or _DEFAULT_THRESHOLD_KB
    _set_threshold(connection, name, _NO_INDEXING, {LOAD_KEY: {"indexing_threshold": threshold}})


def end_load(connection: Connection, name: str) -> None:
    """Switch indexing on again, if a load has switched it off, even one that died."""
    info = connection.info(name)
    mark = (info.config.metadata or {}).get(LOAD_KEY)
    if mark is None:
        return
    threshold = mark.get("indexing_threshold") if isinstance(mark, dict) else None
    _set_threshold(connection, name, int(threshold or _DEFAULT_THRESHOLD_KB), {LOAD_KEY: None})


def _set_threshold(connection: Connection, name: str, threshold_kb: int, metadata: dict[str, object]) -> None:
    """Set the threshold and merge the metadata, in one request; None removes a key."""
    config = models.OptimizersConfigDiff(indexing_threshold=threshold_kb)
    connection.call(
        lambda: connection.client.update_collection(name, optimizers_config=config, metadata=metadata), collection=name
    )


def is_built(info: models.CollectionInfo, *, n_vectors: int, dim: int) -> bool:
    """Whether the server has nothing left to index.

    Segments below the threshold never get a graph and are searched exactly: such a collection is finished too. But if
    the average segment is above it and nothing is indexed, the optimizer has not started, even if the status is green.
    """
    if LOAD_KEY in (info.config.metadata or {}):
        return False
    threshold_kb = info.config.optimizer_config.indexing_threshold or _DEFAULT_THRESHOLD_KB
    segment_kb = n_vectors * dim * 4 / 1024 / max(info.segments_count, 1)
    not_started = segment_kb > threshold_kb and not info.indexed_vectors_count
    return info.status == models.CollectionStatus.GREEN and not not_started


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
    """Wait until the graph is built.

    Args:
        connection: To the server.
        name: The server's name of the collection.
        indexing: How to wait.
        n_vectors, n_sparse: Dense and sparse vectors. They are counted once, by the caller: an exact count takes
            a server time that its graph needs.
        dim: Width of the dense ones.
        on_progress: Called at each look with (vectors indexed, all dense vectors).

    Raises:
        StoreError: If nothing changes for `indexing.stall_s`.
        StoreRejectedError, StoreFullError: If the server reports that its optimizer failed.
    """
    n_finished, last_change = 0, time.monotonic()
    last_state: object = None
    while True:
        info = connection.info(name)
        _raise_failure(info, name, connection)
        indexed = share_indexed(info.indexed_vectors_count or 0, n_vectors, n_sparse)
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


def _optimizations(connection: Connection, name: str) -> models.OptimizationsResponse | None:
    """Return the progress of running optimizations; None if the server is too old to report it."""
    try:
        return connection.call(lambda: connection.client.get_optimizations(name), collection=name)
    except StoreRejectedError:
        return None


def _raise_failure(info: models.CollectionInfo, name: str, connection: Connection) -> None:
    """Raise the error of the server's optimizer, if there is one."""
    error = getattr(info.optimizer_status, "error", None)
    if error is None and info.status != models.CollectionStatus.RED:
        return
    error = connection.redact(error) if error else None
    message = f"Qdrant at {connection.location} cannot index collection '{name}': {error or 'its status is red'}."
    if error and "no space left" in error.lower():
        raise StoreFullError(f"{message} Free some space, then run: pearl-qdrant collections finalize {name}")
    raise StoreRejectedError(f"{message} See the server's log, then run: pearl-qdrant collections finalize {name}")
