"""The shard of an embedded collection: its configuration, its opening, and the meaning of its errors.

All measurements of Qdrant Edge 0.9 are here, each beside the constant that follows from it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from qdrant_edge import (
    CountRequest,
    Distance,
    EdgeConfig,
    EdgeOptimizersConfig,
    EdgeShard,
    EdgeSparseVectorParams,
    EdgeVectorParams,
    Filter,
    HasVectorCondition,
    HnswIndexConfig,
    KeywordIndexParams,
    Memory,
    Modifier,
    PayloadSchemaType,
    ScalarQuantizationConfig,
    ScalarType,
    UpdateOperation,
    VectorStorageDatatype,
)

from pearl_qdrant.errors import PearlQdrantError, StoreError, StoreFullError, StoreLockedError
from pearl_qdrant.store import graph
from pearl_qdrant.store.edge.points import CANONICAL_FIELD, PointBatch
from pearl_qdrant.store.resources import resource_error
from pearl_qdrant.store.schema import DENSE, FILTER_FIELD, INDEXED_FIELDS, LEXICAL, Quantization

INDEXING_THRESHOLD_KB = 10_000
"""A segment with more KB of vectors gets a graph; Qdrant's default. That is 6,700 vectors of 384 dimensions, which are
searched exactly in a millisecond."""

MAX_SEGMENT_KB = 8_000_000
"""The largest segment that `finalize` makes: one graph for up to 5 million vectors of 384 dimensions."""

SEARCH_THREADS = 1
"""Threads for a query. With one for each core a query of a batch takes 320 us of processor time, with one 200: with so
few segments, passing the payloads between threads costs more than reading them."""

MAX_SEGMENTS = 4
"""Segments with a graph that `finalize` leaves after an update: a small update must not rebuild the large graph."""

MIN_FREE_BYTES = 96 * 1024 * 1024
"""With less free space nothing is written. Edge writes through mapped files of up to 32 MiB. On a full disk the process
would be killed by SIGBUS, so the space is checked before."""

OPEN_BYTES = 8 * 1024 * 1024
"""With less free space no shard is opened: opening also writes, one mapped file included."""

_DAMAGE_SIGNS = ("failed to decode", "failed to decompress", "failed to deserialize", "but we only have", "assertion f")
"""Parts of Edge's messages about texts in a damaged file. These texts are read late, when they are requested."""


def shard_config(
    dim: int,
    *,
    m: int = graph.M,
    ef_construct: int = graph.EF_CONSTRUCT,
    segments: int = 1,
    max_segment_kb: int = MAX_SEGMENT_KB,
    threshold_kb: int,
    quantization: Quantization = "none",
) -> EdgeConfig:
    """Make the configuration of a shard with vectors of width `dim`.

    With m 0 compacted segments get no graph. `optimize()` compacts segments from `threshold_kb` of vectors on, merges
    up to `max_segment_kb`, and leaves `segments` beside the growing one. Those with a graph have vectors quantised too.
    """
    is_int8 = quantization == "int8"
    dense = EdgeVectorParams(
        dim,
        Distance.Cosine,
        datatype=VectorStorageDatatype.Float32,
        memory=Memory.Cold if is_int8 else Memory.Cached,  # read for scores only
        quantization_config=ScalarQuantizationConfig(ScalarType.Int8, memory=Memory.Cached) if is_int8 else None,
    )
    lexical = EdgeSparseVectorParams(modifier=Modifier.Idf, memory=Memory.Cached)
    return EdgeConfig(
        vectors={DENSE: dense},
        sparse_vectors={LEXICAL: lexical},
        hnsw_config=HnswIndexConfig(m, ef_construct, graph.FULL_SCAN_KB, memory=Memory.Cached),
        optimizers=EdgeOptimizersConfig(
            indexing_threshold=threshold_kb,
            default_segment_number=segments,
            max_segment_size=max_segment_kb,
        ),
        max_search_threads=SEARCH_THREADS,
    )


def create_shard(path: Path, dim: int) -> None:
    """Create an empty shard with its payload indexes, and close it."""
    shard = EdgeShard.create(str(path), shard_config(dim, threshold_kb=INDEXING_THRESHOLD_KB))
    create_indexes(shard)
    shard.flush()
    shard.close()


