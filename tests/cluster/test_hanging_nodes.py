"""Nodes that hang: they accept connections and answer nothing. What is asked of whom is counted."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import Empty
from typing import Any

import httpx
import pytest
from cli_runner import Run
from double_fixtures import connect, empty_double, running_double, shared_store  # noqa: F401 (fixtures)
from edge_cases import wait_until
from qdrant_double import QdrantDouble
from qdrant_double_http import POINTS, Fault, Listener
from store_cases import manifest_of, many

from pearl_qdrant import EntityLinker, load_base
from pearl_qdrant.errors import StoreUnavailableError
from pearl_qdrant.settings import ServerAccess
from pearl_qdrant.store import Store
from pearl_qdrant.store.server import nodes as server_nodes

NAME = "toy"
QUERY = r"POST .*/points/query/batch$"


class Held:
    """Counts the requests that have no answer yet: what a clock would learn after a while."""

    def __init__(self, double: QdrantDouble, nodes: list[Listener]) -> None:
        self._double, self._nodes = double, nodes
        self.n_slow = 0

    def count(self) -> int:
        return self._double.n_hung + self.n_slow + sum(node.n_held for node in self._nodes)


@pytest.fixture
def nodes(double: QdrantDouble) -> Iterator[list[Listener]]:
    """Three nodes with the same points."""
    started = [Listener(double) for _ in range(3)]
    for node in started:
        node.start()
    yield started
    double.stopping.set()  # ends what hangs
    for node in started:
        node.stop()


@pytest.fixture(autouse=True)
def held(double: QdrantDouble, nodes: list[Listener], monkeypatch: pytest.MonkeyPatch) -> Held:
    """No node is silent for as long as it works: patience ends once for each request that is held."""
    counted = Held(double, nodes)

    class Answers(server_nodes._Answers):
        def __init__(self) -> None:
            super().__init__()
            self.n_seen = counted.count()
            self.n_probes = 0

        def ask(self, node: int, send: Callable[[], server_nodes.Outcome]) -> None:
            is_probe = isinstance(send, partial)
            self.n_probes += is_probe

            def sent() -> server_nodes.Outcome:
                try:
                    return send()
                finally:
                    self.n_probes -= is_probe

            super().ask(node, sent)

        def next(self) -> tuple[int, server_nodes.Outcome] | None:
            while True:
                try:
                    return self._queue.get(timeout=0.005)
                except Empty:
                    # What is asked whether it lives says so long before patience ends.
                    if counted.count() > self.n_seen and self.n_probes == 0 and self._queue.empty():
                        self.n_seen += 1
                        return None

    monkeypatch.setattr(server_nodes, "_Answers", Answers)
    monkeypatch.setattr(server_nodes, "PROBE_S", 0.2)
    return counted


@contextmanager
def slow(held: Held, double: QdrantDouble, match: str, until: Callable[[], bool]) -> Iterator[None]:
    """Answer requests that match only when something has happened."""
    answer = double.answer

    def later(method: str, path: str, body: bytes) -> Any:
        if re.match(match, f"{method} {path}"):
            held.n_slow += 1
            wait_until(until)
        return answer(method, path, body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(double, "answer", later)
        patch.setattr(server_nodes, "PROBE_S", 600.0)
        yield


def location(nodes: list[Listener]) -> str:
    """All addresses."""
    return ",".join(node.url for node in nodes)


PATIENCE_S, PROBE_S = server_nodes.PATIENCE_S, server_nodes.PROBE_S


def test_patience_is_short() -> None:
    """Two of three nodes may hang, and an answer takes 3 s; a node that hangs alone is named within 10 s."""
    assert 2 * PATIENCE_S <= 3
    assert PATIENCE_S + PROBE_S < 10


def test_links_go_on_beside_nodes_that_hang(nodes: list[Listener], tmp_path: Path, model: Path) -> None:
    """Of three nodes one, then a second one accepts and never answers: every link is answered by another node, while
    the request to the first one still hangs, and only the first link of each asks a node that hangs.
    """
    base = tmp_path / "base.tsv"
    base.write_text("".join(f"E{i}\tw{i} times\tORG\n" for i in range(9)), encoding="utf-8")
    load_base(base, "base", store=nodes[2].url, model=model)
    with EntityLinker.open("base", store=location(nodes)) as linker:
        for frozen in nodes[:2]:
            frozen.freeze()
            assert [linker.link(f"w{i} times").entity_id for i in range(5)] == [f"E{i}" for i in range(5)]
            assert frozen.n_held == 1
        assert [one.entity_id for one in linker.link_batch(f"w{i} times" for i in range(9))] == [
            f"E{i}" for i in range(9)
        ]
    assert [node.n_held for node in nodes] == [1, 1, 0]


def test_a_linker_opens_beside_a_node_that_hangs(nodes: list[Listener], run: Run, tmp_path: Path, model: Path) -> None:
    """A command that starts while the first address hangs asks the next one, for all that it needs."""
    base = tmp_path / "base.tsv"
    base.write_text("E1\tw1 times\n", encoding="utf-8")
    load_base(base, "base", store=nodes[1].url, model=model)
    nodes[0].freeze()
    outcome = run("link", "w1 times", "--collection", "base", "--json", "--store", location(nodes))

    assert outcome.status == 0, outcome.err
    assert outcome.lines()[0]["entity_id"] == "E1"
    assert nodes[0].n_held == 1


@pytest.mark.parametrize("n_asked", [1, 2])
def test_a_slow_answer_is_waited_for(nodes: list[Listener], double: QdrantDouble, held: Held, n_asked: int) -> None:
    """A server that works on a long search is asked whether it lives, and its answer counts. Of several nodes a second
    one is asked, and no third one while a node says that it lives.
    """
    store = connect(double.url if n_asked == 1 else location(nodes), tries=1, timeout=600.0)
    collection = store.create(manifest_of(NAME))
    points, vectors, encodable = many(10)
    collection.upsert(points, vectors, encodable)
    double.requests.clear()
    with slow(held, double, QUERY, lambda: double.requests.count("GET /") >= n_asked):
        assert collection.search(vectors[:1], limit=1)[0][0].point == points[0]
    assert sum(one.endswith("/query/batch") for one in double.requests) == n_asked


def test_a_late_answer_of_the_first_node_counts(nodes: list[Listener], double: QdrantDouble, held: Held) -> None:
    """A slow node that answers before the other one does is not asked in vain: the first answer is taken."""
    store = connect(location(nodes), tries=1, timeout=600.0)
    collection = store.create(manifest_of(NAME))
    points, vectors, encodable = many(10)
    collection.upsert(points, vectors, encodable)
    double.faults = [Fault("pass", match=QUERY), Fault("hang", match=QUERY)]
    with slow(held, double, QUERY, lambda: double.n_hung == 1):
        assert collection.search(vectors[:1], limit=1)[0][0].point == points[0]


def test_writes_leave_a_node_that_hangs(nodes: list[Listener], double: QdrantDouble, held: Held) -> None:
    """A write to a node that hangs goes to the next one, and nothing is lost; one that takes long is waited for."""
    store = connect(location(nodes), tries=1, timeout=600.0)
    collection = store.create(manifest_of(NAME))
    points, vectors, encodable = many(200)
    nodes[0].freeze()
    collection.upsert(points[:100], vectors[:100], encodable[:100])
    assert nodes[0].n_held == 1
    with slow(held, double, POINTS, lambda: "GET /" in double.requests[n_before:]):
        n_before = len(double.requests)
        collection.upsert(points[100:], vectors[100:], encodable[100:])

    assert collection.count() == 200
    assert double.upsert_sizes == [100, 100]


def test_the_only_node_that_hangs_is_named_soon(double: QdrantDouble, nodes: list[Listener]) -> None:
    """With one node that hangs, a single request is not tried again for two minutes: the error says that it hangs."""
    store = connect(nodes[0].url, timeout=3600.0, first_wait_s=0.001, budget_s=3600.0, connect_budget_s=0.0)
    collection = store.create(manifest_of(NAME))
    nodes[0].freeze()
    with pytest.raises(StoreUnavailableError, match=r"accepts connections, but answers nothing"):
        collection.search(many(1)[1], limit=1)
    with pytest.raises(StoreUnavailableError, match=r"after 1 try"):
        store.collections()
    assert nodes[0].n_held == 1  # it is first asked whether it lives


def test_all_nodes_that_hang_are_named(nodes: list[Listener]) -> None:
    """If no node answers, the error has all addresses, after one try of each."""
    store = connect(location(nodes), timeout=3600.0, connect_budget_s=0.0)
    for node in nodes:
        node.freeze()
    with pytest.raises(StoreUnavailableError, match=location(nodes)):
        store.collections()
    assert [node.n_held for node in nodes] == [1, 1, 1]


def test_a_node_that_answers_again_is_asked_again(nodes: list[Listener], double: QdrantDouble) -> None:
    """A node that was silent is asked last for a while: if all others go away, it is asked, and answers."""
    store = connect(location(nodes), tries=1, timeout=600.0)
    double.faults = [Fault("hang", match="GET /collections$")]
    assert store.collections() == []
    for node in nodes[1:]:
        node.stop()
    assert store.collections() == []
    store.close()


def test_closing_does_not_wait_for_a_node_that_hangs(nodes: list[Listener]) -> None:
    """A store is closed at once, though a request to a node that hangs has no answer yet."""
    store: Store = connect(location(nodes))
    nodes[0].freeze()
    assert store.collections() == []
    store.close()
    assert any(thread.name == "pearl-qdrant-node" and thread.daemon for thread in threading.enumerate())


def test_the_service_says_503_while_its_only_node_hangs(nodes: list[Listener], tmp_path: Path, model: Path) -> None:
    """A request is answered with 503 and the words that the store does not answer, before its own time is over."""
    from fastapi.testclient import TestClient

    from pearl_qdrant.service.app import create_app
    from pearl_qdrant.service.settings import ServiceSettings

    base = tmp_path / "base.tsv"
    base.write_text("E1\tw1 times\n", encoding="utf-8")
    load_base(base, "base", store=nodes[0].url, model=model)
    settings = ServiceSettings(
        store=nodes[0].url, timeout_s=600.0, store_wait_s=0.0, allowed_hosts=("testserver",), cache=str(tmp_path)
    )
    with TestClient(create_app(settings)) as client:
        body = {"mentions": ["w1 times"], "collection": "base"}
        assert client.post("/v1/link", json=body).status_code == 200
        nodes[0].freeze()
        answer = client.post("/v1/link", json=body)
        assert answer.status_code == 503, answer.text
        assert json.loads(answer.text)["error"] == "store_unavailable"


class _Late(httpx.BaseTransport):
    """A transport whose answer comes when it may; notes how often it was closed."""

    def __init__(self) -> None:
        self.is_asked, self.may_answer = threading.Event(), threading.Event()
        self.n_closed = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.is_asked.set()
        self.may_answer.wait()
        return httpx.Response(200)

    def close(self) -> None:
        self.n_closed += 1


def test_an_answer_after_the_end_leaves_no_connection() -> None:
    """A thread that waited for a slow node while the store was closed closes what it has opened since."""
    late = _Late()
    address = server_nodes.Address("http://a", "http://a:80", "a", is_encrypted=False)
    nodes = server_nodes.Nodes([address], late, server_nodes.Key(ServerAccess(), [address]))
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(nodes.handle_request, httpx.Request("GET", "http://a:80/"))
        late.is_asked.wait()
        nodes.close()
        late.may_answer.set()
        with pytest.raises(httpx.ConnectError, match="closed"):
            asked.result()
    assert late.n_closed == 2
