"""The shard of an embedded collection: its points, its configuration, its opening, and the meaning of its errors.

All measurements of Qdrant Edge 0.9 are here, each beside the constant that follows from it.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import qdrant_edge as edge

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.errors import ManifestError, PearlQdrantError, StoreError, StoreFullError, StoreLockedError
from pearl_qdrant.lexical.keys import stored_rows
from pearl_qdrant.lexical.ngrams import SparseRows
from pearl_qdrant.store.schema import (
    DENSE,
    FILTER_FIELD,
    INDEXED_FIELDS,
    LANGUAGE_FIELD,
    LEXICAL,
    Manifest,
    NamePoint,
    Quantization,
    check_vectors,
    invalid_payload,
    stored_bytes,
)
from pearl_qdrant.store.search import EF_CONSTRUCT, FULL_SCAN_KB, M
from pearl_qdrant.store.system import is_in_memory, resource_error

BATCH_POINTS = 1000  # points in one update. Edge holds the interpreter lock for its 50 ms

CANONICAL_FIELD = "is_canonical"
"""Indexed beside `INDEXED_FIELDS`. A filter cannot match a bool (MatchValue(True) becomes 1), but a facet can."""

RECORD_FIELD = "record"  # the whole `NamePoint` as JSON, in the payload of an embedded store
_PLAIN_FIELD = "canonical_name"  # in every plain payload; a base may have a column of its own called `record`


@dataclass(frozen=True, slots=True)
class PointBatch:
    """Checked points: n ids, payloads (`edge_payload`), vectors (n, dim), and whether each has one, (n,)."""

    ids: list[str]
    payloads: list[dict[str, Any]]
    vectors: FloatArray
    encodable: BoolArray

    def __len__(self) -> int:
        return len(self.encodable)

    def points(self) -> list[edge.Point]:
        """Make the points that Edge takes. Sparse vectors are made of the names here."""
        # A memoryview takes 12 us where a list takes 30.
        vectors: list[dict[str, Any]] = [
            {DENSE: memoryview(row)} if ok else {}
            for row, ok in zip(self.vectors, self.encodable.tolist(), strict=True)
        ]
        rows = sparse_vectors(stored_rows([payload["name"] for payload in self.payloads]))
        for named, sparse in zip(vectors, rows, strict=True):
            if sparse is not None:
                named[LEXICAL] = sparse
        return [edge.Point(*parts) for parts in zip(self.ids, vectors, self.payloads, strict=True)]


def sparse_vectors(rows: SparseRows) -> list[edge.SparseVector | None]:
    """Make the sparse vectors that Edge takes; None for an empty row."""
    # Slicing one list takes a third of the time of making a list for each row.
    indices, values, offsets = rows.indices.tolist(), rows.values.tolist(), rows.offsets.tolist()
    return [
        edge.SparseVector(indices[start:stop], values[start:stop]) if stop > start else None
        for start, stop in pairwise(offsets)
    ]


def edge_payload(point: NamePoint) -> dict[str, Any]:
    """Make the payload that Edge stores: the point as one record, and beside it only the indexed fields.

    Edge takes 5 us to convert each text. A list of one item takes twice as long as the item, which is stored instead: a
    filter treats both alike. InvalidPointError names a point that cannot be stored.
    """
    try:
        payload: dict[str, Any] = {
            RECORD_FIELD: _encode(point).decode(),
            CANONICAL_FIELD: bool(point.is_canonical),
            "entity_id": str(point.entity_id),
            "name": str(point.name),
        }
        for key, value in (("predicted_type", point.predicted_type), (LANGUAGE_FIELD, point.language)):
            if value is not None:
                payload[key] = str(value)
        for key, values in (("kb_types", point.kb_types), ("types", point.types), (FILTER_FIELD, point.filter_types)):
            if values:
                payload[key] = str(values[0]) if len(values) == 1 else list(map(str, values))
    except (ValueError, TypeError) as error:
        raise invalid_payload(point, error) from error
    return payload


def payload_fields(manifest: Manifest) -> list[str] | bool:
    """Return which fields of a payload are read: the record alone, or all where there are points without one."""
    return True if manifest.has_plain_payloads else [RECORD_FIELD]


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode


def check_points(
    points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray, *, dim: int
) -> list[PointBatch]:
    """Check points before any of them is written, and cut them into batches; as for `Writer.write`."""
    rows, flags = check_vectors(points, vectors, encodable, dim=dim)
    payloads = [edge_payload(point) for point in points]
    ids = [point.id for point in points]
    parts = [slice(start, start + BATCH_POINTS) for start in range(0, len(points), BATCH_POINTS)]
    return [PointBatch(ids[part], payloads[part], rows[part], flags[part]) for part in parts]


_decode = msgspec.json.Decoder(NamePoint).decode


def read_record(payload: Mapping[str, Any] | None, collection: str) -> NamePoint:
    """Read the payload of a point, which is one record; ManifestError if it was not written by pearl-qdrant."""
    try:
        return _decode((payload or {}).get(RECORD_FIELD, ""))
    except (msgspec.DecodeError, TypeError) as error:
        raise ManifestError(collection, f"a point has no valid record in its payload ({error})") from error


def read_payload(payload: Mapping[str, Any] | None, collection: str) -> NamePoint:
    """Read the payload of a point of a pulled snapshot: plain fields as on a server, or a record written since."""
    if payload and RECORD_FIELD in payload and _PLAIN_FIELD not in payload:
        return read_record(payload, collection)
    return NamePoint.from_json(msgspec.json.encode(payload or {}), collection)


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

OPEN_BYTES = 8 * 1024 * 1024  # With less free space no shard is opened: opening also writes, one mapped file included

_READ_AHEAD = ("payload_index", "vector_storage-*/deleted", f"vector_storage-{DENSE}/vectors")  # of a segment

_DAMAGE_SIGNS = ("failed to decode", "failed to decompress", "failed to deserialize", "but we only have", "assertion f")
"""Parts of Edge's messages about texts in a damaged file. These texts are read late, when they are requested."""