def load_shard(path: Path, collection: str, config: EdgeConfig | None = None) -> EdgeShard:
    """Open a shard in whose folder nobody else works, and remove the segments that a killed `optimize()` left.

    A `config` replaces the stored one. StoreLockedError if a process still has it open, StoreFullError without space
    for what opening writes, StoreError if its files are damaged.
    """
    check_space(path.parent, collection, OPEN_BYTES, doing="opening it")
    _read_ahead(path)
    with edge_errors(collection, "opening it"):
        shard = EdgeShard.load(str(path), config)
    # Only now that the shard is locked: before, a writer whose parent was killed may still be writing there.
    for orphan in (path / "temp_segments").glob("*"):
        shutil.rmtree(orphan, ignore_errors=True)
    return shard


def _read_ahead(path: Path) -> None:
    """Let the system read the files that Edge loads page by page, where it takes such a request.

    Edge drops its files from the cache when it closes a shard. For 571,000 names, reading them in order takes half a
    second, page by page 2.5. Files with holes are small, but for the holes.
    """
    if not hasattr(os, "posix_fadvise"):
        return
    for file in path.glob("segments/*/*/**/*"):
        is_cold = file.name == "matrix.dat" and file.with_name("quantized.data").exists()
        if is_cold or file.parent.name == "payload_storage" or not file.is_file():
            continue
        with suppress(OSError), file.open("rb", buffering=0) as opened:
            status = os.fstat(opened.fileno())
            if status.st_blocks * 512 >= status.st_size:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)


def create_filter_index(shard: EdgeShard) -> None:
    """Create the payload index of the type filter; the graph takes its links for filters from it."""
    if FILTER_FIELD not in shard.info().payload_schema:
        params = KeywordIndexParams(enable_hnsw=True, memory=Memory.Cached)
        shard.update(UpdateOperation.create_field_index(FILTER_FIELD, params))


def create_indexes(shard: EdgeShard) -> None:
    """Create the payload indexes that are missing, in mapped files: pinned in memory they are not faster.

    Only the type filter has links in the graph: nobody searches by vector within one entity or name.
    """
    create_filter_index(shard)
    present = shard.info().payload_schema
    for name in INDEXED_FIELDS:
        if name not in present:
            params = KeywordIndexParams(enable_hnsw=False, memory=Memory.Cached)
            shard.update(UpdateOperation.create_field_index(name, params))
    if CANONICAL_FIELD not in present:
        shard.update(UpdateOperation.create_field_index(CANONICAL_FIELD, PayloadSchemaType.Bool))


def drop_indexes(shard: EdgeShard) -> None:
    """Drop all payload indexes."""
    for name in shard.info().payload_schema:
        shard.update(UpdateOperation.delete_field_index(name))


def has_indexes(shard: EdgeShard) -> bool:
    """Whether all payload indexes exist."""
    return {*INDEXED_FIELDS, CANONICAL_FIELD} <= set(shard.info().payload_schema)


def upsert(shard: EdgeShard, batch: PointBatch) -> None:
    """Write checked points."""
    shard.update(UpdateOperation.upsert_points(batch.points()))


def count_points(shard: EdgeShard, condition: Filter | None = None) -> int:
    """Count the points that pass, exactly."""
    return shard.count(CountRequest(exact=True, filter=condition))


def needs_no_graph(n_vectors: int, dim: int) -> bool:
    """Whether this many vectors are searched exactly, without a graph."""
    return n_vectors * dim * 4 <= INDEXING_THRESHOLD_KB * 1024


def count_vectors(shard: EdgeShard, name: str = DENSE) -> int:
    """Count the points that have a dense vector, or the vector of another name, exactly."""
    return count_points(shard, Filter(must=[HasVectorCondition(name)]))


def check_space(path: Path, collection: str, needed: int = MIN_FREE_BYTES, *, doing: str = "writing to it") -> None:
    """Raise StoreFullError if fewer than `needed` bytes are free."""
    free = shutil.disk_usage(path).free
    if free < needed:
        raise disk_full_error(collection, f"{free / 1e6:,.0f} MB free, {needed / 1e6:,.0f} MB needed", doing=doing)


