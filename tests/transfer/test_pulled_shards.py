"""A pull takes the snapshot that the server made of its shard; over the double, whose shards the real engine packs."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import qdrant_double
import qdrant_double_routes
import qdrant_double_shards
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault
from qdrant_edge import EdgeShard, Point, UpdateOperation
from store_cases import manifest_of, many
from transfer_cases import NAME, check_same, fill, ready

from pearl_qdrant.errors import OptionError, StoreUnavailableError
from pearl_qdrant.store import Store, open_store
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.transfer import pull_collection


def test_a_shard_is_pulled_with_its_graph(server: Store, double: QdrantDouble, tmp_path: Path) -> None:
    """Points, vectors and answers are the server's, and it can be edited."""
    fill(server)
    back = open_store(tmp_path / "back")
    result = pull_collection(NAME, source=server, store=back)
    pulled = back.open(NAME)

    assert (result.way, result.reason, result.names) == ("snapshot", "", 60)
    check_same(pulled, server.open(NAME))
    assert pulled.type_counts() == server.open(NAME).type_counts()
    assert double.shard_snapshots == {}
    more, vectors, flags = many(2, start=3000)
    pulled.upsert(more, vectors, flags)
    ready(pulled)
    back.close()
    again = open_store(tmp_path / "back").open(NAME, read_only=True)
    assert again.count() == 62
    assert again.find(entity_ids=["E1500"], limit=5) == sorted(more, key=lambda point: point.id)
    again.close()


def test_a_snapshot_that_arrived_otherwise_is_streamed(server: Store, double: QdrantDouble, tmp_path: Path) -> None:
    """The checksum that the server gives is compared; a wrong byte never reaches the engine."""
    fill(server)
    double.spoils_snapshots = True
    with pytest.raises(OptionError, match="SHA-256"):
        pull_collection(NAME, source=server, store=tmp_path / "none", way="snapshot")
    result = pull_collection(NAME, source=server, store=tmp_path / "back")

    assert (result.way, result.sent, result.names) == ("stream", 60, 60)
    assert "SHA-256" in result.reason
    back = open_store(tmp_path / "back")
    check_same(back.open(NAME), server.open(NAME))
    assert back.open(NAME).manifest == server.open(NAME).manifest
    back.close()
    assert open_store(tmp_path / "none").collections() == []


NO_SNAPSHOT = [Fault("status", match="POST .*/snapshots$", status=500, error="no room") for _ in range(20)]


@pytest.mark.parametrize(
    "setting, value, reason",
    [
        ("segment_version", "0.7.1", "0.7.1 is newer"),
        ("replica_states", ["Active", "Active"], "2 shards or replicas"),
        ("faults", NO_SNAPSHOT, "no room"),
    ],
    ids=["newer segments", "two shards", "a server that fails at snapshots"],
)
def test_what_cannot_be_a_snapshot_is_streamed(
    server: Store, double: QdrantDouble, tmp_path: Path, setting: str, value: Any, reason: str
) -> None:
    """Segments of another version, several shards, or an error that all retries meet: the server sends names."""
    fill(server)
    setattr(double, setting, [*value] if isinstance(value, list) else value)
    result = pull_collection(NAME, source=server, store=tmp_path / "back")

    assert (result.way, result.names) == ("stream", 60)
    assert reason in result.reason


def test_a_server_that_fails_at_everything_is_unavailable(server: Store, double: QdrantDouble, tmp_path: Path) -> None:
    """Then nothing is streamed either, and nothing is left."""
    fill(server)

    def fail_from_now_on() -> None:
        double.before_fault = None
        double.faults += [Fault("status", match=".", status=500) for _ in range(40)]

    double.faults, double.before_fault = [Fault("status", match="POST .*/snapshots$", status=500)], fail_from_now_on
    with pytest.raises(StoreUnavailableError):
        pull_collection(NAME, source=server, store=tmp_path / "back")
    assert open_store(tmp_path / "back").collections() == []


N_LARGE = 571_074
"""Names of the base on which a pull failed when the files were opened within limits of memory."""


def large_snapshot(folder: Path) -> tuple[bytes, str]:
    """The snapshot of a shard with `N_LARGE` names in a compacted segment, and its checksum."""
    # Segments that never merge, as a load makes them.
    config = edge_shard.shard_config(8, m=0, segments=1000, max_segment_kb=3 * 1024, threshold_kb=1)
    shard = EdgeShard.create(str(folder / "large"), config)
    for start in range(0, N_LARGE, 1000):
        points, vectors, _ = many(min(1000, N_LARGE - start), start=start)
        rows = zip(points, vectors, strict=True)
        made = [Point(point.id, {"dense": memoryview(row)}, point.to_payload()) for point, row in rows]
        shard.update(UpdateOperation.upsert_points(made))
        if start % 100_000 == 0:
            shard.optimize()
    shard.optimize()
    shard.flush()
    shard.close()
    packed = qdrant_double_shards.pack(folder / "large" / "segments", N_LARGE)
    return packed, hashlib.sha256(packed).hexdigest()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_shard_of_a_large_base_is_pulled(
    server: Store, double: QdrantDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """571,074 names arrive as a snapshot, and are read and edited. The double keeps the first 300 of them itself."""
    collection = server.create(manifest_of(NAME))
    collection.upsert(*many(300))
    ready(collection)
    packed, checksum = large_snapshot(tmp_path)

    def make(double: QdrantDouble, name: str, body: bytes) -> object:
        double.shard_snapshots["large"] = packed
        return {"name": "large", "creation_time": "2026-11-25T00:00:00", "size": len(packed), "checksum": checksum}

    def count(double: QdrantDouble, name: str, body: bytes) -> object:
        return {"count": N_LARGE}

    instead = {qdrant_double_shards._make: make, qdrant_double_routes._count: count}
    for routes in ("ROUTES", "SHARD_ROUTES"):
        changed = [(method, path, instead.get(handle, handle)) for method, path, handle in vars(qdrant_double)[routes]]
        monkeypatch.setattr(qdrant_double, routes, changed)
    result = pull_collection(NAME, source=server, store=tmp_path / "back")

    assert (result.way, result.names, result.checked) == ("snapshot", N_LARGE, 100)
    back = open_store(tmp_path / "back")
    writer = back.open(NAME)
    assert writer.delete_entities(["E7", f"E{N_LARGE // 2 - 1}"]) == 4
    reader = back.open(NAME, read_only=True)
    assert (writer.count(), reader.count()) == (N_LARGE - 4, N_LARGE - 4)
    back.close()
