"""Shard snapshots of the Qdrant double: the real engine packs and unpacks what local mode holds.

What is known of a real server is in the module `store.edge.versions.snapshots`. Like the engine, the double takes no
operation on what a snapshot brought, if the snapshot's log does not go on after its segments.
"""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from qdrant_client import models
from qdrant_double_cluster import KeyedShard
from qdrant_double_http import Answered, Refused
from qdrant_double_routes import check_change
from qdrant_edge import EdgeShard, Point, ScrollRequest, UpdateOperation
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
    keyed = _keyed(double, name)
    if keyed is not None:
        points = [point for point in points if str(point.id) in keyed.points]
    with tempfile.TemporaryDirectory(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")) as folder:
        path = Path(folder) / "shard"
        edge_shard.create_shard(path, vectors["dense"].size, has_descriptions="description" in vectors)
        shard = EdgeShard.load(str(path))
        if points:
            shard.update(UpdateOperation.upsert_points([_to_edge(point) for point in points]))
        shard.flush()
        shard.close()
        for file in path.glob("segments/*/version.info"):
            file.write_text(double.segment_version or file.read_text())
        called = f"{name}-shard-{len(double.shard_snapshots)}.snapshot"
        double.shard_snapshots[called] = pack(path / "segments", 8)
    return {"name": called, "creation_time": "2026-11-22T00:00:00", "size": len(double.shard_snapshots[called])}


def _to_edge(point: models.Record) -> Point:
    named: dict[str, Any] = {}
    for key, value in (point.vector or {}).items():  # type: ignore[union-attr]
        is_sparse = isinstance(value, models.SparseVector)
        named[key] = EdgeSparse(value.indices, value.values) if is_sparse else value
    return Point(str(point.id), named, point.payload or {})


def _download(double: QdrantDouble, name: str, body: bytes) -> Any:
    raise Answered(double.shard_snapshots[double.requests[-1].rpartition("/")[2]])


def _forget(double: QdrantDouble, name: str, body: bytes) -> Any:
    del double.shard_snapshots[double.requests[-1].rpartition("/")[2]]
    return True


def _upload(double: QdrantDouble, name: str, body: bytes) -> Any:
    """Replace the points of a collection by those of an uploaded shard, read by the engine."""
    keyed = _keyed(double, name)
    start = body.index(b"\r\n\r\n") + 4
    packed = body[start : body.rindex(b"\r\n--")]
    with tempfile.TemporaryDirectory(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")) as folder:
        tar = Path(folder) / "uploaded.snapshot"
        tar.write_bytes(packed)
        with tarfile.open(tar) as opened:
            logs = [re.fullmatch(r"wal/closed-(\d+)", one) for one in opened.getnames()]
            (number,) = (int(log[1]) for log in logs if log)
        try:
            EdgeShard.unpack_snapshot(str(tar), f"{folder}/shard")
            shard = EdgeShard.load(f"{folder}/shard")
        except Exception as error:
            raise Refused(500, f"Service internal error: {error}") from error
        states = Path(folder).glob("shard/segments/*/segment.json")
        versions = [json.loads(state.read_text())["version"] or 0 for state in states]
        double.schema[name] = {
            field: {"Keyword": "keyword", "Bool": "bool"}[str(info.data_type).rpartition(".")[2]]
            for field, info in shard.info().payload_schema.items()
        }
        request = ScrollRequest(limit=1_000_000, with_payload=True, with_vector=True)
        records, _ = shard.scroll(request)
        shard.close()
    old = [str(one.id) for one in double.client.scroll(name, limit=1_000_000)[0]]
    if keyed is not None:
        old = [one for one in old if one in keyed.points]
        double.cluster_state.uploaded(keyed, [str(record.id) for record in records])
    if old:
        double.client.delete(name, models.PointIdsList(points=[*old]))
    double.client.upsert(name, [_from_edge(record) for record in records])
    double.is_deaf[name] = number <= max(versions) or (keyed is not None and double.is_deaf.get(name, False))
    return True


def _from_edge(record: Any) -> models.PointStruct:
    named: dict[str, Any] = {}
    for key, value in (record.vector or {}).items():
        is_sparse = isinstance(value, EdgeSparse)
        named[key] = models.SparseVector(indices=value.indices, values=value.values) if is_sparse else list(value)
    return models.PointStruct(id=str(record.id), vector=named, payload=record.payload)


def _keyed(double: QdrantDouble, name: str) -> KeyedShard | None:
    """The shard that the request is about, if the shards have keys; else the collection has only one, 0."""
    shard_id = int(double.requests[-1].partition("/shards/")[2].partition("/")[0])
    if name in double.cluster_state.shards:
        return double.cluster_state.local_shard(name, shard_id)
    if shard_id:
        raise Refused(404, f"Not found: Shard {shard_id} is not found")
    return None


def _set_payload(double: QdrantDouble, name: str, body: bytes) -> Any:
    wanted = TypeAdapter(models.SetPayload).validate_json(body)
    check_change(double, name, wanted.shard_key, wanted.points)
    if double.is_deaf.get(name):
        return {"operation_id": 0, "status": "completed"}
    return double.client.set_payload(name, wanted.payload, wanted.points or wanted.filter)


def _delete_payload(double: QdrantDouble, name: str, body: bytes) -> Any:
    wanted = TypeAdapter(models.DeletePayload).validate_json(body)
    check_change(double, name, wanted.shard_key, wanted.points)
    return double.client.delete_payload(name, wanted.keys, wanted.points or wanted.filter)


_SHARD = r"/collections/(?P<name>[^/]+)/shards/\d+/snapshots"

SHARD_ROUTES: list[tuple[str, str, Callable[[QdrantDouble, str, bytes], Any]]] = [
    ("POST", _SHARD, _make),
    ("GET", _SHARD + "/[^/]+", _download),
    ("DELETE", _SHARD + "/[^/]+", _forget),
    ("POST", _SHARD + "/upload", _upload),
    ("POST", r"/collections/(?P<name>[^/]+)/points/payload", _set_payload),
    ("POST", r"/collections/(?P<name>[^/]+)/points/payload/delete", _delete_payload),
]
