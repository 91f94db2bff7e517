"""neo4j-graphrag: one node for the nodes that mean the same, before a writer stores them, or in the database.

    from pearl_qdrant.integrations.neo4j_graphrag import EntityMerger, SameEntityResolver

    pipeline.add_component(EntityMerger(), "merge")                         # between an extractor and a writer
    await SameEntityResolver(driver, NameMerger(dry_run=True)).run()        # in place of `FuzzyMatchResolver`

The type of a name is the label of its node. The resolver needs APOC, as those of neo4j-graphrag. Needs the extra
`neo4j-graphrag`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from neo4j_graphrag.components.base import Component
from neo4j_graphrag.components.resolver import BasePropertySimilarityResolver
from neo4j_graphrag.components.types import (
    DEFAULT_CHUNK_NODE_LABEL,
    DEFAULT_DOCUMENT_NODE_LABEL,
    Neo4jGraph,
    Neo4jNode,
    ResolutionStats,
)
from pydantic import validate_call

from pearl_qdrant.integrations.merging import Merged, NameMerger, latest
from pearl_qdrant.resolution import NameRecord

if TYPE_CHECKING:
    from neo4j import Driver

RESERVED = frozenset(("__Entity__", "__KGBuilder__"))
TEXTS = frozenset((DEFAULT_CHUNK_NODE_LABEL, DEFAULT_DOCUMENT_NODE_LABEL))


class EntityMerger(Component):
    """Makes one node of the nodes of a graph that mean the same; the first value of each property stays, and `aliases`
    has the other names. The given graph is not changed.
    """

    def __init__(self, merger: NameMerger | None = None, name_property: str = "name") -> None:
        """Make a component; a merger of yours has the file of nodes, the dry run and what it did."""
        self.merger, self.name_property = merger or NameMerger(), name_property

    @validate_call
    async def run(self, graph: Neo4jGraph) -> Neo4jGraph:
        """The graph with the merged nodes; relationships between two names of one node go away."""
        nodes = {node.id: node for node in graph.nodes}
        records = {
            key: NameRecord(name, node.label, context=text_of(node.properties.get("description")))
            for key, node in nodes.items()
            if node.label not in TEXTS and isinstance(name := node.properties.get(self.name_property), str)
        }
        merged = await asyncio.to_thread(self.merger.merge, records)
        if self.merger.dry_run:
            return graph
        for one in merged:
            nodes[one.key] = self._joined(one, nodes)
        kept = {key: one.key for one in merged for key in one.others}
        edges = []
        for edge in graph.relationships:
            start, end = (kept.get(key, key) for key in (edge.start_node_id, edge.end_node_id))
            if start != end or edge.start_node_id == edge.end_node_id:
                edges.append(edge.model_copy(update={"start_node_id": start, "end_node_id": end}))
        return Neo4jGraph(nodes=[node for key, node in nodes.items() if key not in kept], relationships=edges)

    def _joined(self, one: Merged[str], nodes: Mapping[str, Neo4jNode]) -> Neo4jNode:
        properties = {k: v for key in reversed((one.key, *one.others)) for k, v in nodes[key].properties.items()}
        properties |= {self.name_property: one.name, **one.added}
        return nodes[one.key].model_copy(update={"properties": properties})


def text_of(value: object) -> str:
    """A property as text; "" for others."""
    return value if isinstance(value, str) else ""


class SameEntityResolver(BasePropertySimilarityResolver):
    """Merges the entity nodes of a database that mean the same. Of the properties, the first is the name, the others
    say more of it. What this object merged, it can take apart again.

    Attributes:
        before: The nodes of each merge as they were, with their relationships: the one that stayed first.
    """

    def __init__(
        self,
        driver: Driver,
        merger: NameMerger | None = None,
        filter_query: str | None = None,
        resolve_properties: list[str] | None = None,
        neo4j_database: str | None = None,
    ) -> None:
        """Make a resolver; a merger of yours has the precision, the file of nodes and the dry run."""
        super().__init__(driver, filter_query, resolve_properties, neo4j_database=neo4j_database)
        self.merger = merger or NameMerger()
        self.before = list[list[dict[str, Any]]]()
        self._ids: dict[str, str] = {}  # what a node of `before` is now

    def compute_similarity(self, text_a: str, text_b: str) -> float:
        """1 for two names of one node of the last run, else 0; `run` resolves all names at once and does not ask."""
        node = self.merger.resolution.node(text_a)
        return float(node is not None and node == self.merger.resolution.node(text_b))

    async def run(self) -> ResolutionStats:
        """Merge the nodes; a dry run only reads them, and `merger.report()` has what would merge."""
        match = f"MATCH (entity:__Entity__) {self.filter_query or ''}"
        wanted = ", ".join(f".`{one}`" for one in self.resolve_properties)
        rows = self._query(f"{match} RETURN elementId(entity) AS id, labels(entity) AS labels, "
                           f"entity {{{wanted}}} AS properties")  # fmt: skip
        merged = await asyncio.to_thread(self.merger.merge, {row["id"]: self._record(row) for row in rows})
        done = [one for one in merged if one.others]
        for one in done:
            self._merge(one)
        return ResolutionStats(number_of_nodes_to_resolve=len(rows), number_of_created_nodes=len(done))

    def undo(self, name: str) -> None:
        """Take the merge of a name apart, in the database and for later runs. What the node got since stays with it.
        Raises OptionError if this object merged no node of that name, or all had the same name.
        """
        kept, *others = self.merger.take_apart(name, self.before, self._record)
        own = {_ends(one) for one in self._relationships([kept])}
        self._query(UNRELATE, relationships=[one for one in self._relationships(others) if _ends(one) not in own])
        for other in others:
            (row,) = self._query(CREATE, labels=other["labels"], properties=other["properties"])
            self._ids[other["id"]] = row["id"]
        self._query(RELATE, relationships=self._relationships(others))
        self._query(RESET, id=latest(kept["id"], self._ids), properties=kept["properties"])

    def _merge(self, one: Merged[str]) -> None:
        ids = [one.key, *one.others]
        before = {row["id"]: dict(row) for row in self._query(READ, ids=ids)}
        self.before.append([before[key] for key in ids])
        changes = {self.resolve_properties[0]: one.name, **one.added}
        self._query(MERGE, ids=ids, changes=changes, aliases=one.aliases)
        self._ids.update(dict.fromkeys(one.others, one.key))

    def _record(self, row: Mapping[str, Any]) -> NameRecord:
        name, *more = (text_of(row["properties"].get(one)) for one in self.resolve_properties)
        return NameRecord(name, min(set(row["labels"]) - RESERVED, default=""), context=" ".join(filter(None, more)))

    def _relationships(self, nodes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The relationships that nodes had, each once, with the ids that their ends have now."""
        every = {one["id"]: one for node in nodes for one in node["relationships"]}
        ends = ("source", "target")
        return [{**one, **{end: latest(one[end], self._ids) for end in ends}} for one in every.values()]

    def _query(self, query: str, **parameters: Any) -> list[Any]:
        return list(self.driver.execute_query(query, parameters, database_=self.neo4j_database).records)


