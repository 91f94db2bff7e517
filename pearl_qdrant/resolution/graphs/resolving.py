"""`resolve_graph`: a graph in its own format, with one node for each thing.

Merges the nodes of a graph that are one, with their edges, descriptions and weights.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pearl_qdrant.errors import OptionError
from pearl_qdrant.resolution.graphs.folders import GRAPH_FILE, read_folder, write_folder
from pearl_qdrant.resolution.graphs.graphml import read_edge_list, read_graphml, write_edge_list, write_graphml
from pearl_qdrant.resolution.graphs.neo4j import database_of, is_neo4j, read_neo4j, write_neo4j
from pearl_qdrant.resolution.graphs.parquet import is_graphrag, read_graphrag, write_graphrag
from pearl_qdrant.resolution.graphs.records import Edge, Graph, GraphReport, Merge, Node, Rules, Value
from pearl_qdrant.resolution.records import NameRecord, ResolvedName
from pearl_qdrant.resolution.resolution import Resolution
from pearl_qdrant.resolution.resolving import resolve

NODES, REVIEW, REPORT = "nodes.tsv", "review.tsv", "report.json"

Place = str | os.PathLike[str]


@dataclass(frozen=True)
class MergedGraph:
    """A merged graph that was written.

    Attributes:
        graph: Its nodes and edges.
        resolution: The node of each name, for review and undo.
        report: What was merged, and what went away.
        path: The file or folder, or the address of the database.
        nodes, review: Where the nodes of the names, and the pairs for review, were written.
    """

    graph: Graph
    resolution: Resolution
    report: GraphReport
    path: Path | str
    nodes: Path
    review: Path


def resolve_graph(
    graph: Place, resolve_names: Callable[[list[NameRecord]], Resolution] = resolve, *, out: Place | None = None
) -> MergedGraph:
    """Resolve the names of a graph, merge its nodes and edges, and write it beside the input in the same format.

    The formats are GraphML, a list of edges (TSV or CSV), a working folder of LightRAG or nano-graphrag, the output
    folder of GraphRAG, and a database of Neo4j (`neo4j.py`, with user and password of the environment). Beside the
    merged graph come `nodes.tsv`, `review.tsv` and `report.json`: in the folder that is written, or with the name of
    the file before theirs. The input is not changed.

    Args:
        graph: The file or folder, or the address of a database: `neo4j://localhost:7687/movies`.
        resolve_names: `resolve`, or with its options: `functools.partial(resolve, precision=0.99)`.
        out: The file or folder to write; default is the input's name with `.resolved` in it. For a database it is a
            GraphML file in the current folder, by default, or the address of an empty database.

    Raises:
        FormatError: If the graph is in none of the formats, or damaged.
        OptionError: If the output is the input, or a folder or database that this did not write; or if a database does
            not answer.
    """
    is_database, to_database = is_neo4j(graph), is_neo4j(out)
    if to_database and not is_database:
        raise OptionError("out", "Only the graph of a database is written to a database; give a file or folder.")
    path = Path(default_out(graph) if out is None or to_database else out)
    before: Graph
    write: Callable[[Path, Path, Merge], None] = write_graphml
    if is_database:
        before = read_neo4j(str(graph))
    else:
        if path.resolve() == Path(graph).resolve():
            raise OptionError("out", f"{path} is the graph itself; give another place for the merged one.")
        read, write = _format_of(Path(graph))
        before = read(Path(graph))
    is_folder = not is_database and Path(graph).is_dir()
    if is_folder and path.exists() and not (path / REPORT).exists():
        raise OptionError("out", f"{path} exists and is not a merged graph. Remove it, or give another place.")
    resolution = resolve_names(list(name_records(before)))
    merge = merge_graph(before, resolution)
    if to_database:
        write_neo4j(str(out), merge)
        new = path
    else:
        new = path.with_name(f".new.{path.name}")  # a run that ends early leaves no half of a graph
        shutil.rmtree(new, ignore_errors=True)
        write(Path(graph), new, merge)
    tables = [new / name if is_folder else path.with_name(f"{path.stem}.{name}") for name in (NODES, REVIEW, REPORT)]
    resolution.write(tables[0], review=tables[1])
    report = json.dumps(asdict(merge.report), ensure_ascii=False, indent=2, default=str)
    tables[2].write_text(report, encoding="utf-8")
    if new != path:
        if is_folder:
            shutil.rmtree(path, ignore_errors=True)
        new.replace(path)
    nodes, review = (path / one.name if is_folder else one for one in tables[:2])
    return MergedGraph(merge.graph, resolution, merge.report, str(out) if to_database else path, nodes, review)


def default_out(graph: Place) -> Path:
    """Where a merged graph is written."""
    if is_neo4j(graph):
        return Path(f"{database_of(str(graph)) or 'neo4j'}.resolved.graphml")
    path = Path(graph)
    return path.with_name(f"{path.stem}.resolved{path.suffix}" if path.suffix else f"{path.name}.resolved")


def _format_of(given: Path) -> tuple[Callable[[Path], Graph], Callable[[Path, Path, Merge], None]]:
    """What reads and writes the format of a file or folder."""
    if given.is_dir():
        if is_graphrag(given):
            return read_graphrag, write_graphrag
        if (given / GRAPH_FILE).exists():
            return read_folder, write_folder
        raise OptionError(
            "graph",
            f"{given} has neither {GRAPH_FILE} (LightRAG, nano-graphrag) nor entities.parquet (GraphRAG: its output "
            f"folder).",
        )
    if not given.exists():
        raise OptionError("graph", f"{given} does not exist; give a file, a folder, or an address like neo4j://HOST.")
    if given.suffix.lower() in (".graphml", ".xml"):
        return read_graphml, write_graphml
    return read_edge_list, write_edge_list


ADDED = ("aliases", "node_id", "probability")
"""Attributes of a node that was merged or linked: the names of all its nodes, its id, and how sure that is."""

NAME_ATTRIBUTES = frozenset(("name", "label", "title", "entity_name", "entity_id"))
"""Attributes that have the name of their node."""


def name_records(graph: Graph) -> Iterable[NameRecord]:
    """The names of a graph, once for each source of a node."""
    for node in graph.nodes:
        for source in node.sources or ("",):
            yield NameRecord(node.name, node.type, source, node.description)


def merge_graph(graph: Graph, resolution: Resolution) -> Merge:
    """One node for the nodes of one entity.

    The node that gave its name to the entity comes first: its key and its kept attributes stay. A node that a
    collection knows gets the name of its entity. Edges between two nodes of one entity go away, and are in the report.
    Edges that get the same ends, in either order where the graph has no directions, and the same label become one;
    edges that had the same ends before stay as they are.
    """
    rows = {(one.name, one.type): one for one in resolution.names}
    groups: dict[str, list[tuple[Node, ResolvedName | None]]] = {}
    for node in graph.nodes:
        row = rows.get((" ".join(node.name.split()), node.type.strip()))
        groups.setdefault(f"alone {node.key}" if row is None else row.node_id, []).append((node, row))
    keys = {node.key for node in graph.nodes}
    nodes, new_keys, merged = [], {}, {}
    for group in groups.values():
        first = next((node for node, row in group if row is not None and node.name == row.canonical_name), group[0][0])
        ordered = [first, *(node for node, _ in group if node is not first)]
        row = group[0][1]
        if row is not None and (len(group) > 1 or row.entity_id is not None):
            name = row.canonical_name
            aliases = tuple(dict.fromkeys(node.name for node in ordered if node.name != name))
            first = _joined(
                ordered, row, graph.rules, [name, *aliases], min(one.probability for _, one in group if one)
            )
            if name != first.name and (_key(first, name) == first.key or _key(first, name) not in keys):
                first = _renamed(first, name)
                keys.add(first.key)
            if aliases:
                merged[first.name] = aliases
        new_keys.update({node.key: first.key for node in ordered})
        nodes.append(first)
    edges, within = _merge_edges(graph, new_keys)
    report = GraphReport(
        (len(graph.nodes), len(nodes)), (len(graph.edges), len(edges)), tuple(within), merged, len(resolution.review)
    )
    return Merge(graph, replace(graph, nodes=tuple(nodes), edges=tuple(edges)), new_keys, report)


def _joined(nodes: Sequence[Node], row: ResolvedName, rules: Rules, names: Sequence[str], probability: float) -> Node:
    """The first node with what the others have, and what is known of it."""
    attributes = join_attributes([node.attributes for node in nodes], rules)
    known = [attributes.get(ADDED[0]), rules.separator.join(names) if len(names) > 1 else None]
    added = (join_values(known, rules), row.node_id, round(probability, 4))
    return replace(nodes[0], attributes={**attributes, **dict(zip(ADDED, added, strict=True))})


def _key(node: Node, name: str) -> str:
    """The key of a node with another name: where it is the name, in quotes or not, it changes, too."""
    return node.key.replace(node.name, name) if node.key.strip('"') == node.name else node.key


def _renamed(node: Node, name: str) -> Node:
    attributes = {
        column: name if value == node.name and column in NAME_ATTRIBUTES else value
        for column, value in node.attributes.items()
    }
    return replace(node, key=_key(node, name), name=name, attributes=attributes)


def _merge_edges(graph: Graph, new_keys: Mapping[str, str]) -> tuple[list[Edge], list[Edge]]:
    """The edges between new nodes, and those that are within one."""
    groups: dict[tuple[str, ...], list[Edge]] = {}
    within = []
    for edge in graph.edges:
        source, target = new_keys.get(edge.source, edge.source), new_keys.get(edge.target, edge.target)
        if source == target and edge.source != edge.target:
            within.append(edge)
            continue
        ends = (source, target) if graph.is_directed else (min(source, target), max(source, target))
        groups.setdefault((*ends, edge.label), []).append(edge)
    edges = []
    for group in groups.values():
        ends_before = {(edge.source, edge.target) for edge in group}
        moved = [replace(edge, source=new_keys.get(edge.source, edge.source),
                         target=new_keys.get(edge.target, edge.target)) for edge in group]  # fmt: skip
        if len(ends_before) == 1:
            edges += moved
        else:
            edges.append(
                replace(moved[0], attributes=join_attributes([edge.attributes for edge in group], graph.rules))
            )
    return edges, within


def join_attributes(every: Sequence[Mapping[str, Value]], rules: Rules) -> dict[str, Value]:
    """The attributes of several nodes or edges as those of one."""
    names = dict.fromkeys(name for one in every for name in one)
    joined: dict[str, Value] = {}
    for name in names:
        values = [one[name] for one in every if one.get(name) not in (None, "")]
        if name in rules.kept:
            joined[name] = values[0] if values else None
        elif name in rules.added and all(isinstance(value, (int, float)) for value in values):
            joined[name] = sum(value for value in values if isinstance(value, (int, float)))
        else:
            joined[name] = join_values(values, rules)
    return joined


def join_values(values: Sequence[Value], rules: Rules) -> Value:
    """Several values of one attribute as one: texts joined, lists united, else the first."""
    given = [value for value in values if value not in (None, "")]
    if given and all(isinstance(value, tuple) for value in given):
        return tuple(dict.fromkeys(item for value in given if isinstance(value, tuple) for item in value))
    if given and all(isinstance(value, str) for value in given):
        pieces = [piece for value in given for piece in str(value).split(rules.separator)]
        return rules.separator.join(dict.fromkeys(piece for piece in pieces if piece))
    return given[0] if given else None
