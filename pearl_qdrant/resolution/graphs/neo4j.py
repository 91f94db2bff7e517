"""A graph in Neo4j, read through its driver, and written to an empty database, or to GraphML.

    neo4j://localhost:7687/movies      the scheme and host of the driver, and a database; without one the user's own

The name of a node is its property `name`, `label`, `title`, `entity_name`, `entity_id` or `id`, its type the property
`entity_type` and the like, else its first label that no builder adds to all. Nodes of chunks, documents and
communities, and nodes without a name, stay as they are. Labels of merged nodes are united.

The user and the password are those of the environment, as Neo4j names them: `NEO4J_USERNAME` and `NEO4J_PASSWORD`.

Sources: neo4j.com/docs/python-manual, and the labels of neo4j-graphrag-python and langchain-neo4j.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from pearl_qdrant.errors import OptionError
from pearl_qdrant.installing import install_command
from pearl_qdrant.resolution.graphs.graphml import RULES, node_of
from pearl_qdrant.resolution.graphs.records import Edge, Graph, Merge, Node, Value

LABELS = ":labels"  # The attribute of a node that has its labels

_SCHEMES = frozenset(f"{protocol}{security}" for protocol in ("neo4j", "bolt") for security in ("", "+s", "+ssc"))
_NAMES = ("entity_id", "id")
_NO_THINGS = frozenset(("Chunk", "Document", "__Chunk__", "__Document__", "__Community__"))
_NO_TYPES = frozenset(("Entity", "Node", "base"))
_WRITTEN = 10_000  # Nodes or edges that one query writes

_READ_NODES = "MATCH (n) RETURN elementId(n) AS key, labels(n) AS labels, properties(n) AS properties"
_READ_EDGES = (
    "MATCH (a)-[r]->(b) "
    "RETURN elementId(a) AS source, elementId(b) AS target, type(r) AS label, properties(r) AS properties"
)
_ANY_NODE = "MATCH (n) RETURN elementId(n) AS key LIMIT 1"
_WRITE_NODES = (
    "UNWIND $rows AS row CREATE (n{labels}) SET n = row.properties RETURN row.key AS key, elementId(n) AS written"
)
_WRITE_EDGES = (
    "UNWIND $rows AS row MATCH (a) WHERE elementId(a) = row.source MATCH (b) WHERE elementId(b) = row.target "
    "CREATE (a)-[r{labels}]->(b) SET r = row.properties"
)


def is_neo4j(graph: object) -> bool:
    """Whether a graph is given by the address of a Neo4j database."""
    return isinstance(graph, str) and "://" in graph and urlsplit(graph).scheme in _SCHEMES


def database_of(address: str) -> str | None:
    """The database of an address, or None."""
    return urlsplit(address).path.strip("/") or None


@contextmanager
def _session(address: str, option: str) -> Iterator[Any]:
    """An open session; what the driver raises is an error about the option."""
    try:
        import neo4j
        from neo4j.exceptions import DriverError, Neo4jError
    except ImportError as error:
        raise OptionError(
            option, f"Neo4j needs its driver, which is not installed. Install it with: {install_command('neo4j')}"
        ) from error
    server = urlsplit(address)._replace(path="").geturl()
    user, password = os.environ.get("NEO4J_USERNAME", "neo4j"), os.environ.get("NEO4J_PASSWORD")
    try:
        with (
            neo4j.GraphDatabase.driver(server, auth=(user, password) if password else None) as driver,
            driver.session(database=database_of(address)) as session,
        ):
            yield session
    except (DriverError, Neo4jError) as error:
        raise OptionError(
            option, f"{server} says: {error}. Is it running, and are NEO4J_USERNAME and NEO4J_PASSWORD those of it?"
        ) from error


def read_neo4j(address: str) -> Graph:
    """Read a whole database. Raises OptionError if the driver is not installed, or the database does not answer."""
    with _session(address, "graph") as session:
        nodes = [_node(record) for record in session.run(_READ_NODES)]
        edges = [
            Edge(record["source"], record["target"], record["label"], _attributes(record["properties"]))
            for record in session.run(_READ_EDGES)
        ]
    return Graph(tuple(nodes), tuple(edges), is_directed=True, rules=RULES)


def _node(record: Mapping[str, Any]) -> Node:
    labels, attributes = record["labels"], _attributes(record["properties"])
    name = next((str(attributes[column]) for column in _NAMES if attributes.get(column)), "")
    types = [label for label in labels if label not in _NO_TYPES and not label.startswith("__")]
    attributes = {**attributes, LABELS: tuple(labels)}
    if not _NO_THINGS.isdisjoint(labels):
        return Node(record["key"], "", attributes=attributes)
    return node_of(record["key"], attributes, name=name, type_=types[0] if types else "")


def _attributes(properties: Mapping[str, Any]) -> dict[str, Value]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in properties.items()}


def write_neo4j(address: str, merge: Merge) -> None:
    """Write a merged graph to a database without nodes, in one transaction: all of it, or nothing. Raises OptionError
    if the database has nodes, or does not answer.
    """
    graph = merge.graph
    with _session(address, "out") as session, session.begin_transaction() as transaction:
        if list(transaction.run(_ANY_NODE)):
            raise OptionError("out", f"{address} has nodes; give an empty database, so that none of them is changed.")
        written: dict[str, str] = {}
        for labels, nodes in _by(graph.nodes, lambda node: node.attributes.get(LABELS) or ()):
            rows = [{"key": node.key, "properties": _properties(node.attributes)} for node in nodes]
            for record in _run(transaction, _WRITE_NODES, labels, rows):
                written[record["key"]] = record["written"]
        for label, edges in _by(graph.edges, lambda edge: (edge.label or "RELATED",)):
            ends = [{"source": written[edge.source], "target": written[edge.target]} for edge in edges]
            rows = [{**one, "properties": _properties(edge.attributes)} for one, edge in zip(ends, edges, strict=True)]
            _run(transaction, _WRITE_EDGES, label, rows)
        transaction.commit()


def _by(items: Sequence[Any], labels_of: Any) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """Nodes or edges by their labels, which a query cannot have as parameters; not too many at once."""
    groups: dict[tuple[str, ...], list[Any]] = {}
    for item in items:
        groups.setdefault(labels_of(item), []).append(item)
    for labels, group in groups.items():
        for start in range(0, len(group), _WRITTEN):
            yield labels, group[start : start + _WRITTEN]


def _run(transaction: Any, query: str, labels: Sequence[str], rows: Sequence[object]) -> list[Any]:
    quoted = "".join(":`" + label.replace("`", "``") + "`" for label in labels)
    return list(transaction.run(query.replace("{labels}", quoted), rows=rows))


def _properties(attributes: Mapping[str, Value]) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in attributes.items()
        if name != LABELS and value is not None
    }