def _ends(relationship: Mapping[str, Any]) -> tuple[str, str, str]:
    return relationship["source"], relationship["type"], relationship["target"]


READ = """
MATCH (n) WHERE elementId(n) IN $ids
RETURN elementId(n) AS id, labels(n) AS labels, properties(n) AS properties, [
    (n)-[r]-() | {id: elementId(r), source: elementId(startNode(r)), type: type(r), properties: properties(r),
                  target: elementId(endNode(r))}
] AS relationships
"""
MERGE = """
UNWIND $ids AS id
MATCH (n) WHERE elementId(n) = id
WITH collect(n) AS nodes
CALL apoc.refactor.mergeNodes(nodes, {properties: 'discard', mergeRels: true, produceSelfRel: false}) YIELD node
WITH node, [one IN coalesce(node.aliases, []) WHERE NOT one IN $aliases] AS known
SET node += $changes, node.aliases = known + $aliases
"""
UNRELATE = """
UNWIND $relationships AS one
MATCH (a)-[r]->(b) WHERE elementId(a) = one.source AND elementId(b) = one.target AND type(r) = one.type
DELETE r
"""
CREATE = "CALL apoc.create.node($labels, $properties) YIELD node RETURN elementId(node) AS id"
RELATE = """
UNWIND $relationships AS one
MATCH (a) WHERE elementId(a) = one.source
MATCH (b) WHERE elementId(b) = one.target
CALL apoc.create.relationship(a, one.type, one.properties, b) YIELD rel
RETURN count(rel) AS count
"""
RESET = "MATCH (n) WHERE elementId(n) = $id SET n = $properties"
