"""The parts of a collection go to a cluster as snapshots, which the real engine unpacks in the double."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_cases import NAME, built_in_parts, check_keys, copies
from edge_cases import many
from qdrant_double import QdrantDouble
from qdrant_double_cluster import ASKED
from qdrant_double_http import Fault
from transfer_cases import check_same, ready

from pearl_qdrant.errors import StoreError, StoreUnavailableError
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.protocol import Placement
from pearl_qdrant.store.server.indexing import Indexing
from pearl_qdrant.store.server.store import ServerStore
from pearl_qdrant.store.server.versions import snapshots
from pearl_qdrant.transfer import push_collection

pytestmark = pytest.mark.slow  # each part has files of 120 MB, most of it holes

PARTS = 2
UPLOAD = r"POST .*/snapshots/upload"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeStore]:
    """A collection that was built in two parts, which no test changes."""
    store = built_in_parts(tmp_path_factory.mktemp("kept") / "store", parts=PARTS)
    yield store
    store.close()


def test_each_part_is_a_shard(kept: EdgeStore, server: ServerStore, double: QdrantDouble) -> None:
    """The parts are uploaded, each under its key; copies lie over all nodes; names and answers are the same."""
    result = push_collection(NAME, to=server, store=kept)
    theirs = server.open(NAME)

    assert (result.way, result.shard_keys, result.names) == ("snapshot", PARTS, 60), result.reason
    assert result.reason == "2 parts are shards of their own"
    assert double.upsert_sizes == []  # nothing was streamed
    assert sorted(copies(double, check_keys(double, 60, PARTS)).values()) == [1, 1, 2]
    assert [move[1] for move in double.cluster_state.moves] == [ASKED]
    check_same(theirs, kept.open(NAME, read_only=True))
    assert theirs.manifest == kept.open(NAME, read_only=True).manifest
    assert double.shard_snapshots == {}

    added, vectors, encodable = many(6, start=300)
    theirs.upsert(added, vectors, encodable)
    assert theirs.delete_entities(["E5", "E150"]) == 4
    check_keys(double, 62, PARTS)


def test_what_was_added_since_is_streamed(tmp_path: Path, server: ServerStore, double: QdrantDouble) -> None:
    """Names of several parts that share a segment are streamed with their keys; the other segments are uploaded."""
    store = built_in_parts(tmp_path / "store", 40, PARTS)
    collection = store.open(NAME)
    added, vectors, encodable = many(16, start=100)
    collection.upsert(added, vectors, encodable)
    collection.delete_entities(["E7"])
    ready(collection)
    store.close()
    again = EdgeStore(tmp_path / "store")
    result = push_collection(NAME, to=server, store=again)

    assert (result.way, result.names) == ("snapshot", 54), result.reason
    check_keys(double, 54, PARTS)
    assert 16 <= sum(double.upsert_sizes) < 54
    check_same(server.open(NAME), again.open(NAME, read_only=True))
    again.close()


def test_any_collection_is_one_part(kept: EdgeStore, server: ServerStore, double: QdrantDouble) -> None:
    """A collection goes as one shard with a key, of which the server makes the copies."""
    placement = Placement(shards=1, replicas=3)
    result = push_collection(NAME, to=server, store=kept, shards_by_key=True, placement=placement)

    assert (result.way, result.shard_keys) == ("snapshot", 1), result.reason
    assert copies(double, check_keys(double, 60, 1)) == {11: 1, 12: 1, 13: 1}
    check_same(server.open(NAME), kept.open(NAME, read_only=True))


@pytest.mark.parametrize("why", ["segments of version 0.7.1", "not a change of it"])
def test_where_parts_cannot_be_uploaded_they_are_streamed(
    kept: EdgeStore, server: ServerStore, double: QdrantDouble, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """A server of another version, or one that ignores later changes, gets the names one by one, with keys."""
    if "version" in why:
        double.segment_version = "0.7.1"
    else:
        monkeypatch.setattr(snapshots, "takes_changes", lambda *_: False)
    result = push_collection(NAME, to=server, store=kept)

    assert (result.way, result.shard_keys) == ("stream", PARTS)
    assert why in result.reason
    check_keys(double, 60, PARTS)


def test_a_move_that_fails_does_no_harm(
    kept: EdgeStore, server: ServerStore, double: QdrantDouble, caplog: pytest.LogCaptureFixture
) -> None:
    """A shard that cannot be moved stays on the node asked, with a warning; the push is complete."""
    double.cluster_state.refuses_moves = True
    with caplog.at_level(logging.WARNING):
        result = push_collection(NAME, to=server, store=kept)

    assert result.way == "snapshot"
    assert copies(double, check_keys(double, 60, PARTS))[ASKED] == PARTS
    assert "stays on node 11" in caplog.text


def test_lost_answers_do_no_harm(kept: EdgeStore, server: ServerStore, double: QdrantDouble) -> None:
    """Each kind of request of a push may lose its answer once, and fail once."""
    for match in (r"PUT .*/shards$", r"POST .*/cluster$", UPLOAD, r"POST .*/points/payload$"):
        double.faults += [Fault("apply_then_drop", match=match), Fault("status", match=match, status=503)]
    result = push_collection(NAME, to=server, store=kept)

    assert (result.way, [fault.match for fault in double.faults]) == ("snapshot", [r"POST .*/cluster$"])
    assert sorted(copies(double, check_keys(double, 60, PARTS)).values()) == [1, 1, 2]
    assert len(double.cluster_state.moves) == 1


def test_a_broken_push_leaves_nothing(kept: EdgeStore, server: ServerStore, double: QdrantDouble) -> None:
    """If the cluster is gone for a while in the middle of an upload, nothing is visible, and nothing is left."""
    n_uploads = 0

    def fail_from_the_second_on() -> None:
        nonlocal n_uploads
        n_uploads += 1
        if n_uploads == 2:
            double.faults += [
                Fault("status", match=".") for _ in range(4)
            ]  # three more tries, and a look whether it is there

    double.faults = [Fault("pass", match=UPLOAD), Fault("status", match=UPLOAD)]
    double.before_fault = fail_from_the_second_on
    with pytest.raises(StoreUnavailableError):
        push_collection(NAME, to=server, store=kept)

    assert server.collections() == []
    assert double.cluster_state.shards == {}


def test_a_node_that_goes_away_during_a_push_is_named(
    kept: EdgeStore, server: ServerStore, double: QdrantDouble, caplog: pytest.LogCaptureFixture
) -> None:
    """Copies on a node that does not answer are left to the server; the push is complete, and the log has a warning."""
    state = double.cluster_state
    double.before_fault = lambda: state.away.add(12)
    double.faults = [Fault("pass", match=UPLOAD)]
    with caplog.at_level(logging.WARNING):
        result = push_collection(NAME, to=server, store=kept)

    assert result.way == "snapshot"
    assert "copies of shards are on nodes that do not answer" in caplog.text
    assert server.open(NAME).count() == 60
    state.away.clear()
    physical = check_keys(double, 60, PARTS)
    server.connection.client.collection_cluster_info(physical)
    assert sum(copies(double, physical).values()) == 2 * PARTS


def test_copies_that_are_never_filled_end_a_push(kept: EdgeStore, double: QdrantDouble, server: ServerStore) -> None:
    """If a node answers, but does not fill its copy, the push ends with an error that names it."""
    double.cluster_state.slow_polls = 10**9
    impatient = ServerStore(server.connection, indexing=Indexing(poll_s=0.001, stall_s=0.02))
    with pytest.raises(StoreError, match=r"part-000 on node 12 is Dead"):
        push_collection(NAME, to=impatient, store=kept)

    assert server.collections() == []
