"""The shard of an embedded collection: how it is configured and opened, and what its errors mean.

Everything that is measured about Qdrant Edge 0.9 stands here, beside the constant that follows from it.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from qdrant_edge import (
    BinaryQuantizationConfig,
    CountRequest,
    Distance,
    EdgeConfig,
    EdgeOptimizersConfig,
    EdgeShard,
    EdgeSparseVectorParams,
    EdgeVectorParams,
    FieldCondition,
    Filter,
    HasVectorCondition,
    HnswIndexConfig,
    KeywordIndexParams,
    MatchAny,
    Memory,
    Modifier,
    PayloadSchemaType,
    ScalarQuantizationConfig,
    ScalarType,
    TurboQuantQuantizationConfig,
    UpdateOperation,
    VectorStorageDatatype,
)

from pearl_qdrant.errors import PearlQdrantError, StoreError, StoreFullError, StoreLockedError
from pearl_qdrant.store import graph
from pearl_qdrant.store.edge.points import CANONICAL_FIELD, PointBatch
from pearl_qdrant.store.schema import DENSE, FILTER_FIELD, INDEXED_FIELDS, LEXICAL, Quantization

INDEXING_THRESHOLD_KB = 10_000
"""Vectors in a segment from which a graph is built, in KB: 6,700 of 384 dimensions, searched exactly in a millisecond.
Qdrant's default."""

MAX_SEGMENT_KB = 8_000_000
"""Largest segment that `finalize` merges into: one graph for up to 5 million vectors of 384 dimensions."""

SEARCH_THREADS = 1
"""For a query. With one for each core, a query of a batch takes 320 us of processor time, with one 200: handing the
payloads of so few segments from thread to thread costs more than reading them."""

MAX_SEGMENTS = 4
"""Segments with a graph that `finalize` leaves after an update: a small one must not rebuild the large graph."""

DATATYPE = VectorStorageDatatype.Float32

MIN_FREE_BYTES = 96 * 1024 * 1024
"""Free space under which nothing is written. Edge writes through mapped files of up to 32 MiB: on a full disk the
process is killed by SIGBUS, so the space is looked at before."""

OPEN_BYTES = 8 * 1024 * 1024
"""Free space under which no shard is opened: Edge writes then too, a mapped file among it."""

_DAMAGE_SIGNS = ("failed to decode", "failed to decompress", "failed to deserialize", "but we only have", "assertion f")
"""What Edge says of texts in a damaged file, which are read when they are asked for."""

READ_THROUGH = ("segments/*/payload_index/*/*.dat", "segments/*/vector_storage-*/vectors/*.mmap")
"""Files with holes that Edge reads through when it opens a shard."""


def shard_config(
    dim: int,
    *,
    has_lexical: bool,
    m: int = graph.M,
    ef_construct: int = graph.EF_CONSTRUCT,
    segments: int = 1,
    max_segment_kb: int = MAX_SEGMENT_KB,
    threshold_kb: int,
    quantization: Quantization = "none",
) -> EdgeConfig:
    """Configuration of a shard.

    Args:
        dim: Width of the vectors.
        has_lexical: Whether there are sparse vectors.
        m: Links of a point in the graph; 0 makes compact segments without a graph.
        ef_construct: Candidates while the graph is built.
        segments: How many `optimize()` leaves, beside the growing one.
        max_segment_kb: Up to what size it merges, in KB of vectors.
        threshold_kb: From what size it makes a segment compact, in KB of vectors.
        quantization: How vectors are kept beside the whole ones in the segments that it makes.
    """
    dense = EdgeVectorParams(
        dim,
        Distance.Cosine,
        datatype=DATATYPE,
        memory=Memory.Cold if quantization != "none" else Memory.Cached,  # read for rescoring only
        quantization_config=_quantization_config(quantization),
    )
    lexical = EdgeSparseVectorParams(modifier=Modifier.Idf, memory=Memory.Cached)
    return EdgeConfig(
        vectors={DENSE: dense},
        sparse_vectors={LEXICAL: lexical} if has_lexical else None,
        hnsw_config=HnswIndexConfig(m, ef_construct, graph.FULL_SCAN_KB, memory=Memory.Cached),
        optimizers=EdgeOptimizersConfig(
            indexing_threshold=threshold_kb,
            default_segment_number=segments,
            max_segment_size=max_segment_kb,
        ),
        max_search_threads=SEARCH_THREADS,
    )


