"""Shard snapshots of the Qdrant double: the real engine packs and unpacks what local mode holds.

The form is that of a server 1.19: members of the replica beside the segments, a log that was closed, one tar a segment.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qdrant_client import models
from qdrant_double_http import Answered
from qdrant_edge import EdgeShard, Point, UpdateOperation
from qdrant_edge import SparseVector as EdgeSparse

from pearl_qdrant.store.edge import shard as edge_shard

if TYPE_CHECKING:
    from qdrant_double import QdrantDouble

FRAME = {
    "shard_config.json": b'{"type":"ReplicaSet"}',
    "replica_state.json": b'{"is_local":true,"peers":{"1":"Active"},"this_peer_id":1}',
    "newest_clocks.json": b'{"clocks":[]}',
    "oldest_clocks.json": b'{"clocks":[]}',
}
"""Members of a server's snapshot whose content does not depend on the points."""

EMPTY_LOG = b"wal\0" + bytes(28)


def pack(segments: Path, log_number: int) -> bytes:
    """A shard snapshot as a server writes it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:

        def add(name: str, content: bytes) -> None:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))

        for folder in sorted(segments.iterdir()):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as segment:
                segment.add(folder, arcname="snapshot/files")
            add(f"segments/{folder.name}.tar", inner.getvalue())
        for name, content in FRAME.items():
            add(name, content)
        add("segments_manifest.json", json.dumps({one.name: "active" for one in segments.iterdir()}).encode())
        add(f"wal/closed-{log_number}", EMPTY_LOG)
    return packed.getvalue()


def _make(double: QdrantDouble, name: str, body: bytes) -> Any:
    """Make a snapshot of a shard, through the engine."""
    params = double.client.get_collection(name).config.params
    vectors = params.vectors if isinstance(params.vectors, dict) else {}
    points, _ = double.client.scroll(name, limit=1_000_000, with_payload=True, with_vectors=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shard"
        is_half = vectors["dense"].datatype == models.Datatype.FLOAT16
        edge_shard.create_shard(path, vectors["dense"].size, "turbo4" if is_half else "int8")
        shard = EdgeShard.load(str(path))
        if points:
            shard.update(UpdateOperation.upsert_points([_to_edge(point) for point in points]))
        shard.flush()
        shard.close()
        for file in path.glob("segments/*/version.info"):
            file.write_text(double.segment_version or file.read_text())
        called = f"{name}-shard-{len(double.shard_snapshots)}.snapshot"
        double.shard_snapshots[called] = pack(path / "segments", 8)
    made = double.shard_snapshots[called]
    checksum = hashlib.sha256(made).hexdigest()
    return {"name": called, "creation_time": "2026-11-22T00:00:00", "size": len(made), "checksum": checksum}


def _to_edge(point: models.Record) -> Point:
    named: dict[str, Any] = {}
    for key, value in (point.vector or {}).items():  # type: ignore[union-attr]
        is_sparse = isinstance(value, models.SparseVector)
        named[key] = EdgeSparse(value.indices, value.values) if is_sparse else value
    return Point(str(point.id), named, point.payload or {})


def _download(double: QdrantDouble, name: str, body: bytes) -> Any:
    made = double.shard_snapshots[double.path.rpartition("/")[2]]
    raise Answered(made[:-1] + b"x" if double.spoils_snapshots else made)


def _forget(double: QdrantDouble, name: str, body: bytes) -> Any:
    del double.shard_snapshots[double.path.rpartition("/")[2]]
    return True


_SHARD = r"/collections/(?P<name>[^/]+)/shards/\d+/snapshots"

SHARD_ROUTES: list[tuple[str, str, Callable[[QdrantDouble, str, bytes], Any]]] = [
    ("POST", _SHARD, _make),
    ("GET", _SHARD + "/[^/]+", _download),
    ("DELETE", _SHARD + "/[^/]+", _forget),
]
