"""A graph in memory, and the merge of its nodes that are one, with their edges, descriptions and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pearl_qdrant.resolution.names import NameRecord
from pearl_qdrant.resolution.resolution import Resolution, ResolvedName

Value = str | int | float | bool | tuple[str, ...] | None  # An attribute: a tuple is a list of the format's own


@dataclass(frozen=True, slots=True)
class Node:
    """A node: `key` is what edges call it, `name` what is resolved, `sources` the ids of the chunks or documents that
    it was found in, `attributes` all that the format has of it, by name.
    """

    key: str
    name: str
    type: str = ""
    description: str = ""
    sources: tuple[str, ...] = ()
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge between the keys of two nodes; edges of two labels are never merged."""

    source: str
    target: str
    label: str = ""
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rules:
    """What the attributes of a format mean, where several become one: numbers in `added` are added; of those in `kept`
    (ids, the name, the type) and of other values the first is kept; lists are united; texts are joined by the
    separator, each once.
    """

    added: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    separator: str = "\n"


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes and edges in the order of the file, and how attributes are merged; `header`: columns of a list of edges."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    is_directed: bool
    rules: Rules = Rules()
    header: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphReport:
    """What merging a graph did.

    Attributes:
        nodes, edges: How many there were, and are.
        within: Edges between two names of one node, which went away: they have no two ends any more.
        merged: Canonical name of each node of several names, with the names.
        asked: Pairs of names for review.
    """

    nodes: tuple[int, int]
    edges: tuple[int, int]
    within: tuple[Edge, ...]
    merged: Mapping[str, tuple[str, ...]]
    asked: int

    def to_text(self) -> str:
        lines = [
            f"nodes: {self.nodes[0]:,} before, {self.nodes[1]:,} after",
            f"edges: {self.edges[0]:,} before, {self.edges[1]:,} after",
            f"edges between two names of one node, which went away: {len(self.within):,}",
            f"pairs for review: {self.asked:,}",
        ]
        lines += [f"    {name}: {' | '.join(names)}" for name, names in self.merged.items()]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Merge:
    """A graph before and after, with the new key of each node, and the report."""

    before: Graph
    graph: Graph
    new_keys: Mapping[str, str]
    report: GraphReport


ADDED = ("aliases", "node_id", "probability")
"""Attributes of a node that was merged or linked: the names of all its nodes, its id, and how sure that is."""

NAME_ATTRIBUTES = frozenset(("name", "label", "title", "entity_name", "entity_id"))
"""Attributes that have the name of their node."""


SEVERAL = 5  # Neighbours that say alone what a node is: of five others of one thing 0.2 % are about another one


def name_records(graph: Graph) -> dict[str, list[NameRecord]]:
    """The names of a graph by the key of their node, once for each of its sources. Their context is its description and
    its neighbours; fewer than `SEVERAL` say nothing alone.
    """
    names = {node.key: node.name for node in graph.nodes}
    near: dict[str, dict[str, None]] = {}
    for edge in graph.edges:
        near.setdefault(edge.source, {})[names.get(edge.target, edge.target)] = None
        near.setdefault(edge.target, {})[names.get(edge.source, edge.source)] = None
    found = {}
    for node in graph.nodes:
        others = near.get(node.key, {})
        said = (node.description, *others) if node.description or len(others) >= SEVERAL else ()
        one = NameRecord(node.name, node.type, "", "; ".join(filter(None, said)))
        found[node.key] = [replace(one, source=source) for source in node.sources or ("",)]
    return found


def merge_graph(graph: Graph, resolution: Resolution) -> Merge:
    """One node for the nodes of one entity.

    The node that gave its name to the entity comes first: its key and its kept attributes stay. A node that a
    collection knows gets the name of its entity. Edges between two nodes of one entity go away, and are in the report.
    Edges that get the same ends, in either order where the graph has no directions, and the same label become one;
    edges that had the same ends before stay as they are.
    """
    groups: dict[str, list[tuple[Node, ResolvedName | None]]] = {}
    records = name_records(graph)
    for node in graph.nodes:
        row = resolution.row(records[node.key][0])
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
