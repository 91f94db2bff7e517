"""`resolve_graph` over Neo4j: made records, by a double of the driver's sessions; no server is asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from resolution_names import LetterEncoder

from pearl_qdrant.errors import OptionError
from pearl_qdrant.resolution import resolve, resolve_graph

RESOLVE = partial(resolve, encoder=LetterEncoder())

NODES = [
    ("4:x:0", ["__Entity__", "Person"], {"name": "Niels Bohr", "description": "A physicist.", "born": [1885]}),
    ("4:x:1", ["Person", "Laureate"], {"name": "niels bohr", "description": "From Denmark."}),
    ("4:x:2", ["City"], {"id": "Copenhagen"}),
    ("4:x:3", ["Chunk"], {"id": "Niels Bohr", "text": "Niels Bohr lived in Copenhagen."}),
]
EDGES = [
    ("4:x:0", "4:x:2", "LIVED_IN", {"weight": 2}),
    ("4:x:1", "4:x:2", "LIVED_IN", {"weight": 1}),
    ("4:x:3", "4:x:1", "MENTIONS", {}),
]


class DriverError(Exception):
    """What the driver raises."""


class Server:
    """Databases by name; a double of the driver, its sessions and transactions, which are one here."""

    def __init__(self) -> None:
        self.databases: dict[str | None, tuple[list[Any], list[Any]]] = {"physics": (NODES, EDGES)}
        self.opened: list[tuple[str, object]] = []
        self.n_committed = 0
        self.is_away = False
        self._at: str | None = None

    def driver(self, address: str, *, auth: object) -> Server:
        """Open a driver."""
        self.opened.append((address, auth))
        return self

    def session(self, *, database: str | None) -> Server:
        """Open a session."""
        self._at = database
        return self

    def begin_transaction(self) -> Server:
        """Begin to write."""
        return self

    def commit(self) -> None:
        """Keep what was written."""
        self.n_committed += 1

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def run(self, query: str, *, rows: list[Mapping[str, Any]] = []) -> list[dict[str, Any]]:  # noqa: B006
        """Answer the queries that are asked."""
        if self.is_away:
            raise DriverError("connection refused")
        nodes, edges = self.databases.setdefault(self._at, ([], []))
        if query.startswith("MATCH (n)"):
            return [dict(zip(("key", "labels", "properties"), one, strict=True)) for one in nodes]
        if query.startswith("MATCH (a)"):
            return [dict(zip(("source", "target", "label", "properties"), one, strict=True)) for one in edges]
        labels = query[query.index("`") + 1 : query.rindex("`")].split("`:`")
        if "CREATE (n" in query:
            start = len(nodes)
            nodes += [(f"new {start + i}", labels, row["properties"]) for i, row in enumerate(rows)]
            return [{"key": row["key"], "written": f"new {start + i}"} for i, row in enumerate(rows)]
        edges += [(row["source"], row["target"], labels[0], row["properties"]) for row in rows]
        return []


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Server:
    """A double in the place of the driver, in an empty current folder."""
    found = Server()
    errors = ModuleType("neo4j.exceptions")
    errors.DriverError = errors.Neo4jError = DriverError  # type: ignore[attr-defined]
    driver = ModuleType("neo4j")
    driver.GraphDatabase = SimpleNamespace(driver=found.driver)  # type: ignore[attr-defined]
    driver.exceptions = errors  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "neo4j", driver)
    monkeypatch.setitem(sys.modules, "neo4j.exceptions", errors)
    monkeypatch.setenv("NEO4J_PASSWORD", "secret")
    monkeypatch.delenv("NEO4J_USERNAME", raising=False)
    monkeypatch.chdir(tmp_path)
    return found


def test_a_database_is_merged_into_an_empty_one(server: Server) -> None:
    """Nodes, labels, weights and descriptions are joined, chunks and their edges stay, and the input is only read."""
    found = resolve_graph("neo4j://localhost:7687/physics", RESOLVE, out="neo4j://localhost:7687/merged")

    assert server.opened[0] == ("neo4j://localhost:7687", ("neo4j", "secret"))
    assert server.databases["physics"] == (NODES, EDGES)
    nodes, edges = server.databases["merged"]
    bohr = next(one for one in nodes if one[2].get("name") == "Niels Bohr")
    assert bohr[1] == ["__Entity__", "Person", "Laureate"]
    assert bohr[2]["description"] == "A physicist.<SEP>From Denmark."
    assert (bohr[2]["born"], bohr[2]["aliases"]) == ([1885], "Niels Bohr<SEP>niels bohr")
    assert next(one for one in nodes if one[1] == ["Chunk"])[2] == NODES[3][2]
    keys = {one[2].get("name") or one[2].get("id"): one[0] for one in nodes if one[1] != ["Chunk"]}
    chunk = next(one[0] for one in nodes if one[1] == ["Chunk"])
    assert sorted(edges) == sorted(
        [(bohr[0], keys["Copenhagen"], "LIVED_IN", {"weight": 3}), (chunk, bohr[0], "MENTIONS", {})]
    )
    assert server.n_committed == 1
    assert found.path == "neo4j://localhost:7687/merged"
    assert found.nodes.name == "physics.resolved.nodes.tsv"
    assert json.loads(Path("physics.resolved.report.json").read_text())["nodes"] == [4, 3]


def test_a_database_is_written_to_graphml_by_default(server: Server) -> None:
    """Without a place to write to, the merged graph is a file in the current folder."""
    networkx = pytest.importorskip("networkx")
    found = resolve_graph("bolt://localhost/physics", RESOLVE)

    assert found.path == Path("physics.resolved.graphml")
    graph = networkx.read_graphml(found.path)
    assert graph.nodes["4:x:0"][":labels"] == "__Entity__<SEP>Person<SEP>Laureate"
    assert graph.edges["4:x:0", "4:x:2"]["weight"] == 3


def test_a_database_with_nodes_is_not_written_to(server: Server) -> None:
    """The output is an empty database; a file is not written to one; a server that is away is an error."""
    with pytest.raises(OptionError, match="has nodes"):
        resolve_graph("neo4j://localhost/physics", RESOLVE, out="neo4j://localhost/physics")
    with pytest.raises(OptionError, match="Only the graph of a database"):
        resolve_graph("edges.tsv", RESOLVE, out="neo4j://localhost/physics")
    server.is_away = True
    with pytest.raises(OptionError, match="connection refused"):
        resolve_graph("neo4j://localhost/physics", RESOLVE)
    assert server.n_committed == 0


def test_the_driver_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the driver the error says how to install it."""
    monkeypatch.setitem(sys.modules, "neo4j", None)
    with pytest.raises(OptionError, match=r"pearl-qdrant\[neo4j\]|\.\[neo4j\]"):
        resolve_graph("neo4j://localhost", RESOLVE)
