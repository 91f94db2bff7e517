"""Several addresses of one cluster: reads and writes go on with the next node where one is away."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cli_runner import Run
from double_fixtures import connect, empty_double, running_double  # noqa: F401 (fixtures)
from qdrant_double import QdrantDouble
from qdrant_double_http import POINTS, Fault, Kind, Listener
from store_cases import manifest_of, many

from pearl_qdrant import EntityLinker
from pearl_qdrant.errors import SettingsError, StoreUnavailableError
from pearl_qdrant.settings import ServerAccess
from pearl_qdrant.store.open import open_store
from pearl_qdrant.store.server.errors import RetryPolicy
from pearl_qdrant.store.server.store import ServerStore

NAME = "toy"
AT_ONCE = RetryPolicy(tries=1)


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
    store = connect(location(nodes), retry=AT_ONCE)
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
    store = connect(location(nodes), retry=AT_ONCE, timeout=2.0 if kind == "hang" else 60.0)
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
    store = connect(location(nodes), retry=AT_ONCE)
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
        ServerStore.connect(f"{nodes[0].url},http://qdrant-2:6333", ServerAccess("secret"))


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


def test_doctor_shows_each_address(run: Run, nodes: list[Listener]) -> None:
    """Each address has a line; one that is away is a failure, and the others are looked at."""
    nodes[1].stop()
    outcome = run("doctor", "--json", "--store", location(nodes))
    found = [(line["state"], str(line["found"])) for line in outcome.lines() if line["check"] == "address"]

    assert outcome.status == 1
    assert [state for state, _ in found] == ["ok", "fail", "ok"]
    assert found[0][1] == f"{nodes[0].url}: Qdrant 1.19.0"
    assert found[1][1].startswith(f"{nodes[1].url} does not answer")


PLACEMENT = ("shard_number", "replication_factor", "write_consistency_factor")


@pytest.mark.parametrize(
    "options, created", [(("--shards", "6", "--replicas", "2"), [6, 2]), ((), [])], ids=["set", "default"]
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
    again = run(*common, "--replicas", "2")

    assert again.status == 2
    assert "--restart" in again.err


def test_the_embedded_store_has_no_shards(run: Run, base: Path, model: Path) -> None:
    """Shards for an embedded store are an error, and no collection is created."""
    outcome = run("ingest", str(base), "--model", str(model), "--shards", "2")

    assert outcome.status == 1
    assert "no shards or replicas" in outcome.err
    assert run("collections", "list").out == ""