def _quantization_config(
    quantization: Quantization,
) -> ScalarQuantizationConfig | BinaryQuantizationConfig | TurboQuantQuantizationConfig | None:
    if quantization == "int8":
        return ScalarQuantizationConfig(ScalarType.Int8, memory=Memory.Cached)
    if quantization == "binary":
        return BinaryQuantizationConfig(memory=Memory.Cached)
    if quantization == "turbo":
        return TurboQuantQuantizationConfig(memory=Memory.Cached)
    return None


def create_shard(path: Path, dim: int, *, has_lexical: bool = True) -> None:
    """Create an empty shard with its payload indexes, and close it; without sparse vectors it is as of old."""
    config = shard_config(dim, has_lexical=has_lexical, threshold_kb=INDEXING_THRESHOLD_KB)
    shard = EdgeShard.create(str(path), config)
    create_indexes(shard)
    shard.flush()
    shard.close()


def load_shard(
    path: Path,
    collection: str,
    config: EdgeConfig | None = None,
    *,
    check: Callable[[Path, str], bool] = lambda path, collection: False,
) -> EdgeShard:
    """Open a shard, and remove what a killed `optimize()` left half-built.

    Args:
        path: Folder of the shard. The caller holds the collection's lock.
        collection: Its name, for errors.
        config: Replaces the stored one; None keeps it.
        check: Called with both when the files are in the page cache, before Edge sees them; tells whether they have
            gone from there.

    Raises:
        StoreLockedError: If a process still has it open.
        StoreFullError: If there is no space for the little that opening writes.
        StoreError: If its files are damaged.
    """
    check_space(path.parent, collection, OPEN_BYTES, doing="opening it")
    if is_in_memory(path):
        _fill_holes(path, collection)
    _read_ahead(path)
    if check(path, collection):
        _read_ahead(path)
    with edge_errors(collection, "opening it"):
        shard = EdgeShard.load(str(path), config)
    # Not before: a writer whose parent was killed may still be building there, until it lets go of the shard.
    for orphan in (path / "temp_segments").glob("*"):
        shutil.rmtree(orphan, ignore_errors=True)
    return shard


def _fill_holes(path: Path, collection: str) -> None:
    """Allocate what Edge reads through.

    On a disk a hole is read as zeros. In a tmpfs reading it through a mapping takes memory, and a process that gets
    none is killed by SIGBUS; asked for beforehand, it is an error.

    Raises:
        StoreFullError: If there is no space for it.
    """
    for file in (file for pattern in READ_THROUGH for file in path.glob(pattern)):
        try:
            with file.open("r+b") as opened:
                status = os.fstat(opened.fileno())
                if status.st_blocks * 512 < status.st_size:
                    os.posix_fallocate(opened.fileno(), 0, status.st_size)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                what = "a file system in memory, which takes more when it is read"
                raise full_error(collection, what, doing="opening it") from error


def is_in_memory(path: Path) -> bool:
    """Whether a path lies in a tmpfs."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text("utf-8", "replace").splitlines()]
    except OSError:  # not Linux
        return False
    place, found = path.resolve(), ("", "")
    for _, point, kind, *_ in mounts:
        point = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), point)  # a blank is \040
        if len(point) >= len(found[0]) and place.is_relative_to(point):
            found = point, kind
    return found[1] in ("tmpfs", "ramfs")


def _read_ahead(path: Path) -> None:
    """Bring the files that Edge touches page by page when it loads them into the page cache.

    Edge drops its files from there when it closes a shard. Read in order they are back in half a second for 571,000
    names; page by page it takes 2.5.
    """
    buffer = bytearray(1 << 20)
    for file in path.glob("segments/*/*/**/*"):
        is_cold = file.name == "matrix.dat" and file.with_name("quantized.data").exists()
        if is_cold or file.parent.name == "payload_storage" or not file.is_file():
            continue
        with suppress(OSError), file.open("rb", buffering=0) as opened:
            while opened.readinto(buffer):
                pass


def create_filter_index(shard: EdgeShard) -> None:
    """Create the payload index of the type filter, from which the graph gets its links for filters."""
    if FILTER_FIELD not in shard.info().payload_schema:
        params = KeywordIndexParams(enable_hnsw=True, memory=Memory.Cached)
        shard.update(UpdateOperation.create_field_index(FILTER_FIELD, params))


def create_indexes(shard: EdgeShard) -> None:
    """Create the payload indexes that are missing.

    Only the type filter gets links of its own in the graph: nobody searches by vector within one entity or name. All
    lie in mapped files (`Cached`): pinned, they take 600 bytes of anonymous memory a point, and are no faster.
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
    """Whether all payload indexes are there."""
    return {*INDEXED_FIELDS, CANONICAL_FIELD} <= set(shard.info().payload_schema)


