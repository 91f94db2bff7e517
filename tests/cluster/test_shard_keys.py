"""Collections whose shards have keys: each write names the right one, and a search names none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from cluster_cases import NAME, check_keys, copies
from edge_cases import manifest_of, many
from qdrant_client import models
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault

from pearl_qdrant.errors import ManifestError, OptionError, StoreError, StoreRejectedError
from pearl_qdrant.store.partitions.rule import BUCKETS, RULE, Partitions, bucket_of
from pearl_qdrant.store.protocol import Placement
from pearl_qdrant.store.server.cluster.keys import SHARDS_KEY
from pearl_qdrant.store.server.cluster.nodes import Nodes, find_nodes, move_to_places
from pearl_qdrant.store.server.collection import MANIFEST_KEY, ServerCollection
from pearl_qdrant.store.server.store import ServerStore
from pearl_qdrant.store.versions.protocol import new_version

BY_KEY = Placement(shards=4, by_key=True)


@pytest.fixture
def keyed(server: ServerStore) -> ServerCollection:
    """A collection of four shards with keys."""
    return server.create(manifest_of(NAME), BY_KEY)


def test_the_rule_never_changes() -> None:
    """The partition of an entity is the same in each release: points stay in the shards that they were written to."""
    assert [bucket_of(one) for one in ("E1", "Q42", "C0027051", "é")] == [165, 146, 26, 203]
    assert [Partitions(count=7).partition_of(one) for one in ("E1", "Q42", "\ud800")] == [4, 6, 3]
    assert RULE == "blake2b-64 of the entity id, 256 buckets"
    assert BUCKETS == 256


def test_every_write_goes_to_the_shard_of_its_entity(keyed: ServerCollection, double: QdrantDouble) -> None:
    """Loads, edits and deletions name the key of each point; reads need none and see all shards."""
    points, vectors, encodable = many(300)
    with keyed.writer() as writer:
        writer.write(points[:200], vectors[:200], encodable[:200])
        writer.write(points[150:280], vectors[150:280], encodable[150:280])
    keyed.finalize()
    keyed.upsert(points[270:], vectors[270:], encodable[270:])
    keyed.replace_payloads([replace(point, description="new") for point in points[:9]])

    check_keys(double, 300)
    assert keyed.count() == len(list(keyed.scroll())) == 300
    assert keyed.get([points[3].id])[points[3].id].description == "new"
    assert [hits[0].point.name for hits in keyed.search(vectors[:20], limit=1)] == [p.name for p in points[:20]]
    assert keyed.delete_entities(["E3", "E4", "E149"]) == 6
    keyed.delete_points({points[0].id, points[1].id, points[100].id})
    assert check_keys(double, 291) == NAME
    assert len(keyed.find(entity_ids=["E50"], limit=5)) == 1


def test_a_collection_is_opened_with_its_keys(
    keyed: ServerCollection, server: ServerStore, double: QdrantDouble
) -> None:
    """Another process that opens the collection writes with keys, also after its manifest was written anew."""
    keyed.write_manifest(keyed.manifest.model_copy(update={"kb_version": "2"}))
    points, vectors, encodable = many(40)
    server.open(NAME).upsert(points, vectors, encodable)

    check_keys(double, 40)


def test_without_keys_none_is_named(server: ServerStore, double: QdrantDouble) -> None:
    """In a cluster too, a collection without keys is written as before; the server would refuse a key."""
    collection = server.create(manifest_of(NAME), Placement(shards=6))
    points, vectors, encodable = many(20)
    collection.upsert(points, vectors, encodable)

    assert collection.delete_entities(["E1"]) == 2
    assert collection.keys is None
    assert double.created[NAME]["shard_number"] == 6
    assert double.cluster_state.shards == {}


def test_copies_lie_over_all_nodes(keyed: ServerCollection, double: QdrantDouble) -> None:
    """Four shards with two copies each: no node has more than three of the eight, and none two of one shard."""
    assert sorted(copies(double, NAME).values()) == [2, 3, 3]
    assert all(len(shard.nodes) == 2 for shard in double.cluster_state.shards[NAME].values())
    assert double.created[NAME]["sharding_method"] == "custom"


@pytest.mark.parametrize("n_nodes, replicas", [(1, 1), (1, 3), (3, 1), (3, 2), (3, 3), (5, 2)])
def test_places_are_even(n_nodes: int, replicas: int) -> None:
    """With as many partitions as nodes, each node has as many copies; through the asked one all can be uploaded."""
    nodes = Nodes(2, tuple(range(n_nodes + 2))[2:])
    places = [nodes.places(partition, replicas) for partition in range(n_nodes)]
    first = [nodes.first_places(partition, replicas) for partition in range(n_nodes)]

    assert all(len(set(one)) == min(replicas, n_nodes) for one in places)
    assert {sum(node in one for one in places) for node in nodes.ids} == {min(replicas, n_nodes)}
    assert all(nodes.asked in one and len(set(one)) == len(places[0]) for one in first)
    assert all(len({*one} - {*other}) <= 1 for one, other in zip(places, first, strict=True))


def test_a_single_node_has_no_keys(server: ServerStore, double: QdrantDouble) -> None:
    """A server that is no cluster is named, and nothing is created; so is a number of shards that is missing."""
    with pytest.raises(OptionError, match="from 1 to 256") as missing:
        server.create(manifest_of(NAME), Placement(by_key=True))
    double.cluster_state.nodes = ()
    with pytest.raises(OptionError, match=r"127\.0\.0\.1:\d+ is no cluster") as caught:
        server.create(manifest_of(NAME), BY_KEY)

    assert (missing.value.option, caught.value.option) == ("shards", "shards_by_key")
    assert server.collections() == []


@pytest.mark.parametrize("kind", ["apply_then_drop", "drop"])
def test_a_lost_answer_makes_no_second_shard(server: ServerStore, double: QdrantDouble, kind: str) -> None:
    """A key whose creation was not confirmed is looked for before it is created again."""
    double.faults = [Fault(kind, match=r"PUT .*/shards$") for _ in range(2)]  # type: ignore[arg-type]
    server.create(manifest_of(NAME), BY_KEY)

    assert len(double.cluster_state.shards[NAME]) == 4
    assert double.faults == []


def test_a_refused_key_leaves_no_collection(server: ServerStore, double: QdrantDouble) -> None:
    """If a shard cannot be created, the collection is deleted again."""
    double.faults = [Fault("status", match=r"PUT .*/shards$", status=403, error="Forbidden: manage access")]
    with pytest.raises(StoreRejectedError, match="QDRANT_API_KEY"):
        server.create(manifest_of(NAME), BY_KEY)

    assert server.collections() == []


@pytest.mark.parametrize(
    "stored, why",
    [
        (None, "another program"),
        ({"count": 0}, "another program"),
        ({"count": 3, "rule": "by the moon"}, "a rule of a newer program .by the moon"),
    ],
)
def test_keys_of_others_are_refused(server: ServerStore, double: QdrantDouble, stored: object, why: str) -> None:
    """A collection whose keys follow another rule is not opened: what is written to it would go astray."""
    metadata = {MANIFEST_KEY: manifest_of(NAME).model_dump(mode="json"), SHARDS_KEY: stored}
    server.connection.client.create_collection(
        NAME,
        vectors_config={"dense": models.VectorParams(size=8, distance=models.Distance.COSINE)},
        sharding_method=models.ShardingMethod.CUSTOM,
        metadata=metadata,
    )

    with pytest.raises(ManifestError, match=why):
        server.open(NAME)


def test_a_version_with_another_model_has_the_same_keys(
    keyed: ServerCollection, server: ServerStore, double: QdrantDouble
) -> None:
    """What `reencode` builds beside a collection with keys has as many shards with keys, and as many copies."""
    other = server.versions.create(manifest_of(NAME), version=new_version(), made_by="reencode")
    points, vectors, encodable = many(40)
    other.upsert(points, vectors, encodable)

    assert other.keys == keyed.keys
    assert sorted(copies(double, other.physical).values()) == [2, 3, 3]
    assert sum(len(shard.points) for shard in double.cluster_state.shards[other.physical].values()) == 40


def test_a_point_without_a_key_would_be_refused(
    keyed: ServerCollection, double: QdrantDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The double refuses what a server refuses, so that the tests here would notice a forgotten key."""
    points, vectors, encodable = many(2)
    changes: list[Callable[[], object]] = [
        lambda: keyed.upsert(points, vectors, encodable),
        lambda: keyed.delete_points({points[0].id}),
        lambda: keyed.replace_payloads(points),
    ]
    keyed.upsert(points, vectors, encodable)
    monkeypatch.setattr(keyed, "_keys", None)

    for change in changes:
        with pytest.raises(StoreError, match="Shard key not specified"):
            change()


@pytest.mark.parametrize(
    "refuses, aborts, why",
    [(False, False, ""), (True, False, "Max number of transfers"), (False, True, "gave the move")],
)
def test_shards_move_to_their_places(
    server: ServerStore, double: QdrantDouble, caplog: pytest.LogCaptureFixture, refuses: bool, aborts: bool, why: str
) -> None:
    """Shards that were made on the node asked leave it; one that cannot be moved stays, with a warning."""
    server.create_physical(NAME, manifest_of(NAME), replace(BY_KEY, replicas=2), comes_as_snapshot=True)
    collection, nodes = server.open(NAME), find_nodes(server.connection)
    assert collection.keys is not None
    assert nodes is not None
    before = copies(double, NAME)
    double.cluster_state.refuses_moves, double.cluster_state.aborts_moves = refuses, aborts
    with caplog.at_level("WARNING"):
        move_to_places(server.connection, NAME, collection.keys, nodes, replicas=2, poll_s=0.001, stall_s=5)

    assert before == {11: 4, 12: 3, 13: 1}
    assert copies(double, NAME) == (before if why else {11: 3, 12: 3, 13: 2})
    assert why in caplog.text
    assert bool(why) == ("stays on node 11" in caplog.text)
