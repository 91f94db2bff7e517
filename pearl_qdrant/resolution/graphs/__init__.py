"""Whole graphs: their names resolved, their nodes and edges merged, written in their own format.

    from pearl_qdrant.resolution.graphs import resolve_graph

    merged = resolve_graph("rag_storage")          # a working folder of LightRAG
    print(merged.report.to_text())

`records.py` merges; `graphml.py` (GraphML and lists of edges) and `folders.py` read and write formats.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from pearl_qdrant.errors import OptionError
from pearl_qdrant.resolution.graphs.folders import GRAPH_FILE, is_graphrag, read_graphrag, write_folder, write_graphrag
from pearl_qdrant.resolution.graphs.graphml import read_edge_list, read_graphml, write_edge_list, write_graphml
from pearl_qdrant.resolution.graphs.records import Edge, Graph, GraphReport, Merge, Node, merge_graph, name_records
from pearl_qdrant.resolution.names import NameRecord
from pearl_qdrant.resolution.resolution import Resolution
from pearl_qdrant.resolution.resolving import resolve

__all__ = ["Edge", "Graph", "GraphReport", "MergedGraph", "Node", "resolve_graph"]


NODES, REVIEW, REPORT = "nodes.tsv", "review.tsv", "report.json"

Place = str | os.PathLike[str]


@dataclass(frozen=True)
class MergedGraph:
    """A merged graph that was written, or would be.

    Attributes:
        graph: Its nodes and edges.
        resolution: The node of each name, for review and undo.
        report: What was merged, and what went away.
        path: The file or folder.
        nodes, review: Where the nodes of the names, and the pairs for review, were written.
    """

    graph: Graph
    resolution: Resolution
    report: GraphReport
    path: Path
    nodes: Path
    review: Path


def resolve_graph(
    graph: Place,
    resolve_names: Callable[[list[NameRecord]], Resolution] = resolve,
    *,
    out: Place | None = None,
    dry_run: bool = False,
) -> MergedGraph:
    """Resolve the names of a graph, merge its nodes and edges, and write it beside the input in the same format.

    The formats are GraphML, a list of edges (TSV or CSV), a working folder of LightRAG or nano-graphrag, and the output
    folder of GraphRAG. Beside the merged graph come `nodes.tsv`, `review.tsv` and `report.json`: in the folder that is
    written, or with the name of the file before theirs. The input is not changed. Raises FormatError if the graph is in
    none of the formats, or damaged; OptionError if the output is the input, or a folder that this did not write.

    Args:
        graph: The file or folder.
        resolve_names: `resolve`, or with its options: `functools.partial(resolve, precision=0.99)`.
        out: The file or folder to write; default is the input's name with `.resolved` in it.
        dry_run: Write nothing; the report says what would merge.
    """
    graph = Path(graph)
    beside = f"{graph.stem}.resolved{graph.suffix}" if graph.suffix else f"{graph.name}.resolved"
    path = graph.with_name(beside) if out is None else Path(out)
    if path.resolve() == graph.resolve():
        raise OptionError("out", f"{path} is the graph itself; give another place for the merged one.")
    read, write = _format_of(graph)
    before = read(graph)
    is_folder = graph.is_dir()
    if is_folder and path.exists() and not (path / REPORT).exists():
        raise OptionError("out", f"{path} exists and is not a merged graph. Remove it, or give another place.")
    resolution = resolve_names([one for records in name_records(before).values() for one in records])
    merge = merge_graph(before, resolution)
    tables = [path / name if is_folder else path.with_name(f"{path.stem}.{name}") for name in (NODES, REVIEW, REPORT)]
    if not dry_run:
        new = path.with_name(f".new.{path.name}")  # a run that ends early leaves no half of a graph
        shutil.rmtree(new, ignore_errors=True)
        write(graph, new, merge)
        nodes, review, report = (new / one.name for one in tables) if is_folder else tables
        resolution.write(nodes, review=review)
        text = json.dumps(asdict(merge.report), ensure_ascii=False, indent=2, default=str)
        report.write_text(text, encoding="utf-8")
        if is_folder:
            shutil.rmtree(path, ignore_errors=True)
        new.replace(path)
    return MergedGraph(merge.graph, resolution, merge.report, path, *tables[:2])


def _format_of(given: Path) -> tuple[Callable[[Path], Graph], Callable[[Path, Path, Merge], None]]:
    if given.is_dir():
        if is_graphrag(given):
            return read_graphrag, write_graphrag
        if (given / GRAPH_FILE).exists():
            return (lambda folder: read_graphml(folder / GRAPH_FILE)), write_folder
        raise OptionError(
            "graph",
            f"{given} has neither {GRAPH_FILE} (LightRAG, nano-graphrag) nor entities.parquet (GraphRAG: its output "
            f"folder).",
        )
    if not given.exists():
        raise OptionError("graph", f"{given} does not exist; give a file or a folder.")
    if given.suffix.lower() in (".graphml", ".xml"):
        return read_graphml, write_graphml
    return read_edge_list, write_edge_list
