"""GraphML and lists of edges.

GraphML as networkx, Gephi and yEd write it, and LightRAG and nano-graphrag keep it.

The name of a node is its attribute `name`, `label` or `title`, else its id; nano-graphrag puts it into quotes. The file
keeps its keys, ids and attributes; a merged node gets the attribute `aliases`.

Source: Brandes et al. 2002, "GraphML Progress Report"; http://graphml.graphdrawing.org/.

Lists of edges: TSV or CSV with an edge a row.

With a header, columns like `source` and `target` are the ends (`source_type` and `target_type` their types), one like
`relation` the label, one like `weight` a number that is added. Without one, two columns are the ends, three are
subject, relation and object, or the ends and a number.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from pearl_qdrant.cells import table_line
from pearl_qdrant.errors import FormatError
from pearl_qdrant.resolution.graphs.records import Edge, Graph, Merge, Node, Rules, Value

SEPARATOR = "<SEP>"  # What LightRAG and nano-graphrag put between the texts of several chunks

_NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
_NAMES = ("name", "label", "title", "entity_name")
_TYPES = ("entity_type", "type", "category")
_DESCRIPTIONS = ("description", "desc")
_SOURCES = ("source_id", "sources")
_LABELS = ("label", "relation", "relationship", "predicate", "type")
_ADDED = frozenset(("weight", "count", "frequency"))
_KEPT = frozenset(("\0id", "entity_id", "id", "created_at", "order", "rank", "clusters", "truncate", *_NAMES, *_TYPES))
RULES = Rules(_ADDED, _KEPT, SEPARATOR)  # What the attributes of LightRAG's graphs and similar ones mean


def read_graphml(path: Path) -> Graph:
    """Read a graph. Raises FormatError if it is no GraphML, has a document type (which could hide more than it shows),
    or graphs in nodes.
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


def node_of(key: str, attributes: Mapping[str, Value]) -> Node:
    """A node by its attributes; its key is its name where none of them says so."""

    def first(columns: Sequence[str], default: str = "") -> str:
        return next((str(attributes[column]) for column in columns if attributes.get(column)), default)

    return Node(
        *(key, unquoted(first(_NAMES, key)), unquoted(first(_TYPES))),
        first(_DESCRIPTIONS).replace(SEPARATOR, "\n"),
        tuple(part for part in first(_SOURCES).split(SEPARATOR) if part),
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
    """Write a merged graph with its attributes; a type that all values of an attribute have is that of its key."""
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


SOURCES = ("source", "src", "src_id", "from", "head", "subject", "source_name", "start", "node1")
TARGETS = ("target", "tgt", "tgt_id", "to", "tail", "object", "target_name", "end", "node2")
LABELS = ("relation", "predicate", "label", "relationship", "edge", "type", "rel")
WEIGHTS = ("weight", "count", "frequency")
_FOUND_IN = ("source_id", "document", "chunk", "doc_id")


def read_edge_list(path: Path) -> Graph:
    """Read a list of edges. Raises FormatError if a row has fewer than two cells, or another number than the first."""
    rows = _rows(path)
    if not rows:
        raise FormatError(str(path), 1, "the list of edges is empty")
    columns, has_header = _columns(path, rows)
    source, target = _one_of(columns, SOURCES), _one_of(columns, TARGETS)
    label = _one_of(columns, LABELS)
    found_in = _one_of(columns, _FOUND_IN)
    nodes: dict[str, Node] = {}
    edges = []
    for number, cells in enumerate(rows[has_header:], 1 + has_header):
        if len(cells) != len(columns):
            raise FormatError(str(path), number, f"expected {len(columns)} cells, found {len(cells)}")
        row = dict(zip(columns, cells, strict=True))
        ends: list[str] = []
        for end in (source, target):
            name, type_ = row[end or ""], row.get(f"{end}_type", "")
            key = f"{name}\0{type_}" if type_ else name
            sources = (row[found_in],) if found_in and row[found_in] else ()
            known = nodes.get(key)
            more = sources if known is None else tuple(dict.fromkeys((*known.sources, *sources)))
            nodes[key] = Node(key, name, type_, sources=more)
            ends.append(key)
        attributes: dict[str, Value] = {column: _number(row[column], column) for column in columns}
        edges.append(Edge(ends[0], ends[1], row[label] if label else "", attributes))
    kept = frozenset(column for column in (source, target, label, f"{source}_type", f"{target}_type") if column)
    rules = Rules(frozenset(WEIGHTS), kept, "; ")
    return Graph(tuple(nodes.values()), tuple(edges), True, rules, tuple(columns) if has_header else ())


def write_edge_list(given: Path, out: Path, merge: Merge) -> None:
    """Write the edges in the form in which they were read."""
    rows = _written_rows(merge.graph)
    with out.open("w", encoding="utf-8", newline="") as file:
        if given.suffix.lower() == ".csv":
            csv.writer(file, lineterminator="\n").writerows(rows)
        else:
            file.writelines(table_line(row) + "\n" for row in rows)


def _written_rows(graph: Graph) -> Iterator[Sequence[str]]:
    nodes = {node.key: node for node in graph.nodes}
    if graph.header:
        yield graph.header
    for edge in graph.edges:
        row = dict(edge.attributes)
        names = list(row)
        source, target = _one_of(names, SOURCES), _one_of(names, TARGETS)
        for end, key in ((source, edge.source), (target, edge.target)):
            row[end or ""] = nodes[key].name
            if f"{end}_type" in row:
                row[f"{end}_type"] = nodes[key].type
        yield [
            "" if value is None else f"{value:.15g}" if isinstance(value, float) else str(value)
            for value in row.values()
        ]


def _rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        if path.suffix.lower() != ".csv":
            return [line.rstrip("\r\n").split("\t") for line in file if line.strip()]
        reader = csv.reader(file)
        try:
            return [cells for cells in reader if cells]
        except csv.Error as error:
            raise FormatError(str(path), reader.line_num, f"not CSV ({error})") from error


def _columns(path: Path, rows: list[list[str]]) -> tuple[list[str], bool]:
    first = [cell.strip().lower() for cell in rows[0]]
    if _one_of(first, SOURCES) and _one_of(first, TARGETS):
        return first, True
    if len(first) == 2:
        return ["source", "target"], False
    if len(first) == 3:
        is_weighted = all(isinstance(_number(cells[-1], "weight"), float) for cells in rows if len(cells) == 3)
        return (["source", "target", "weight"] if is_weighted else ["source", "relation", "target"]), False
    raise FormatError(
        str(path), 1, f"no header with source and target, and {len(first)} cells where two or three make an edge"
    )


def _one_of(columns: Sequence[str], known: Sequence[str]) -> str | None:
    return next((column for column in known if column in columns), None)


def _number(cell: str, column: str) -> Value:
    if column not in WEIGHTS:
        return cell
    try:
        return float(cell)
    except ValueError:
        return cell