def disk_full_error(collection: str, what: str, *, doing: str) -> StoreFullError:
    """Make the error for a full disk; `doing` decides what it says about the collection's content."""
    outcome = {
        "creating it": "It was not created",
        "building its graph": "What is stored in it is kept, without the new graph",
        "writing to it": "What was acknowledged is kept",
        "deleting from it": "What was acknowledged is kept",
    }.get(doing, "What is stored in it is kept")
    return StoreFullError(
        f"No space left for collection '{collection}' ({what}). {outcome}: free some space and run the same command "
        f"again."
    )


def unwritable_error(collection: str, folder: str, what: str) -> StoreError:
    """Make the error for a collection whose files cannot be written."""
    return StoreError(
        f"Collection '{collection}' cannot be opened for writing ({what}), which locks it and writes to its files. "
        f"Make {folder} writable for this user, open the collection read-only to search it, or use a copy of the store "
        f"in a writable folder.",
        option="store",
    )


def damaged_error(collection: str, why: str, *, doing: str = "opening it") -> StoreError:
    """Make the error for a collection with damaged files."""
    return StoreError(
        f"{_failed(collection, doing)}, its files look damaged ({why}). Restore the folder from a copy, or "
        f"delete it with: pearl-qdrant collections delete {collection} and ingest again."
    )


@contextmanager
def edge_errors(collection: str, doing: str) -> Iterator[None]:
    """Turn errors of Qdrant Edge into ours; `doing` is what the block does, as in "searching it"."""
    try:
        yield
    except PearlQdrantError:
        raise
    except BaseException as error:
        if isinstance(error, (MemoryError, OSError)):
            raise os_error(error, collection, doing) from error
        # Edge raises plain Exception, and for a panic its own BaseException, which cannot be imported.
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise translate_error(str(error), collection, doing) from error


def os_error(error: OSError | MemoryError, collection: str, doing: str) -> StoreError:
    """Turn an error of the file system into one of ours, which is never one about damage; as `translate_error`."""
    if isinstance(error, MemoryError):
        return resource_error(error, _failed(collection, doing)) or StoreError(str(error))
    if (known := known_error(str(error), collection, doing)) is not None:
        return known
    failed = _failed(collection, doing)
    return StoreError(f"{failed}: {error}. Use a folder that can be read and written as the store.", option="store")


def _failed(collection: str, doing: str) -> str:
    done = {"opening it": "opened", "creating it": "created", "deleting it": "deleted"}.get(doing)
    return f"Collection '{collection}' " + (f"cannot be {done}" if done else f"failed while {doing}")


def translate_error(message: str, collection: str, doing: str) -> StoreError:
    """Turn an error of Qdrant Edge into one of ours, by its message: Edge gives nothing else."""
    if (known := known_error(message, collection, doing)) is not None:
        return known
    lower = message.lower()
    if "shard is not initialized" in lower:
        return StoreError(f"Collection '{collection}' was closed while {doing}.")
    if doing == "opening it" or any(sign in lower for sign in _DAMAGE_SIGNS):
        return damaged_error(collection, message, doing=doing)
    return StoreError(f"Collection '{collection}' failed while {doing}: {message}")


def known_error(message: str, collection: str, doing: str) -> StoreError | None:
    """Make the error for what a message says of the system; None if it says something else."""
    lower = message.lower()
    if (error := resource_error(message, _failed(collection, doing))) is not None:
        return error
    if any(sign in lower for sign in ("no space left", "errno 28", "os error 28", "storagefull", "quota exceeded")):
        return disk_full_error(collection, message.rpartition(": ")[2], doing=doing)
    is_unwritable = any(
        sign in lower for sign in ("permission denied", "read-only file system", "os error 13", "os error 30")
    )
    if is_unwritable and doing not in ("creating it", "deleting it"):
        return unwritable_error(collection, "its folder", message.rpartition(": ")[2])
    if "wouldblock" in lower:
        return StoreLockedError(collection, "a writer that has not exited yet")
    return None
