"""A collection goes to a cluster whose shards have keys, name by name; `test_keyed_snapshots.py` has the fast way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import Run
from cluster_cases import NAME, PARTS, check_keys, copies, marked_as_parts
from qdrant_double import QdrantDouble
from transfer_cases import check_same, embedded

from pearl_qdrant.errors import OptionError
from pearl_qdrant.store.edge.parts.splitting import split_shard
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.partitions.rule import Partitions
from pearl_qdrant.store.protocol import Placement
from pearl_qdrant.store.server.store import ServerStore
from pearl_qdrant.transfer import pull_collection, push_collection


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeStore]:
    """A collection of four parts, which no test changes."""
    store = marked_as_parts(tmp_path_factory.mktemp("kept") / "store")
    yield store
    store.close()


def test_streamed_names_have_keys(kept: EdgeStore, server: ServerStore, double: QdrantDouble) -> None:
    """In a cluster the parts of a collection are shards with keys by default."""
    result = push_collection(NAME, to=server, store=kept, way="stream")

    assert (result.way, result.shard_keys, result.reason) == ("stream", PARTS, "asked for")
    assert sorted(copies(double, check_keys(double, 60)).values()) == [2, 3, 3]
    check_same(server.open(NAME), kept.open(NAME, read_only=True))


@pytest.mark.slow
def test_a_collection_with_keys_comes_back(kept: EdgeStore, server: ServerStore, tmp_path: Path) -> None:
    """A pull reads all shards, and streams."""
    push_collection(NAME, to=server, store=kept, way="stream")
    back = EdgeStore(tmp_path / "back")
    assert pull_collection(NAME, source=server, store=back).way == "stream"
    check_same(back.open(NAME), kept.open(NAME, read_only=True))
    back.close()


def test_segments_of_several_parts_are_mixed(kept: EdgeStore, tmp_path: Path) -> None:
    """A segment with names of several partitions belongs to none; with one partition, all do."""
    shard, work = Path(kept.location) / NAME / "shard", tmp_path / "work"
    work.mkdir()
    mixed = split_shard(shard, Partitions(count=PARTS), work, NAME)
    whole = split_shard(shard, Partitions(count=1), work, NAME)

    assert (len(mixed.others), dict(mixed.segments)) == (60, {})
    assert (whole.points, whole.others) == ({0: 60}, set())
    assert len(whole.segments[0]) == 1
    assert list(work.iterdir()) == []


def test_a_server_that_is_no_cluster_gets_no_keys(kept: EdgeStore, server: ServerStore, double: QdrantDouble) -> None:
    """The collection goes to one shard, whether keys were asked for or not, and the result says why."""
    double.cluster_state.nodes = ()
    for wanted in (None, True):
        result = push_collection(NAME, to=server, store=kept, way="stream", shards_by_key=wanted, replace=True)

        assert result.shard_keys == 0
        assert result.reason == "asked for, in one shard, as the server is no cluster"
    assert double.cluster_state.shards == {}


def test_any_collection_may_have_keys(tmp_path: Path, server: ServerStore, double: QdrantDouble) -> None:
    """One that was not built in parts is streamed to as many shards as are asked for; their number must be said."""
    store = embedded(tmp_path / "store")
    with pytest.raises(OptionError, match="how many shards") as caught:
        push_collection(NAME, to=server, store=store, shards_by_key=True)
    result = push_collection(NAME, to=server, store=store, shards_by_key=True, placement=Placement(shards=3))

    assert caught.value.option == "shards"
    assert (result.way, result.shard_keys) == ("stream", 3)
    assert "not built in 3 parts" in result.reason
    check_keys(double, 60, parts=3)
    store.close()


def test_keys_can_be_refused(kept: EdgeStore, server: ServerStore, double: QdrantDouble) -> None:
    """Without keys the collection goes to a cluster as before."""
    result = push_collection(NAME, to=server, store=kept, way="stream", shards_by_key=False)

    assert (result.shard_keys, result.reason) == (0, "asked for")
    assert double.cluster_state.shards == {}


@pytest.mark.slow
def test_push_from_the_shell(kept: EdgeStore, server: ServerStore, double: QdrantDouble, run: Run) -> None:
    """`collections push` reports how many shards have keys, and takes their number and that of the copies."""
    given = ("collections", "push", NAME, "--to", double.url, "--store", kept.location, "--json", "--way", "stream")
    first = run(*given, "--replicas", "3")
    assert first.status == 0, first.err
    copied = copies(double, check_keys(double, 60))
    second = run(*given, "--replace", "--shards-by-key", "--shards", "2")
    third = run(*given, "--replace", "--no-shards-by-key")

    assert json.loads(first.out)["shard_keys"] == PARTS
    assert set(copied.values()) == {PARTS}
    assert json.loads(second.out)["shard_keys"] == 2
    assert json.loads(third.out)["shard_keys"] == 0
