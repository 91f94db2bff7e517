"""Several addresses of one cluster, its shards and replicas, and nodes that go away and come back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from cli_runner import Run
from double_fixtures import connect, empty_double, running_double, shared_store  # noqa: F401 (fixtures)
from qdrant_double import QdrantDouble
from qdrant_double_http import POINTS, Fault, Kind, Listener
from store_cases import manifest_of, many
from transfer_cases import check_same, embedded

from pearl_qdrant import EntityLinker
from pearl_qdrant.errors import SettingsError, ShardUnavailableError, StoreUnavailableError
from pearl_qdrant.store import Collection, Placement, Store, open_store
from pearl_qdrant.transfer import push_collection

NAME = "toy"


@pytest.fixture
def nodes(double: QdrantDouble) -> Iterator[list[Listener]]:
    """Three nodes with the same points."""
    started = [Listener(double) for _ in range(3)]
    for node in started:
        node.start()
    yield started
    for node in started:
        node.stop()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base of two entities."""
    path = tmp_path / "base.tsv"
    path.write_text("E1\tw1 times\nE2\tw2 post\n", encoding="utf-8")
    return path


def location(nodes: list[Listener]) -> str:
    """All addresses."""
    return ",".join(node.url for node in nodes)


def test_reads_and_writes_go_on_while_each_node_in_turn_is_away(nodes: list[Listener]) -> None:
    """Any node may stop, also in the middle of a load: with one try each, no request is lost."""
    store = connect(location(nodes), tries=1)
    collection = store.create(manifest_of(NAME))
    points, vectors, encodable = many(300)
    with collection.writer() as writer:
        for i, node in enumerate(nodes):
            part = slice(100 * i, 100 * i + 50)
            writer.write(points[part], vectors[part], encodable[part])
            node.stop()
            rest = slice(100 * i + 50, 100 * i + 100)
            writer.write(points[rest], vectors[rest], encodable[rest])
            writer.flush()
            node.start()

    assert collection.count() == 300
    for node in nodes:
        node.stop()
        assert [hits[0].point.name for hits in collection.search(vectors[:5], limit=1)] == [
            point.name for point in points[:5]
        ]
        assert collection.delete_entities([points[-1].entity_id]) in (0, 2)
        node.start()
    store.close()


@pytest.mark.parametrize("kind", ["status", pytest.param("hang", marks=pytest.mark.slow), "drop", "apply_then_drop"])
def test_a_node_that_does_not_answer_is_left_for_another(
    nodes: list[Listener], double: QdrantDouble, kind: Kind
) -> None:
    """A node that says 503 while it starts, hangs or breaks off is left at once: reads and writes take one try."""
    store = connect(location(nodes), tries=1, timeout=2.0 if kind == "hang" else 60.0)
    collection = store.create(manifest_of(NAME))
    points, vectors, encodable = many(10)
    double.faults = [
        Fault(kind, match=match, status=503) for match in (POINTS, r".*/query/batch$", "GET /collections$")
    ]
    collection.upsert(points, vectors, encodable)

    assert collection.search(vectors[:1], limit=1)[0][0].point == points[0]
    assert store.collections() == [NAME]
    assert double.faults == []
    double.stopping.set()  # ends what hangs
    store.close()


def test_the_node_that_answered_is_asked_again(nodes: list[Listener], caplog: pytest.LogCaptureFixture) -> None:
    """One node serves all requests until it is away; that is said once."""
    nodes[0].stop()
    store = connect(location(nodes))
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            store.collections()

    assert nodes[1].n_connections > 0
    assert nodes[2].n_connections == 0
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"Qdrant at {nodes[0].url} does not answer" in line
    assert line.endswith(f"going on with {nodes[1].url}")
    store.close()


def test_without_any_node_the_error_names_all(nodes: list[Listener]) -> None:
    """If no node answers, the message has all addresses."""
    store = connect(location(nodes), tries=1)
    for node in nodes:
        node.stop()

    with pytest.raises(StoreUnavailableError, match=location(nodes)):
        store.collections()
    store.close()


def test_each_address_has_its_own_path_and_is_checked(double: QdrantDouble, nodes: list[Listener]) -> None:
    """Addresses may have spaces and slashes at their ends; each needs its http://, and none a key in plain text."""
    store = connect(f"{nodes[0].url}/ , {nodes[1].url}")
    assert store.location == f"{nodes[0].url},{nodes[1].url}"
    assert store.collections() == []
    store.close()

    with pytest.raises(SettingsError, match=r"no URL: 'b:6333'.*http://a:6333,http://b:6333"):
        open_store("http://a:6333,b:6333")
    with pytest.raises(SettingsError, match="over plain HTTP to qdrant-2"):
        open_store(f"{nodes[0].url},http://qdrant-2:6333", api_key="secret")


