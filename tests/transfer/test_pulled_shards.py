"""A pull takes the snapshot that the server made of its shard; over the double, whose shards the real engine packs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault
from store_cases import many
from transfer_cases import NAME, check_same, fill, ready

from pearl_qdrant.errors import OptionError, StoreUnavailableError
from pearl_qdrant.store import Store, open_store
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