def shard_config(
    dim: int,
    *,
    m: int = M,
    ef_construct: int = EF_CONSTRUCT,
    segments: int = 1,
    max_segment_kb: int = MAX_SEGMENT_KB,
    threshold_kb: int,
    quantization: Quantization,
    is_loading: bool = False,
) -> edge.EdgeConfig:
    """Make the configuration of a shard with vectors of width `dim`.

    With m 0 compacted segments get no graph. `optimize()` compacts segments from `threshold_kb` of vectors on, merges
    up to `max_segment_kb`, and leaves `segments` beside the growing one. Those with a graph have vectors quantised too,
    unless `is_loading`. KB are those of float32 vectors, so that they mean as many vectors in every form.
    """
    dense = _dense_params(dim, quantization, is_loading=is_loading)
    share = stored_bytes(quantization) / 4  # the engine counts the bytes that it stores

    def kb(whole: int) -> int:
        return max(1, int(whole * share))

    lexical = edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf, memory=edge.Memory.Cached)
    return edge.EdgeConfig(
        vectors={DENSE: dense},
        sparse_vectors={LEXICAL: lexical},
        hnsw_config=edge.HnswIndexConfig(m, ef_construct, kb(FULL_SCAN_KB), memory=edge.Memory.Cached),
        optimizers=edge.EdgeOptimizersConfig(
            indexing_threshold=kb(threshold_kb), default_segment_number=segments, max_segment_size=kb(max_segment_kb)
        ),
        max_search_threads=SEARCH_THREADS,
    )


def _dense_params(dim: int, quantization: Quantization, *, is_loading: bool) -> edge.EdgeVectorParams:
    """Make the configuration of dense vectors: their form, and where it lies in memory."""
    codes: edge.ScalarQuantizationConfig | edge.TurboQuantQuantizationConfig | None = None
    if quantization == "int8":
        codes = edge.ScalarQuantizationConfig(edge.ScalarType.Int8, memory=edge.Memory.Cached)
    elif quantization == "turbo4":
        codes = edge.TurboQuantQuantizationConfig(bits=edge.TurboQuantBitSize.Bits4, memory=edge.Memory.Cached)
    codes = None if is_loading else codes
    return edge.EdgeVectorParams(
        dim,
        edge.Distance.Cosine,
        datatype=edge.VectorStorageDatatype.Float32
        if stored_bytes(quantization) == 4
        else edge.VectorStorageDatatype.Float16,
        memory=edge.Memory.Cached if codes is None else edge.Memory.Cold,  # read for scores only
        quantization_config=codes,
    )


def create_shard(path: Path, dim: int, quantization: Quantization) -> None:
    """Create an empty shard with its payload indexes, and close it."""
    config = shard_config(dim, threshold_kb=INDEXING_THRESHOLD_KB, quantization=quantization, is_loading=True)
    shard = edge.EdgeShard.create(str(path), config)
    create_indexes(shard)
    shard.flush()
    shard.close()