def test_a_base_is_loaded_and_linked_over_all_nodes(
    run: Run, nodes: list[Listener], base: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ingest` and `link` take all addresses, by option or environment; a linker goes on without its node."""
    loaded = run("ingest", str(base), "--model", str(model), "--store", location(nodes))
    assert loaded.status == 0, loaded.err
    nodes[0].stop()
    monkeypatch.setenv("PEARL_QDRANT_STORE", location(nodes))
    linked = run("link", "w1 times", "--collection", "base", "--json")
    assert linked.lines()[0]["entity_id"] == "E1"

    with EntityLinker.open("base", store=[node.url for node in nodes]) as linker:
        before = linker.link("w2 post")
        nodes[1].stop()
        after = linker.link("w2 post")
    assert before.entity_id == after.entity_id == "E2"
    assert np.isclose(before.probability, after.probability)


def test_doctor_shows_each_address(run: Run, nodes: list[Listener], model: Path) -> None:
    """Each address has a line; one that is away is a failure, and the others are looked at."""
    nodes[1].stop()
    outcome = run("doctor", "--json", "--store", location(nodes), "--model", str(model))
    found = [(line["state"], str(line["found"])) for line in outcome.lines() if line["check"] == "address"]

    assert outcome.status == 1
    assert [state for state, _ in found] == ["ok", "fail", "ok"]
    assert found[0][1] == f"{nodes[0].url}: Qdrant 1.19.0"
    assert found[1][1].startswith(f"{nodes[1].url} does not answer")


PLACEMENT = ("shard_number", "replication_factor", "write_consistency_factor")


@pytest.mark.parametrize(
    "options, created", [(("--set", "shards=6", "--set", "replicas=2"), [6, 2]), ((), [])], ids=["set", "default"]
)
def test_shards_and_replicas_are_set(
    double: QdrantDouble, run: Run, base: Path, model: Path, options: tuple[str, ...], created: list[int]
) -> None:
    """`ingest` sends the given settings alone, so that the cluster's defaults apply to the rest."""
    outcome = run("ingest", str(base), "--model", str(model), "--store", double.url, *options)

    assert outcome.status == 0, outcome.err
    assert [double.created["base"][name] for name in PLACEMENT if name in double.created["base"]] == created


def test_a_collection_that_exists_keeps_its_shards(double: QdrantDouble, run: Run, base: Path, model: Path) -> None:
    """Changing the replicas of an existing collection is a clear error and is not ignored."""
    common = ("ingest", str(base), "--model", str(model), "--store", double.url)
    assert run(*common).status == 0
    again = run(*common, "--set", "replicas=2")

    assert again.status == 2
    assert "--restart" in again.err


def test_the_embedded_store_has_no_shards(run: Run, base: Path, model: Path) -> None:
    """Shards for an embedded store are an error, and no collection is created."""
    outcome = run("ingest", str(base), "--model", str(model), "--set", "shards=2")

    assert outcome.status == 1
    assert "no shards or replicas" in outcome.err
    assert run("collections", "list").out == ""


NODES = (11, 12, 13)
QUERY = r"POST .*/points/query/batch$"


@pytest.fixture
def server(double: QdrantDouble, shared: Store) -> Store:
    """A store on a cluster of three nodes, which is empty."""
    double.cluster_state.nodes = NODES
    return shared


def sharded(server: Store, *, replicas: int) -> Collection:
    """An empty collection of three shards."""
    return server.create(manifest_of(NAME), Placement(3, replicas))


def load(collection: Collection, n: int = 300) -> None:
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


def test_with_two_copies_loads_and_searches_go_on(server: Store, double: QdrantDouble) -> None:
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


def test_with_one_copy_a_load_waits(server: Store, double: QdrantDouble) -> None:
    """With one copy, a load tries again until the node is back, and loses nothing."""
    collection, state = sharded(server, replicas=1), double.cluster_state
    state.away = {13}
    at_request(double, POINTS, 8, state.away.clear)
    patient = connect(double.url, first_wait_s=0.001, max_wait_s=0.002, budget_s=60)
    load(patient.open(NAME))
    patient.close()

    assert collection.count() == 300
    assert len(double.upsert_sizes) < len([one for one in double.requests if one.endswith("/points")])


def test_with_one_copy_a_search_waits(server: Store, double: QdrantDouble) -> None:
    """With one copy, a search is tried again at once and then waits for the node; it answers when it is back."""
    collection, state = sharded(server, replicas=1), double.cluster_state
    load(collection)
    state.away = {12}
    at_request(double, QUERY, 3, state.away.clear)
    points, vectors, _ = many(300)

    assert collection.search(vectors[:1], limit=1)[0][0].point.name == points[0].name
    assert sum(one.endswith("/points/query/batch") for one in double.requests) == 3


def test_with_one_copy_a_search_names_the_node(server: Store, double: QdrantDouble) -> None:
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
    server: Store, double: QdrantDouble, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A collection is pushed to several shards with two copies, while one of the nodes goes away."""
    local = embedded(tmp_path_factory.mktemp("local") / "store")
    at_request(double, POINTS, 1, lambda: double.cluster_state.away.add(13))
    result = push_collection(NAME, to=server, store=local, placement=Placement(3, 2))

    assert result.names == 60
    check_same(server.open(NAME), local.open(NAME, read_only=True))
    local.close()
