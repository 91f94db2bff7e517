"""The fast way over the double, whose shards the real engine packs and unpacks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from edge_cases import manifest_of, many
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault
from transfer_cases import NAME, check_same, ready

from pearl_qdrant.errors import OptionError, StoreUnavailableError
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.edge.versions import snapshots
from pearl_qdrant.store.points import is_same_point
from pearl_qdrant.store.server.store import ServerStore
from pearl_qdrant.store.versions.protocol import PLAIN
from pearl_qdrant.transfer import pull_collection, push_collection

pytestmark = pytest.mark.slow  # a shard has files of 150 MB, most of it holes


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EdgeStore:
    """An embedded store whose collection has a graph, and points that were changed since."""
    monkeypatch.setattr(edge_shard, "INDEXING_THRESHOLD_KB", 10)
    store = EdgeStore(tmp_path / "graph")
    collection = store.create(manifest_of(NAME, dim=16))
    points, vectors, encodable = many(1000, dim=16)
    with collection.writer() as writer:
        writer.write(points, vectors, encodable)
    collection.finalize()
    more, their_vectors, flags = many(4, dim=16, start=1000)
    collection.upsert(more, their_vectors, flags)
    collection.delete_entities(["E3"])
    ready(collection)
    return store


def test_a_shard_goes_to_a_server_and_back(
    graph: EdgeStore, server: ServerStore, double: QdrantDouble, tmp_path: Path
) -> None:
    """Points, vectors and answers are the same after a push of the shard, an edit there, and a pull of the shard."""
    result = push_collection(NAME, to=server, store=graph)
    theirs = server.open(NAME)

    assert result.way == "snapshot", result.reason
    assert result.names == 1002
    check_same(theirs, graph.open(NAME, read_only=True))
    assert theirs.type_counts() == graph.open(NAME, read_only=True).type_counts()
    assert theirs.count_entities() == 501
    assert double.shard_snapshots == {}
    assert not any(double.is_deaf.values())

    added, vectors, flags = many(2, dim=16, start=2000)
    theirs.upsert(added, vectors, flags)
    assert theirs.delete_entities(["E5"]) == 2
    ready(theirs)
    back = EdgeStore(tmp_path / "back")
    result = pull_collection(NAME, source=server, store=back)
    pulled = back.open(NAME)

    assert result.way == "snapshot", result.reason
    check_same(pulled, theirs)
    assert pulled.type_counts() == theirs.type_counts()
    assert pulled.count_entities() == 501
    assert [hit[0].point.name for hit in pulled.search(vectors, limit=1)] == [point.name for point in added]
    assert pulled.status().is_finalized
    more, vectors, flags = many(2, dim=16, start=3000)
    pulled.upsert(more, vectors, flags)
    assert pulled.find(entity_ids=["E1500"], limit=5) == sorted(more, key=lambda point: point.id)
    back.close()
    again = EdgeStore(tmp_path / "back").open(NAME)
    assert again.count() == 1004
    again.close()


def test_a_server_of_another_version_gets_the_names_streamed(
    graph: EdgeStore, server: ServerStore, double: QdrantDouble
) -> None:
    """The preflight compares the versions of segments, and says why it streams; a snapshot alone is refused."""
    double.segment_version = "0.7.1"
    with pytest.raises(OptionError, match=r"0\.7\.1"):
        push_collection(NAME, to=server, store=graph, way="snapshot")
    assert server.versions.list(NAME) == []
    result = push_collection(NAME, to=server, store=graph)

    assert result.way == "stream"
    assert "segments of version 0.7.1" in result.reason
    check_same(server.open(NAME), graph.open(NAME, read_only=True))


def test_a_server_that_ignores_changes_gets_the_names_streamed(
    graph: EdgeStore, server: ServerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the server does not take a change of what was uploaded, the upload does not count."""
    monkeypatch.setattr(snapshots, "_last_operation", lambda segments: -1)
    result = push_collection(NAME, to=server, store=graph)

    assert result.way == "stream"
    assert "not a change of it" in result.reason


def test_several_shards_are_streamed(graph: EdgeStore, server: ServerStore, double: QdrantDouble) -> None:
    """A collection that the server keeps on several nodes is streamed."""
    double.replica_states = ["Active", "Active"]
    result = push_collection(NAME, to=server, store=graph)

    assert (result.way, "2 shards or replicas" in result.reason) == ("stream", True)
    assert [version.id != PLAIN for version in server.versions.list(NAME)] == [True]


def test_numbers_of_many_digits_come_back(graph: EdgeStore, server: ServerStore, tmp_path: Path) -> None:
    """The engine changes the last digit of a long number in a plain payload; its snapshot is taken all the same."""
    collection = graph.open(NAME)
    points, vectors, flags = many(40, dim=16, start=5000)
    typed = {"phrase_type": "NP-ORG", "lexical_class": "NP", "predicted_type": "ORG"}
    long = [replace(one, type_probability=1 / (i + 3), popularity=i / 7, **typed) for i, one in enumerate(points)]
    collection.upsert(long, vectors, flags)
    collection.delete_entities([f"E{entity}" for entity in range(500)])
    ready(collection)
    push_collection(NAME, to=server, store=graph, way="stream")
    result = pull_collection(NAME, source=server, store=EdgeStore(tmp_path / "back"), way="snapshot")

    assert result.checked > 40
    back = EdgeStore(tmp_path / "back")
    pulled = back.open(NAME, read_only=True).get([one.id for one in long])
    back.close()
    assert all(is_same_point(pulled[one.id], one) for one in long)
    assert any(pulled[one.id] != one for one in long)


@pytest.mark.parametrize("request_", ["POST .*/snapshots$", "POST .*/snapshots/upload"], ids=["make", "upload"])
def test_a_server_that_fails_at_snapshots_gets_the_names_streamed(
    graph: EdgeStore, server: ServerStore, double: QdrantDouble, request_: str
) -> None:
    """A server error that all retries meet is no reason to give up, if the server answers otherwise."""
    double.faults = [Fault("status", match=request_, status=500, error="no space for it") for _ in range(20)]
    with pytest.raises(OptionError, match=r"fails at snapshots.*no space for it"):
        push_collection(NAME, to=server, store=graph, way="snapshot")
    assert server.collections() == []
    result = push_collection(NAME, to=server, store=graph)

    assert (result.way, result.names) == ("stream", graph.open(NAME, read_only=True).count())
    assert "no space for it" in result.reason
    check_same(server.open(NAME), graph.open(NAME, read_only=True))


def test_a_server_that_fails_at_everything_is_unavailable(
    graph: EdgeStore, server: ServerStore, double: QdrantDouble
) -> None:
    """Then nothing is streamed either."""
    snapshots = Fault("status", match="POST .*/snapshots$", status=500)

    def fail_from_now_on() -> None:
        double.before_fault = None
        double.faults += [Fault("status", match=".", status=500) for _ in range(40)]

    double.faults, double.before_fault = [snapshots], fail_from_now_on
    with pytest.raises(StoreUnavailableError):
        push_collection(NAME, to=server, store=graph)
    double.faults = []
    assert server.collections() == []
