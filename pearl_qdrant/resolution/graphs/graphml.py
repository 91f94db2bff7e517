"""GraphML, as networkx, Gephi and yEd write it, and LightRAG and nano-graphrag keep it.

The name of a node is its attribute `name`, `label` or `title`, else its id; nano-graphrag puts it into quotes. The file
keeps its keys, ids and attributes; a merged node gets the attribute `aliases`.

Source: Brandes et al. 2002, "GraphML Progress Report"; http://graphml.graphdrawing.org/.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from pearl_qdrant.errors import FormatError
from pearl_qdrant.resolution.graphs.records import Edge, Graph, Merge, Node, Rules, Value

SEPARATOR = "<SEP>"
"""What LightRAG and nano-graphrag put between the texts of several chunks."""

_NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
_NAMES = ("name", "label", "title", "entity_name")
_TYPES = ("entity_type", "type", "category")
_DESCRIPTIONS = ("description", "desc")
_SOURCES = ("source_id", "sources")
_LABELS = ("label", "relation", "relationship", "predicate", "type")
_ADDED = frozenset(("weight", "count", "frequency"))
_KEPT = frozenset(("\0id", "entity_id", "id", "created_at", "order", "rank", "clusters", "truncate", *_NAMES, *_TYPES))
RULES = Rules(_ADDED, _KEPT, SEPARATOR)
"""What the attributes of LightRAG's graphs and similar ones mean."""


def read_graphml(path: Path) -> Graph:
    """Read a graph.

    Raises:
        FormatError: If it is no GraphML, has a document type (which could hide more than it shows), or graphs in nodes.
    """
    text = path.read_bytes()
    if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
        raise FormatError(str(path), 1, "a GraphML file with a document type is not read; remove its <!DOCTYPE ...>")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314
    except ElementTree.ParseError as error:
        raise FormatError(str(path), error.position[0], f"not XML ({error})") from error
    graphs = root.findall(f"{_tag(root)}graph")
    if len(graphs) != 1 or root.findall(f".//{_tag(root)}node/{_tag(root)}graph"):
        raise FormatError(str(path), 1, "expected one graph without graphs in its nodes")
    tag = _tag(root)
    keys = {key.get("id", ""): (key.get("attr.name", key.get("id", "")), key.get("attr.type", "string"))
            for key in root.findall(f"{tag}key")}  # fmt: skip
    nodes = [node_of(one.get("id", ""), _attributes(one, keys, tag)) for one in graphs[0].findall(f"{tag}node")]
    edges = []
    for one in graphs[0].findall(f"{tag}edge"):
        attributes = _attributes(one, keys, tag)
        label = next((str(attributes[name]) for name in _LABELS if attributes.get(name)), "")
        if one.get("id") is not None:
            attributes["\0id"] = one.get("id")
        edges.append(Edge(one.get("source", ""), one.get("target", ""), label, attributes))
    unknown = {end for edge in edges for end in (edge.source, edge.target)} - {node.key for node in nodes}
    if unknown:
        raise FormatError(str(path), 1, f"an edge has an end that is no node: {min(unknown)!r}")
    is_directed = graphs[0].get("edgedefault", "directed") == "directed"
    return Graph(tuple(nodes), tuple(edges), is_directed, RULES)


def node_of(key: str, attributes: Mapping[str, Value], *, name: str | None = None, type_: str = "") -> Node:
    """A node by its attributes.

    Args:
        key: What edges call it.
        attributes: All of them.
        name, type_: What it is called, and its type, where no attribute says so; the name is the key if none is given.
    """

    def first(columns: Sequence[str], default: str) -> str:
        return next((str(attributes[column]) for column in columns if attributes.get(column)), default)

    return Node(
        *(key, unquoted(first(_NAMES, key if name is None else name)), unquoted(first(_TYPES, type_))),
        first(_DESCRIPTIONS, "").replace(SEPARATOR, "\n"),
        tuple(part for part in first(_SOURCES, "").split(SEPARATOR) if part),
        attributes,
    )


def unquoted(text: str) -> str:
    """A text without the quotes that nano-graphrag leaves around names."""
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] == '"' else text


def _tag(root: ElementTree.Element) -> str:
    return root.tag[: root.tag.index("}") + 1] if root.tag.startswith("{") else ""


def _attributes(one: ElementTree.Element, keys: Mapping[str, tuple[str, str]], tag: str) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for data in one.findall(f"{tag}data"):
        name, type_ = keys.get(data.get("key", ""), (data.get("key", ""), "string"))
        found[name] = _value(data.text or "", type_)
    return found


def _value(text: str, type_: str) -> Value:
    try:
        if type_ in ("int", "long"):
            return int(text)
        if type_ in ("float", "double"):
            return float(text)
    except ValueError:
        return text
    return text.strip().lower() in ("true", "1") if type_ == "boolean" else text


def write_graphml(given: object, out: Path, merge: Merge) -> None:
    """Write a merged graph with its attributes; a type that all values of an attribute have is that of its key.

    Args:
        given: What was read; it is not needed.
        out: The file.
        merge: What became of its graph.
    """
    graph = merge.graph
    root = ElementTree.Element("graphml", xmlns=_NAMESPACE)
    ids: dict[tuple[str, str], str] = {}
    for domain, every in (("node", graph.nodes), ("edge", graph.edges)):
        for name in dict.fromkeys(name for one in every for name in one.attributes if name != "\0id"):
            ids[(domain, name)] = f"d{len(ids)}"
            values = [one.attributes[name] for one in every if one.attributes.get(name) is not None]
            ElementTree.SubElement(
                root, "key", {"id": ids[(domain, name)], "for": domain, "attr.name": name, "attr.type": _type(values)}
            )
    element = ElementTree.SubElement(root, "graph", edgedefault="directed" if graph.is_directed else "undirected")
    for node in graph.nodes:
        _data(ElementTree.SubElement(element, "node", id=node.key), "node", node.attributes, ids)
    for edge in graph.edges:
        ends = {"source": edge.source, "target": edge.target}
        own_id = edge.attributes.get("\0id")
        one = ElementTree.SubElement(element, "edge", {**({"id": str(own_id)} if own_id is not None else {}), **ends})
        _data(one, "edge", edge.attributes, ids)
    ElementTree.indent(root)
    ElementTree.ElementTree(root).write(out, encoding="utf-8", xml_declaration=True)


def _type(values: Sequence[Value]) -> str:
    for type_, name in ((bool, "boolean"), (int, "long"), (float, "double")):
        if values and all(type(value) is type_ for value in values):
            return name
    return "double" if values and all(type(value) in (int, float) for value in values) else "string"


def _data(
    parent: ElementTree.Element, domain: str, attributes: Mapping[str, Value], ids: Mapping[tuple[str, str], str]
) -> None:
    for name, value in attributes.items():
        if value is not None and name != "\0id":
            text = SEPARATOR.join(map(str, value)) if isinstance(value, tuple) else str(value)
            text = text.lower() if isinstance(value, bool) else text
            ElementTree.SubElement(parent, "data", key=ids[(domain, name)]).text = text
