"""Merge the duplicates of a graph of names: the tables of entities and relationships that GraphRAG writes.

    python examples/resolve_graph.py                       # the small graph of examples/graph/
    python examples/resolve_graph.py GRAPHRAG/output OUT   # entities.parquet and relationships.parquet of your own

GraphRAG (like LightRAG and HippoRAG) keys an entity by its name as a language model wrote it, so that one entity has as
many nodes as spellings. Here the names are resolved to nodes: those that a collection knows get its ids, the others are
clustered by the same scores. Then nodes and edges are merged: descriptions and sources are joined, weights are added,
and an edge between two names of one node goes away. Any graph with a list of nodes (title, type) and a list of edges
(source, target) can be merged in the same way. Needs pandas and pyarrow.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from pearl_qdrant import EntityLinker
from pearl_qdrant.resolution import NameRecord, Resolution, resolve

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Graph:
    """The two tables of a graph, with the columns that GraphRAG gives them.

    Attributes:
        entities: title, type, description, text_unit_ids (lists), and maybe others.
        relationships: source, target (titles), description, weight, text_unit_ids (lists), and maybe others.
    """

    entities: pd.DataFrame
    relationships: pd.DataFrame

    def counts(self) -> str:
        """Its size in words."""
        return f"{len(self.entities)} nodes, {len(self.relationships)} edges"


def main(arguments: list[str]) -> None:
    """Read, merge, print counts, and write."""
    graph = read_graph(Path(arguments[0])) if arguments else read_example()
    with EntityLinker.build(read_rows("sample_base.tsv")) as linker:
        merged, resolution = merge_graph(graph, linker)
    print("before:", graph.counts())
    print("after: ", merged.counts())
    for name in resolution.names:
        if name.name != name.canonical_name:
            print(f"    {name.name}  ->  {name.canonical_name} [{name.node_id}]  {name.probability:.2f}  {name.reason}")
    if len(arguments) > 1:
        write_graph(merged, Path(arguments[1]))


def merge_graph(graph: Graph, linker: EntityLinker | None = None) -> tuple[Graph, Resolution]:
    """Resolve the names of a graph, and merge its nodes and edges.

    Args:
        graph: Read, and not changed.
        linker: Gives names that its collections know their ids; None: names are clustered among themselves alone.

    Returns:
        The smaller graph, whose entities have the new columns node_id, aliases and probability (the least one of the
        names that were merged); and the resolution, for review and undo.
    """
    records = [
        NameRecord(row.title, row.type, source=unit)
        for row in graph.entities.itertuples()
        for unit in (row.text_unit_ids if len(row.text_unit_ids) else [""])
    ]
    resolution = resolve(records, linker=linker)
    node_of = {(one.name, one.type): one for one in resolution.names}
    resolved = [node_of[row.title, row.type] for row in graph.entities.itertuples()]
    title_of = unique_titles({one.node_id: (one.canonical_name, one.type) for one in resolved})
    nodes = graph.entities.assign(
        node_id=[one.node_id for one in resolved],
        title=[title_of[one.node_id] for one in resolved],
        aliases=graph.entities["title"],
        probability=[one.probability for one in resolved],
    )
    entities = merged_rows(nodes, ["node_id"], lists=("aliases",))
    new_title = dict(zip(graph.entities["title"], nodes["title"], strict=True))
    edges = graph.relationships.assign(
        source=graph.relationships["source"].map(new_title), target=graph.relationships["target"].map(new_title)
    )
    relationships = merged_rows(edges[edges["source"] != edges["target"]], ["source", "target"])
    degree = pd.concat([relationships["source"], relationships["target"]]).value_counts()
    entities["degree"] = entities["title"].map(degree).fillna(0).astype(int)
    relationships["combined_degree"] = relationships["source"].map(degree) + relationships["target"].map(degree)
    return Graph(entities, relationships), resolution


def unique_titles(nodes: dict[str, tuple[str, str]]) -> dict[str, str]:
    """Titles by node: edges name their ends by them, so namesakes of different types get their type."""
    names = pd.Series({node: name for node, (name, _) in nodes.items()})
    twice = set(names[names.duplicated(keep=False)])
    return {node: f"{name} ({kind})" if name in twice else name for node, (name, kind) in nodes.items()}


def merged_rows(table: pd.DataFrame, keys: list[str], *, lists: tuple[str, ...] = ()) -> pd.DataFrame:
    """One row for each value of the keys; texts and lists are joined, numbers of sources and weights added."""
    how: dict[str, Any] = {column: "first" for column in table.columns if column not in keys}
    for column, rule in (("description", joined), ("text_unit_ids", union), ("probability", "min")):
        how.update({column: rule} if column in how else {})
    how.update({column: "sum" for column in ("weight", "frequency") if column in how})
    how.update(dict.fromkeys(lists, list))
    return table.groupby(keys, sort=False, as_index=False).agg(how)


def joined(texts: Iterable[str]) -> str:
    """Different texts, one a line."""
    return "\n".join(dict.fromkeys(text for text in texts if text))


def union(lists: Iterable[Iterable[str]]) -> list[str]:
    """The items of all lists, each once."""
    return list(dict.fromkeys(item for items in lists for item in items))


def read_graph(folder: Path) -> Graph:
    """The tables of GraphRAG."""
    return Graph(pd.read_parquet(folder / "entities.parquet"), pd.read_parquet(folder / "relationships.parquet"))


def write_graph(graph: Graph, folder: Path) -> None:
    """Write the same tables."""
    folder.mkdir(parents=True, exist_ok=True)
    graph.entities.to_parquet(folder / "entities.parquet")
    graph.relationships.to_parquet(folder / "relationships.parquet")


def read_example() -> Graph:
    """The small graph beside this file."""
    entities, relationships = (
        pd.DataFrame(read_rows(f"graph/{name}.tsv")).assign(text_unit_ids=lambda t: t["text_unit_ids"].str.split("|"))
        for name in ("entities", "relationships")
    )
    return Graph(entities, relationships.assign(weight=relationships["weight"].astype(float)))


def read_rows(name: str) -> list[dict[str, str]]:
    """The rows of a table beside this file, without empty cells."""
    header, *lines = (HERE / name).read_text("utf-8").splitlines()
    columns = header.split("\t")
    return [{k: v for k, v in zip(columns, line.split("\t"), strict=True) if v} for line in lines]


if __name__ == "__main__":
    main(sys.argv[1:])
