"""Working folders of LightRAG, nano-graphrag and GraphRAG: the graph, and what else has names or ids of its nodes.

    graph_chunk_entity_relation.graphml     the graph
    vdb_entities.json, vdb_relationships.json   a vector for each (nano-vectordb): `entity_name`; `src_id`, `tgt_id`
    kv_store_full_entities.json, kv_store_full_relations.json, kv_store_entity_chunks.json,
    kv_store_relation_chunks.json           which names a document has, and which chunks a name has
    entities.parquet, relationships.parquet     of GraphRAG; text_units.parquet and communities.parquet have their ids

Of merged entities the vector or id of the one that gives the name is kept. Other files, reports of communities and
cached answers among them, are copied as they are.

Sources: github.com/HKUDS/LightRAG (operate.py, kg/nano_vector_db_impl.py), github.com/gusye1234/nano-graphrag,
microsoft.github.io/graphrag/index/outputs.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import md5
from pathlib import Path
from typing import Any

import numpy as np

from pearl_qdrant.binary_tables import open_table
from pearl_qdrant.errors import FormatError
from pearl_qdrant.resolution.graphs.graphml import SEPARATOR, unquoted, write_graphml
from pearl_qdrant.resolution.graphs.records import ADDED, Edge, Graph, Merge, Node, Rules, Value

GRAPH_FILE = "graph_chunk_entity_relation.graphml"


def write_folder(folder: Path, out: Path, merge: Merge) -> None:
    """Copy a working folder to a new one, with the merged graph, and the new names in what is kept by name."""
    shutil.copytree(folder, out)
    write_graphml(folder, out / GRAPH_FILE, merge)
    names = {**{unquoted(old): unquoted(new) for old, new in merge.new_keys.items()}, **merge.new_keys}
    for file, change in _CHANGES.items():
        path = out / file
        if path.exists():
            try:
                content = json.loads(path.read_text("utf-8"))
            except ValueError as error:
                raise FormatError(str(folder / file), 1, f"not JSON ({error})") from error
            path.write_text(json.dumps(change(content, names), ensure_ascii=False), encoding="utf-8")


def _entities(content: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    def changed(row: dict[str, Any]) -> dict[str, Any] | None:
        old = row.get("entity_name", "")
        return row if names.get(old, old) == old else None

    return _vectors(content, changed)


def _relationships(content: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    seen: set[tuple[str, ...]] = set()

    def changed(row: dict[str, Any]) -> dict[str, Any] | None:
        old = (row.get("src_id", ""), row.get("tgt_id", ""))
        source, target = (names.get(end, end) for end in old)
        ends = tuple(sorted((source, target)))
        if ends in seen or (source == target and old[0] != old[1]):
            return None
        seen.add(ends)
        if (source, target) == old:
            return row
        digest = md5((source + target).encode(), usedforsecurity=False).hexdigest()
        return {**row, "__id__": f"rel-{digest}", "src_id": source, "tgt_id": target}

    # Rows whose ends keep their names come first: their vector and id are right as they are.
    rows = content.get("data", [])
    order = sorted(
        range(len(rows)),
        key=lambda i: any(names.get(rows[i].get(end, ""), rows[i].get(end, "")) != rows[i].get(end, "")
                          for end in ("src_id", "tgt_id")),
    )  # fmt: skip
    return _vectors(content, changed, order)


def _vectors(
    content: dict[str, Any], changed: Callable[[dict[str, Any]], dict[str, Any] | None], order: list[int] | None = None
) -> dict[str, Any]:
    """Some rows of a nano-vectordb, with their rows of its matrix (base64 of float32)."""
    rows = content.get("data", [])
    kept = [(i, new) for i in (range(len(rows)) if order is None else order) if (new := changed(rows[i])) is not None]
    found = {**content, "data": [row for _, row in kept]}
    if content.get("matrix") and rows:
        matrix = np.frombuffer(base64.b64decode(content["matrix"]), np.float32).reshape(len(rows), -1)
        found["matrix"] = base64.b64encode(matrix[[i for i, _ in kept]].tobytes()).decode()
    return found


def _of_documents(content: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The lists of names (`entity_names`) or of pairs of names (`relation_pairs`) of each document."""
    found = {}
    for document, row in content.items():
        new = dict(row)
        if "entity_names" in row:
            new["entity_names"] = list(dict.fromkeys(names.get(name, name) for name in row["entity_names"]))
            new["count"] = len(new["entity_names"])
        if "relation_pairs" in row:
            pairs = dict.fromkeys(tuple(names.get(name, name) for name in pair) for pair in row["relation_pairs"])
            new["relation_pairs"] = [list(pair) for pair in pairs if len(set(pair)) > 1]
            new["count"] = len(new["relation_pairs"])
        found[document] = new
    return found


