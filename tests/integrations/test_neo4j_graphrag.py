"""neo4j-graphrag: the component before a writer, and the resolver in a database. There is no Neo4j here: the driver is
a double that does on a graph in memory what the resolver's queries say; that they are valid Cypher, it cannot show.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from resolution_names import LetterEncoder

from pearl_qdrant.errors import OptionError

pytestmark = pytest.mark.slow
"""Importing neo4j-graphrag takes seconds."""


@pytest.fixture(autouse=True, scope="module")
def _installed() -> None:
    pytest.importorskip("neo4j_graphrag")


class MemoryDriver:
    """A driver double with nodes and relationships in memory."""

    def __init__(self) -> None:
        self._pool = SimpleNamespace(pool_config=SimpleNamespace())  # neo4j-graphrag writes its name there
        self.nodes: dict[str, dict[str, Any]] = {}
        self.edges: list[dict[str, Any]] = []
        self.queries: list[str] = []

    def add(self, label: str, **properties: Any) -> str:
        """Store an entity; its id."""
        key = f"4:db:{len(self.queries)}-{len(self.nodes)}"
        self.nodes[key] = {"id": key, "labels": ["__Entity__", label, "__KGBuilder__"], "properties": properties}
        return key

    def relate(self, source: str, type_: str, target: str, **properties: Any) -> None:
        """Store a relationship."""
        edge = {"source": source, "type": type_, "target": target, "properties": properties}
        self.edges.append({"id": f"5:db:{len(self.queries)}-{len(self.edges)}", **edge})

    def names(self) -> list[str]:
        """The names of all entities."""
        return sorted(node["properties"]["name"] for node in self.nodes.values())

    def facts(self) -> set[tuple[str, str, str]]:
        """All relationships, by the names of their ends."""
        name = {key: node["properties"]["name"] for key, node in self.nodes.items()}
        return {(name[edge["source"]], edge["type"], name[edge["target"]]) for edge in self.edges}

    def execute_query(self, query: str, given: dict[str, Any], database_: str | None = None) -> Any:
        """Do what a query of the resolver says."""
        from pearl_qdrant.integrations import neo4j_graphrag as ours

        self.queries.append(query)
        rows: list[dict[str, Any]] = []
        if query.startswith("MATCH (entity:__Entity__)"):
            rows = list(self.nodes.values())
        elif query == ours.READ:
            for key in given["ids"]:
                touching = [edge for edge in self.edges if key in (edge["source"], edge["target"])]
                rows.append({**self.nodes[key], "properties": dict(self.nodes[key]["properties"]),
                             "relationships": touching})  # fmt: skip
        elif query == ours.MERGE:
            self._merge(**given)
        elif query == ours.CREATE:
            rows = [{"id": self.add(given["labels"][1], **given["properties"])}]
        elif query == ours.RELATE:
            for one in given["relationships"]:
                self.relate(one["source"], one["type"], one["target"], **one["properties"])
        elif query == ours.UNRELATE:
            gone = [(one["source"], one["type"], one["target"]) for one in given["relationships"]]
            self.edges = [one for one in self.edges if (one["source"], one["type"], one["target"]) not in gone]
        else:
            assert query == ours.RESET
            self.nodes[given["id"]]["properties"] = given["properties"]
        return SimpleNamespace(records=rows)

    def _merge(self, ids: list[str], changes: dict[str, Any], aliases: list[str]) -> None:
        kept, *others = (self.nodes[key] for key in ids)
        for other in others:
            kept["properties"] = {**other["properties"], **kept["properties"]}
            del self.nodes[other["id"]]
        kept["properties"] |= {**changes, "aliases": aliases}
        moved = {}
        for edge in self.edges:
            ends = {end: kept["id"] if edge[end] in ids else edge[end] for end in ("source", "target")}
            if ends["source"] != ends["target"]:
                moved.setdefault((ends["source"], edge["type"], ends["target"]), {**edge, **ends})
        self.edges = list(moved.values())


@pytest.fixture
def driver() -> MemoryDriver:
    """A graph with two names of one person."""
    made = MemoryDriver()
    albert, a, princeton = (
        made.add("Person", name="Albert Einstein", born=1879),
        made.add("Person", name="A. Einstein", prize=1921),
        made.add("City", name="Princeton"),
    )
    made.relate(albert, "LIVED_IN", princeton)
    made.relate(a, "LIVED_IN", princeton, since=1933)
    made.relate(a, "WORKED_IN", princeton)
    made.relate(a, "IS", albert)
    return made


def test_nodes_of_a_database_are_merged_and_taken_apart(driver: MemoryDriver) -> None:
    """The resolver merges what means the same, keeps all names, and undoes a merge with all that was there."""
    from pearl_qdrant.integrations.merging import NameMerger
    from pearl_qdrant.integrations.neo4j_graphrag import SameEntityResolver

    resolver = SameEntityResolver(driver, NameMerger(encoder=LetterEncoder()))  # type: ignore[arg-type] # a double
    before = driver.facts()

    stats = asyncio.run(resolver.run())

    assert (stats.number_of_nodes_to_resolve, stats.number_of_created_nodes) == (3, 1)
    assert driver.names() == ["Albert Einstein", "Princeton"]
    person = next(node for node in driver.nodes.values() if "Person" in node["labels"])
    expected = {"name": "Albert Einstein", "born": 1879, "prize": 1921, "aliases": ["A. Einstein"]}
    assert person["properties"] == expected
    assert driver.facts() == {("Albert Einstein", verb, "Princeton") for verb in ("LIVED_IN", "WORKED_IN")}

    driver.relate(person["id"], "BORN_IN", driver.add("City", name="Ulm"))
    resolver.undo("A. Einstein")
    assert driver.facts() == {*before, ("Albert Einstein", "BORN_IN", "Ulm")}
    assert person["properties"] == {"name": "Albert Einstein", "born": 1879}
    with pytest.raises(OptionError, match="No node named"):
        resolver.undo("A. Einstein")
    assert asyncio.run(resolver.run()).number_of_created_nodes == 0


def test_a_dry_run_reads_the_database_alone(driver: MemoryDriver) -> None:
    """I see what would merge, and nothing but one reading query is sent."""
    from pearl_qdrant.integrations.merging import NameMerger
    from pearl_qdrant.integrations.neo4j_graphrag import SameEntityResolver

    merger = NameMerger(dry_run=True, encoder=LetterEncoder())
    resolver = SameEntityResolver(driver, merger, "WHERE entity.new", ["name", "title"])  # type: ignore[arg-type]
    asyncio.run(resolver.run())

    assert merger.report().startswith("A. Einstein -> Albert Einstein")
    (query,) = driver.queries
    assert query.startswith("MATCH (entity:__Entity__) WHERE entity.new RETURN")
    assert "{.`name`, .`title`}" in query


def test_the_base_class_of_neo4j_graphrag_asks_the_resolver(driver: MemoryDriver) -> None:
    """It is one of neo4j-graphrag's resolvers by similarity, which know it by its class and ask it about two texts."""
    from neo4j_graphrag.components.resolver import BasePropertySimilarityResolver

    from pearl_qdrant.integrations.merging import NameMerger
    from pearl_qdrant.integrations.neo4j_graphrag import SameEntityResolver

    resolver = SameEntityResolver(driver, NameMerger(encoder=LetterEncoder(), type_mode="off"))  # type: ignore[arg-type]
    asyncio.run(resolver.run())

    assert isinstance(resolver, BasePropertySimilarityResolver)
    assert resolver.compute_similarity("Albert Einstein", "A. Einstein") == 1
    assert resolver.compute_similarity("Albert Einstein", "Princeton") == 0


