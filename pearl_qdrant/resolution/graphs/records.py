"""A graph in memory: nodes and edges with their attributes as their format has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Value = str | int | float | bool | tuple[str, ...] | None
"""An attribute: a tuple is a list of the format's own."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node.

    Attributes:
        key: What edges call it; distinct in its graph.
        name: What is resolved.
        type: In the graph's own words, or "".
        description: Or "".
        sources: Ids of the chunks or documents that it was found in.
        attributes: All that the format has of it, by name, those above among them.
    """

    key: str
    name: str
    type: str = ""
    description: str = ""
    sources: tuple[str, ...] = ()
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge.

    Attributes:
        source, target: Keys of nodes.
        label: Its relation, or ""; edges of two labels are never merged.
        attributes: All else that the format has of it.
    """

    source: str
    target: str
    label: str = ""
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rules:
    """What the attributes of a format mean, where several become one.

    Texts are joined by the separator, each once; lists are united; of other values the first is kept.

    Attributes:
        added: Numbers that are added: weights and counts.
        kept: Attributes of which the first is kept: ids, the name, the type.
        separator: Between texts.
    """

    added: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    separator: str = "\n"


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes and edges.

    Attributes:
        nodes, edges: In the order of the file.
        is_directed: Whether source and target of an edge are told apart.
        rules: How attributes are merged.
        header: Columns of a list of edges; none if it has no header.
    """

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
        """The report in words."""
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
    """A graph and what became of it.

    Attributes:
        before: As it was read.
        graph: With one node for each thing.
        new_keys: The new key of each node.
        report: What was done.
    """

    before: Graph
    graph: Graph
    new_keys: Mapping[str, str]
    report: GraphReport