def upsert(shard: EdgeShard, batch: PointBatch, *, has_lexical: bool) -> None:
    """Write points that were checked before, with sparse vectors if the collection has them."""
    shard.update(UpdateOperation.upsert_points(batch.points(has_lexical=has_lexical)))


def count_points(shard: EdgeShard, condition: Filter | None = None) -> int:
    """Exact number of points that pass."""
    return shard.count(CountRequest(exact=True, filter=condition))


def count_vectors(shard: EdgeShard, name: str = DENSE) -> int:
    """Exact number of points with a dense vector, or with the one of that name."""
    return count_points(shard, Filter(must=[HasVectorCondition(name)]))


def any_of(field: str, values: Sequence[str]) -> FieldCondition:
    """Points with one of these values in a field."""
    return FieldCondition(field, match=MatchAny(list(values)))


def type_filter(types: Sequence[str]) -> Filter:
    """Points of these types; the predicted type counts where the base gives no coarse type."""
    return Filter(must=[any_of(FILTER_FIELD, types)])


def check_space(path: Path, collection: str, needed: int = MIN_FREE_BYTES, *, doing: str = "writing to it") -> None:
    """Refuse to write where too little space is left.

    Raises:
        StoreFullError: If fewer than `needed` bytes are free.
    """
    free = shutil.disk_usage(path).free
    if free < needed:
        raise full_error(collection, f"{free / 1e6:,.0f} MB free, {needed / 1e6:,.0f} MB needed", doing=doing)


def full_error(collection: str, what: str, *, doing: str) -> StoreFullError:
    """The error for a full disk; what it says of the collection depends on what went on."""
    standing = {
        "creating it": "It was not created",
        "building its graph": "What is stored in it is kept, without the new graph",
        "writing to it": "What was acknowledged is kept",
        "deleting from it": "What was acknowledged is kept",
    }.get(doing, "What is stored in it is kept")
    return StoreFullError(
        f"No space left for collection '{collection}' ({what}). {standing}: free some space and run the same command "
        f"again."
    )


def cannot_write(collection: str, folder: str, what: str) -> StoreError:
    """The error for a collection whose files cannot be written."""
    return StoreError(
        f"Collection '{collection}' cannot be opened for writing ({what}). An embedded collection is locked and its "
        f"files are written to even where it is only searched: make {folder} writable for this user, or copy the "
        f"store to where it is and name that folder with --store."
    )


def damaged(collection: str, why: str, *, doing: str = "opening it", way_out: str = "") -> StoreError:
    """The error for a collection whose files cannot be trusted; `way_out` is a further sentence, with its blank."""
    failed = "cannot be opened" if doing == "opening it" else f"failed while {doing}"
    return StoreError(
        f"Collection '{collection}' {failed}, its files look damaged ({why}). Restore the folder from a copy, or "
        f"delete it with: pearl-qdrant collections delete {collection} and ingest again.{way_out}"
    )


@contextmanager
def edge_errors(collection: str, doing: str) -> Iterator[None]:
    """Turn what Qdrant Edge raises into our errors.

    Args:
        collection: Name, for the message.
        doing: What went on, as in "searching it".
    """
    try:
        yield
    except PearlQdrantError:
        raise
    except BaseException as error:
        # Edge raises bare Exception, and for a panic a BaseException of its own that cannot be imported.
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise classify(str(error), collection, doing) from error


def classify(message: str, collection: str, doing: str) -> StoreError:
    """Which of our errors an error of Qdrant Edge is, by its message: it has nothing else to go by."""
    lower = message.lower()
    if any(sign in lower for sign in ("no space left", "errno 28", "os error 28", "storagefull", "quota exceeded")):
        return full_error(collection, message.rpartition(": ")[2], doing=doing)
    if any(sign in lower for sign in ("permission denied", "read-only file system", "os error 13", "os error 30")):
        return cannot_write(collection, "its folder", message.rpartition(": ")[2])
    if "wouldblock" in lower:
        return StoreLockedError(collection, "a writer that has not ended yet")
    if "shard is not initialized" in lower:
        return StoreError(f"Collection '{collection}' was closed while {doing}.")
    if doing == "opening it" or any(sign in lower for sign in _DAMAGE_SIGNS):
        return damaged(collection, message, doing=doing)
    return StoreError(f"Collection '{collection}' failed while {doing}: {message}")