def test_nodes_are_merged_before_they_are_written() -> None:
    """In a pipeline the writer gets one node, with its relationships; chunks of text are left alone."""
    from neo4j_graphrag.components.base import Component
    from neo4j_graphrag.components.kg_writer import KGWriter, KGWriterModel
    from neo4j_graphrag.components.types import Neo4jGraph, Neo4jNode, Neo4jRelationship
    from neo4j_graphrag.experimental.pipeline import Pipeline

    from pearl_qdrant.integrations.merging import NameMerger
    from pearl_qdrant.integrations.neo4j_graphrag import EntityMerger

    written: list[Neo4jGraph] = []

    class Extractor(Component):
        """Gives what a language model would find."""

        async def run(self, found):  # type: ignore[no-untyped-def]
            """The graph."""
            return graph

        run.__annotations__.update({"found": bool, "return": Neo4jGraph})

    class Writer(KGWriter):
        """Keeps what it is to write."""

        async def run(self, graph):  # type: ignore[no-untyped-def]
            """Keep the graph."""
            written.append(Neo4jGraph.model_validate(graph))
            return KGWriterModel(status="SUCCESS")

        run.__annotations__.update({"graph": Neo4jGraph, "return": KGWriterModel})

    def write(merger: NameMerger) -> Neo4jGraph:
        pipeline = Pipeline()
        for name, component in (("extract", Extractor()), ("merge", EntityMerger(merger)), ("write", Writer())):
            pipeline.add_component(component, name)
        pipeline.connect("extract", "merge", {"graph": "extract"})
        pipeline.connect("merge", "write", {"graph": "merge"})
        asyncio.run(pipeline.run({"extract": {"found": True}}))
        return written[-1]

    nodes = [("1", "Person", "Albert Einstein"), ("2", "Person", "A. Einstein"), ("3", "Chunk", "A. Einstein")]
    edges = [("2", "IS", "1"), ("2", "FROM_CHUNK", "3"), ("1", "FROM_CHUNK", "3")]
    graph = Neo4jGraph(
        nodes=[Neo4jNode(id=key, label=label, properties={"name": name}) for key, label, name in nodes],
        relationships=[Neo4jRelationship(start_node_id=a, type=kind, end_node_id=b) for a, kind, b in edges],
    )

    assert write(NameMerger(dry_run=True, encoder=LetterEncoder())) == graph
    merger = NameMerger(encoder=LetterEncoder())
    merged = write(merger)
    assert [(node.id, node.properties) for node in merged.nodes] == [
        ("1", {"name": "Albert Einstein", "aliases": ["A. Einstein"]}),
        ("3", {"name": "A. Einstein"}),
    ]
    assert {(one.start_node_id, one.type, one.end_node_id) for one in merged.relationships} == {
        ("1", "FROM_CHUNK", "3")
    }
    merger.undo(["A. Einstein"])
    assert write(merger) == graph
