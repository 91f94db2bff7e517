"""A node of a cluster goes away while names are loaded, searched and pushed, and comes back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from double_fixtures import connect, empty_double, running_double, shared_store  # noqa: F401 (fixtures)
from qdrant_double import QdrantDouble
from qdrant_double_http import POINTS, Fault
from store_cases import manifest_of, many
from transfer_cases import check_same, embedded

from pearl_qdrant.errors import ShardUnavailableError
from pearl_qdrant.store.protocol import Placement
from pearl_qdrant.store.server.collection import ServerCollection
from pearl_qdrant.store.server.errors import RetryPolicy
from pearl_qdrant.store.server.store import ServerStore
from pearl_qdrant.transfer import push_collection

NAME = "toy"
NODES = (11, 12, 13)
QUERY = r"POST .*/points/query/batch$"


@pytest.fixture
def server(double: QdrantDouble, shared: ServerStore) -> ServerStore:
    """A store on a cluster of three nodes, which is empty."""
    double.cluster_state.nodes = NODES
    return shared


def sharded(server: ServerStore, *, replicas: int) -> ServerCollection:
    """An empty collection of three shards."""
    return server.create(manifest_of(NAME), Placement(3, replicas))


def load(collection: ServerCollection, n: int = 300) -> None:
    """Write n points in batches."""
    points, vectors, encodable = many(n)
    with collection.writer() as writer:
        for start in range(0, n, 30):
            writer.write(points[start : start + 30], vectors[start : start + 30], encodable[start : start + 30])


def at_request(double: QdrantDouble, match: str, number: int, do: Callable[[], object]) -> None:
    """Do something just before the request of this number that matches."""
    seen: list[int] = []

    def count() -> None:
        seen.append(0)
        if len(seen) == number:
            do()

    double.before_fault = count
    double.faults = [Fault("pass", match=match) for _ in range(number)]


def states(double: QdrantDouble) -> set[tuple[int, str]]:
    """(node, state) of all copies."""
    return {pair for shard in double.cluster_state.shards[NAME] for pair in shard.items()}


def test_with_two_copies_loads_and_searches_go_on(server: ServerStore, double: QdrantDouble) -> None:
    """A node goes away: nothing fails, all is found, its copies are dead, and are filled when it is back."""
    collection, state = sharded(server, replicas=2), double.cluster_state
    at_request(double, POINTS, 5, lambda: state.away.add(12))
    load(collection)

    assert collection.count() == 300
    assert (12, "Dead") in states(double)
    assert {state for node, state in states(double) if node != 12} == {"Active"}
    state.away.clear()
    server._client.collection_cluster_info(NAME)
    assert {state for _, state in states(double)} == {"Active"}
    points, vectors, _ = many(300)
    for node in NODES[1:]:
        double.cluster_state.away = {node}
        hits = collection.search(vectors[:10], limit=1)
        assert [found[0].point.name for found in hits] == [point.name for point in points[:10]]


def test_with_one_copy_a_load_waits(server: ServerStore, double: QdrantDouble) -> None:
    """With one copy, a load tries again until the node is back, and loses nothing."""
    collection, state = sharded(server, replicas=1), double.cluster_state
    state.away = {13}
    at_request(double, POINTS, 8, state.away.clear)
    patient = connect(double.url, retry=RetryPolicy(first_wait_s=0.001, max_wait_s=0.002, budget_s=60))
    load(patient.open(NAME))
    patient.close()

    assert collection.count() == 300
    assert len(double.upsert_sizes) < len([one for one in double.requests if one.endswith("/points")])


def test_with_one_copy_a_search_waits(server: ServerStore, double: QdrantDouble) -> None:
    """With one copy, a search is tried again at once and then waits for the node; it answers when it is back."""
    collection, state = sharded(server, replicas=1), double.cluster_state
    load(collection)
    state.away = {12}
    at_request(double, QUERY, 3, state.away.clear)
    points, vectors, _ = many(300)

    assert collection.search(vectors[:1], limit=1)[0][0].point.name == points[0].name
    assert sum(one.endswith("/points/query/batch") for one in double.requests) == 3


def test_with_one_copy_a_search_names_the_node(server: ServerStore, double: QdrantDouble) -> None:
    """If it does not come back, the error names the collection, the node and what would have helped; so for writes."""
    collection = sharded(server, replicas=1)
    double.cluster_state.away = {12}
    points, vectors, encodable = many(30)

    for call in (collection.count, lambda: collection.upsert(points, vectors, encodable)):
        with pytest.raises(
            ShardUnavailableError, match=r"shard of collection 'toy' .*node-12:6335.*2 replicas"
        ) as told:
            call()
        assert "docker compose" not in str(told.value)


def test_a_push_to_a_cluster_goes_on_without_a_node(
    server: ServerStore, double: QdrantDouble, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A collection is pushed to several shards with two copies, while one of the nodes goes away."""
    local = embedded(tmp_path_factory.mktemp("local") / "store")
    at_request(double, POINTS, 1, lambda: double.cluster_state.away.add(13))
    result = push_collection(NAME, to=server, store=local, placement=Placement(3, 2))

    assert result.names == 60
    check_same(server.open(NAME), local.open(NAME, read_only=True))
    local.close()