def load_shard(path: Path, collection: str, config: edge.EdgeConfig | None = None) -> edge.EdgeShard:
    """Open a shard in whose folder nobody else works, and remove the segments that a killed `optimize()` left.

    A `config` replaces the stored one. StoreLockedError if a process still has it open, StoreFullError without space
    for what opening writes, StoreError if its files are damaged.
    """
    check_opening(path, collection)
    _read_ahead(path)
    with edge_errors(collection, "opening it"):
        shard = edge.EdgeShard.load(str(path), config)
    # Only now that the shard is locked: before, a writer whose parent was killed may still be writing there.
    for orphan in (path / "temp_segments").glob("*"):
        shutil.rmtree(orphan, ignore_errors=True)
    return shard


def check_opening(path: Path, collection: str) -> None:
    """Raise StoreFullError without space for what opening a shard writes."""
    with edge_errors(collection, "opening it"):
        needed = OPEN_BYTES + _bytes_filled(path)
    check_space(path.parent, collection, needed, doing="opening it")


def _bytes_filled(path: Path) -> int:
    """The bytes that a file system in memory needs when Edge opens a shard: it gives a page to each hole that is read
    through a mapping, and where it has none left the process ends (SIGBUS). Other file systems need none.

    Edge reads the vectors and payload indexes ahead, not the pages of payloads and n-grams: 90 MB for 50 names.
    """
    if not is_in_memory(path):
        return 0
    ahead = (file.lstat() for part in _READ_AHEAD for file in path.glob(f"segments/*/{part}/**/*"))
    return sum(max(0, one.st_size - one.st_blocks * 512) for one in ahead if stat.S_ISREG(one.st_mode))


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


def create_filter_index(shard: edge.EdgeShard) -> None:
    """Create the payload index of the type filter; the graph takes its links for filters from it."""
    if FILTER_FIELD not in shard.info().payload_schema:
        params = edge.KeywordIndexParams(enable_hnsw=True, memory=edge.Memory.Cached)
        shard.update(edge.UpdateOperation.create_field_index(FILTER_FIELD, params))


def create_indexes(shard: edge.EdgeShard) -> None:
    """Create the payload indexes that are missing, in mapped files: pinned in memory they are not faster. Only the type
    filter has links in the graph: nobody searches by vector within one entity or name.
    """
    create_filter_index(shard)
    present = shard.info().payload_schema
    for name in INDEXED_FIELDS:
        if name not in present:
            params = edge.KeywordIndexParams(enable_hnsw=False, memory=edge.Memory.Cached)
            shard.update(edge.UpdateOperation.create_field_index(name, params))
    if CANONICAL_FIELD not in present:
        shard.update(edge.UpdateOperation.create_field_index(CANONICAL_FIELD, edge.PayloadSchemaType.Bool))


def drop_indexes(shard: edge.EdgeShard) -> None:
    """Drop all payload indexes."""
    for name in shard.info().payload_schema:
        shard.update(edge.UpdateOperation.delete_field_index(name))


def has_indexes(shard: edge.EdgeShard) -> bool:
    """Whether all payload indexes exist."""
    return {*INDEXED_FIELDS, CANONICAL_FIELD} <= set(shard.info().payload_schema)


def upsert(shard: edge.EdgeShard, batch: PointBatch) -> None:
    """Write checked points."""
    shard.update(edge.UpdateOperation.upsert_points(batch.points()))


def count_points(shard: edge.EdgeShard, condition: edge.Filter | None = None) -> int:
    """Count the points that pass, exactly."""
    return shard.count(edge.CountRequest(exact=True, filter=condition))


def needs_no_graph(n_vectors: int, dim: int) -> bool:
    """Whether this many vectors are searched exactly, without a graph."""
    return n_vectors * dim * 4 <= INDEXING_THRESHOLD_KB * 1024


def count_vectors(shard: edge.EdgeShard, name: str = DENSE) -> int:
    """Count the points that have a dense vector, or the vector of another name, exactly."""
    return count_points(shard, edge.Filter(must=[edge.HasVectorCondition(name)]))


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
    failed = _failed(collection, doing)
    known = resource_error(error, failed) if isinstance(error, MemoryError) else None
    if (known := known or known_error(str(error), collection, doing)) is not None:
        return known
    return StoreError(f"{failed}: {error}. Use a folder that can be read and written as the store.", option="store")


def _failed(collection: str, doing: str) -> str:
    done = {"opening it": "opened", "creating it": "created", "deleting it": "deleted"}.get(doing)
    return f"Collection '{collection}' " + (f"cannot be {done}" if done else f"failed while {doing}")


def translate_error(message: str, collection: str, doing: str) -> StoreError:
    """Turn an error of Qdrant Edge into one of ours, by its message: Edge gives nothing else."""
    if (known := known_error(message, collection, doing)) is not None:
        return known
    if doing == "opening it" or any(sign in message.lower() for sign in _DAMAGE_SIGNS):
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
