"""Lists of edges: TSV or CSV with an edge a row.

With a header, columns like `source` and `target` are the ends (`source_type` and `target_type` their types), one like
`relation` the label, one like `weight` a number that is added. Without one, two columns are the ends, three are
subject, relation and object, or the ends and a number.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from pearl_qdrant.cells import table_line
from pearl_qdrant.errors import FormatError
from pearl_qdrant.resolution.graphs.records import Edge, Graph, Merge, Node, Rules, Value

SOURCES = ("source", "src", "src_id", "from", "head", "subject", "source_name", "start", "node1")
TARGETS = ("target", "tgt", "tgt_id", "to", "tail", "object", "target_name", "end", "node2")
LABELS = ("relation", "predicate", "label", "relationship", "edge", "type", "rel")
WEIGHTS = ("weight", "count", "frequency")
_FOUND_IN = ("source_id", "document", "chunk", "doc_id")


def read_edge_list(path: Path) -> Graph:
    """Read a list of edges.

    Raises:
        FormatError: If a row has another number of cells than the first one, or there are fewer than two.
    """
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
    """Write the edges in the form in which they were read.

    Args:
        given: The file that was read.
        out: The file.
        merge: What became of its graph.
    """
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