def _of_names(content: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The chunks of each name, or of each pair of names that is joined by `<SEP>`."""
    found: dict[str, Any] = {}
    for key, row in content.items():
        parts = [names.get(name, name) for name in key.split(SEPARATOR)]
        if len(parts) > 1 and len(set(parts)) == 1 and len(set(key.split(SEPARATOR))) > 1:
            continue
        new_key = SEPARATOR.join(parts)
        known = found.get(new_key)
        chunks = list(dict.fromkeys([*(known or {}).get("chunk_ids", []), *row.get("chunk_ids", [])]))
        found[new_key] = {**row, **({"chunk_ids": chunks, "count": len(chunks)} if chunks else {})}
        if "_id" in row:
            found[new_key]["_id"] = new_key
    return found


_CHANGES: dict[str, Callable[[dict[str, Any], Mapping[str, str]], dict[str, Any]]] = {
    "vdb_entities.json": _entities,
    "vdb_relationships.json": _relationships,
    "kv_store_full_entities.json": _of_documents,
    "kv_store_full_relations.json": _of_documents,
    "kv_store_entity_chunks.json": _of_names,
    "kv_store_relation_chunks.json": _of_names,
}


_ENTITIES = ("entities.parquet", "create_final_entities.parquet")
_RELATIONSHIPS = ("relationships.parquet", "create_final_relationships.parquet")
_WITH_IDS = ("text_units", "communities", "create_final_text_units", "create_final_communities")
_KEPT = frozenset("id human_readable_id title name type source target x y degree combined_degree level".split())
_ADDED = frozenset(("weight", "frequency"))


def is_graphrag(folder: Path) -> bool:
    """Whether a folder has GraphRAG's tables."""
    return any((folder / name).exists() for name in _ENTITIES)


def read_graphrag(folder: Path) -> Graph:
    """Read GraphRAG's tables. Raises FormatError if pyarrow is not installed, or a table lacks or has no titles."""
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
    rows = _rows(path)[0]
    for row in rows:
        row.update({name: tuple(map(str, value)) for name, value in row.items() if isinstance(value, list)})
    needed = {"source", "target"} if names is _RELATIONSHIPS else set()
    if rows and (needed - rows[0].keys() or (not needed and not {"title", "name"} & rows[0].keys())):
        raise FormatError(str(path), 1, f"expected the columns of GraphRAG, found {', '.join(rows[0])}")
    return rows


def _rows(path: Path) -> tuple[list[dict[str, Any]], bytes]:
    """The rows of a table, and its schema."""
    with open_table(str(path), "Parquet") as table:
        return [dict(zip(table.columns, row, strict=True)) for _, row in table.rows], table.schema


def write_graphrag(folder: Path, out: Path, merge: Merge) -> None:
    """Copy the output of GraphRAG to a new folder, with the merged tables, and the ids of those that are left."""
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
    from pyarrow import parquet

    path = next(out / name for name in names if (out / name).exists())
    with open_table(str(path), "Parquet") as table:
        schema = pa.ipc.read_schema(pa.py_buffer(table.schema)).remove_metadata()
    for name in more:
        if name not in schema.names:
            schema = schema.append(pa.field(name, pa.float64() if name == "probability" else pa.string()))
    rows = [{name: list(one) if isinstance(one, tuple) else one for name, one in row.items()} for row in rows]
    parquet.write_table(pa.Table.from_pylist(rows, schema=schema), path)


def _renumber(path: Path, new_ids: Mapping[str, Mapping[str, str]]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    rows, schema = _rows(path)
    for row in rows:
        for column, changed in new_ids.items():
            if row.get(column) is not None:
                row[column] = list(
                    dict.fromkeys(new for one in row[column] if (new := changed.get(str(one), str(one))))
                )
    kept = pa.ipc.read_schema(pa.py_buffer(schema)).remove_metadata()
    parquet.write_table(pa.Table.from_pylist(rows, schema=kept), path)
