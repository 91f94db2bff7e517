"""GraphRAG's output: tables of entities and relationships, and the tables that have their ids.

    entities.parquet          id, title, type, description, text_unit_ids, frequency, degree, ...
    relationships.parquet     id, source, target (titles), description, weight, combined_degree, text_unit_ids, ...
    text_units.parquet, communities.parquet   lists of entity_ids and relationship_ids

Merged entities keep the id of the one that gives the name. Degrees are counted again. Other files are copied as they
are; reports of communities still have the old names in their text.

Source: microsoft.github.io/graphrag/index/outputs.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pearl_qdrant.errors import FormatError
from pearl_qdrant.installing import install_command
from pearl_qdrant.resolution.graphs.records import ADDED, Edge, Graph, Merge, Node, Rules, Value

_ENTITIES = ("entities.parquet", "create_final_entities.parquet")
_RELATIONSHIPS = ("relationships.parquet", "create_final_relationships.parquet")
_WITH_IDS = ("text_units", "communities", "create_final_text_units", "create_final_communities")
_KEPT = frozenset("id human_readable_id title name type source target x y degree combined_degree level".split())
_ADDED = frozenset(("weight", "frequency"))


def is_graphrag(folder: Path) -> bool:
    """Whether a folder has GraphRAG's tables."""
    return any((folder / name).exists() for name in _ENTITIES)


def read_graphrag(folder: Path) -> Graph:
    """Read the tables of entities and relationships. Raises FormatError if pyarrow is not installed, a table is missing
    or has no titles.
    """
    entities, relationships = (_table(folder, names) for names in (_ENTITIES, _RELATIONSHIPS))
    title = "title" if entities and "title" in entities[0] else "name"
    nodes = [
        Node(
            *(str(row[title]), str(row[title]), str(row.get("type") or ""), str(row.get("description") or "")),
            *(tuple(row.get("text_unit_ids") or ()), row),
        )
        for row in entities
    ]
    edges = [Edge(str(row["source"]), str(row["target"]), "", row) for row in relationships]
    return Graph(tuple(nodes), tuple(edges), is_directed=True, rules=Rules(_ADDED, _KEPT, "\n"))


def _table(folder: Path, names: tuple[str, ...]) -> list[dict[str, Any]]:
    path = next((folder / name for name in names if (folder / name).exists()), None)
    if path is None:
        raise FormatError(str(folder), 1, f"{names[0]} is missing; is this the output folder of GraphRAG?")
    rows: list[dict[str, Any]] = _parquet(path).read_table(path).to_pylist()
    for row in rows:
        row.update({name: tuple(map(str, value)) for name, value in row.items() if isinstance(value, list)})
    needed = {"source", "target"} if names is _RELATIONSHIPS else set()
    if rows and (needed - rows[0].keys() or (not needed and not {"title", "name"} & rows[0].keys())):
        raise FormatError(str(path), 1, f"expected the columns of GraphRAG, found {', '.join(rows[0])}")
    return rows


def _parquet(path: Path) -> Any:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        message = f"Parquet files need pyarrow, which is not installed. Install it with: {install_command('arrow')}"
        raise FormatError(str(path), 1, message) from error
    return pq


def write_graphrag(folder: Path, out: Path, merge: Merge) -> None:
    """Copy the output of GraphRAG with the merged tables, and with the ids of those that are left.

    Args:
        folder: The folder that was read.
        out: A folder that does not exist.
        merge: What became of its graph.
    """
    shutil.copytree(folder, out)
    graph, before, new_keys = merge.graph, merge.before, merge.new_keys
    degree = Counter(end for edge in graph.edges for end in (edge.source, edge.target))
    titles = {node.key: node.name for node in graph.nodes}
    nodes = [_with(node.attributes, degree=degree[node.key]) for node in graph.nodes]
    edges = [
        _with(
            {**edge.attributes, "source": titles[edge.source], "target": titles[edge.target]},
            combined_degree=degree[edge.source] + degree[edge.target],
        )
        for edge in graph.edges
    ]
    _write(out, _ENTITIES, nodes, ADDED)
    _write(out, _RELATIONSHIPS, edges, ())
    ids = {str(node.attributes.get("id")): new_keys[node.key] for node in before.nodes}
    id_of = {node.key: str(node.attributes.get("id")) for node in graph.nodes}
    entity_ids = {old: id_of[key] for old, key in ids.items()}
    relationship_ids = _relationship_ids(graph, before, new_keys)
    for stem in _WITH_IDS:
        path = out / f"{stem}.parquet"
        if path.exists():
            _renumber(path, {"entity_ids": entity_ids, "relationship_ids": relationship_ids})


def _with(row: Mapping[str, Value], **counted: int) -> dict[str, Any]:
    return {**row, **{name: value for name, value in counted.items() if name in row}}


def _relationship_ids(graph: Graph, before: Graph, new_keys: Mapping[str, str]) -> dict[str, str]:
    """The id of the edge that each edge became; "" for those that went away."""
    left = {str(edge.attributes.get("id")) for edge in graph.edges}
    of_ends = {(edge.source, edge.target): str(edge.attributes.get("id")) for edge in graph.edges}
    found = {}
    for edge in before.edges:
        old = str(edge.attributes.get("id"))
        found[old] = old if old in left else of_ends.get((new_keys[edge.source], new_keys[edge.target]), "")
    return found


def _write(out: Path, names: tuple[str, ...], rows: list[dict[str, Any]], more: Sequence[str]) -> None:
    """Replace a table; its columns keep their types."""
    import pyarrow as pa

    path = next(out / name for name in names if (out / name).exists())
    pq = _parquet(path)
    schema = pq.read_schema(path).remove_metadata()
    for name in more:
        if name not in schema.names:
            schema = schema.append(pa.field(name, pa.float64() if name == "probability" else pa.string()))
    pq.write_table(pa.Table.from_pylist([_as_lists(row) for row in rows], schema=schema), path)


def _as_lists(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in row.items()}


def _renumber(path: Path, new_ids: Mapping[str, Mapping[str, str]]) -> None:
    import pyarrow as pa

    pq = _parquet(path)
    table = pq.read_table(path)
    rows = table.to_pylist()
    for row in rows:
        for column, changed in new_ids.items():
            if row.get(column) is not None:
                row[column] = list(
                    dict.fromkeys(new for one in row[column] if (new := changed.get(str(one), str(one))))
                )
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema.remove_metadata()), path)
