"""A pull takes the snapshot that the server made of its shard; over the double, whose shards the real engine packs."""

from __future__ import annotations

from pathlib import Path

import pytest
from edge_cases import many
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault
from transfer_cases import NAME, check_same, fill, ready

from pearl_qdrant.errors import OptionError, StoreUnavailableError
from pearl_qdrant.store.edge import checksums as edge_checksums
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.server.store import ServerStore
from pearl_qdrant.transfer import pull_collection


def test_a_shard_is_pulled_with_its_graph(
    server: ServerStore, double: QdrantDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Points, vectors and answers are the server's; the files are opened without limits of memory, and edited."""
    fill(server)

    def refuse(*given: object) -> None:
        raise AssertionError("a child with limits opened them")

    monkeypatch.setattr(edge_checksums, "open_on_trial", refuse)
    back = EdgeStore(tmp_path / "back")
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
    again = EdgeStore(tmp_path / "back").open(NAME, read_only=True)
    assert again.count() == 62
    assert again.find(entity_ids=["E1500"], limit=5) == sorted(more, key=lambda point: point.id)
    again.close()


def test_a_snapshot_that_arrived_otherwise_is_streamed(
    server: ServerStore, double: QdrantDouble, tmp_path: Path
) -> None:
    """The checksum that the server gives is compared; a wrong byte never reaches the engine."""
    fill(server)
    double.spoils_snapshots = True
    with pytest.raises(OptionError, match="SHA-256"):
        pull_collection(NAME, source=server, store=tmp_path / "none", way="snapshot")
    result = pull_collection(NAME, source=server, store=tmp_path / "back")

    assert (result.way, result.sent) == ("stream", 60)
    assert "SHA-256" in result.reason
    assert EdgeStore(tmp_path / "none").collections() == []


def test_segments_of_another_version_are_streamed(server: ServerStore, double: QdrantDouble, tmp_path: Path) -> None:
    """A server whose segments have another version than the engine here sends names."""
    fill(server)
    double.segment_version = "0.7.1"
    result = pull_collection(NAME, source=server, store=tmp_path / "back")

    assert result.way == "stream"
    assert "segments of version 0.7.1" in result.reason


def test_several_shards_are_streamed(server: ServerStore, double: QdrantDouble, tmp_path: Path) -> None:
    """A collection that the server keeps on several nodes is streamed."""
    fill(server)
    double.replica_states = ["Active", "Active"]
    result = pull_collection(NAME, source=server, store=tmp_path / "back")

    assert (result.way, "2 shards or replicas" in result.reason) == ("stream", True)


def test_a_server_that_fails_at_snapshots_sends_names(
    server: ServerStore, double: QdrantDouble, tmp_path: Path
) -> None:
    """A server error that all retries meet is no reason to give up, if the server answers otherwise."""
    fill(server)
    double.faults = [Fault("status", match="POST .*/snapshots$", status=500, error="no room") for _ in range(20)]
    result = pull_collection(NAME, source=server, store=tmp_path / "back")

    assert (result.way, result.names) == ("stream", 60)
    assert "no room" in result.reason


def test_a_server_that_fails_at_everything_is_unavailable(
    server: ServerStore, double: QdrantDouble, tmp_path: Path
) -> None:
    """Then nothing is streamed either, and nothing is left."""
    fill(server)

    def fail_from_now_on() -> None:
        double.before_fault = None
        double.faults += [Fault("status", match=".", status=500) for _ in range(40)]

    double.faults, double.before_fault = [Fault("status", match="POST .*/snapshots$", status=500)], fail_from_now_on
    with pytest.raises(StoreUnavailableError):
        pull_collection(NAME, source=server, store=tmp_path / "back")
    assert EdgeStore(tmp_path / "back").collections() == []
