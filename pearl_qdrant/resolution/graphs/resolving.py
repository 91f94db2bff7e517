"""`resolve_graph`: a graph in its own format, with one node for each thing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from pearl_qdrant.errors import OptionError
from pearl_qdrant.resolution.graphs.folders import GRAPH_FILE, read_folder, write_folder
from pearl_qdrant.resolution.graphs.graphml import read_graphml, write_graphml
from pearl_qdrant.resolution.graphs.merging import merge_graph, name_records
from pearl_qdrant.resolution.graphs.parquet import is_graphrag, read_graphrag, write_graphrag
from pearl_qdrant.resolution.graphs.records import Graph, GraphReport
from pearl_qdrant.resolution.graphs.tables import read_edge_list, write_edge_list
from pearl_qdrant.resolution.records import NameRecord
from pearl_qdrant.resolution.resolution import Resolution
from pearl_qdrant.resolution.resolving import resolve

NODES, REVIEW, REPORT = "nodes.tsv", "review.tsv", "report.json"


@dataclass(frozen=True)
class MergedGraph:
    """A merged graph that was written.

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
    graph: str | os.PathLike[str],
    resolve_names: Callable[[list[NameRecord]], Resolution] = resolve,
    *,
    out: str | os.PathLike[str] | None = None,
) -> MergedGraph:
    """Resolve the names of a graph, merge its nodes and edges, and write it beside the input in the same format.

    The formats are GraphML, a list of edges (TSV or CSV), a working folder of LightRAG or nano-graphrag, and the output
    folder of GraphRAG. Beside the merged graph come `nodes.tsv`, `review.tsv` and `report.json`: in the folder that is
    written, or with the name of the file before theirs. The input is not changed.

    Args:
        graph: The file or folder.
        resolve_names: `resolve`, or with its options: `functools.partial(resolve, precision=0.99)`.
        out: The file or folder to write; default is the input's name with `.resolved` in it.

    Raises:
        FormatError: If the graph is in none of the formats, or damaged.
        OptionError: If the output is the input, or a folder that this did not write.
    """
    given = Path(graph)
    path = Path(out) if out is not None else default_out(given)
    if path.resolve() == given.resolve():
        raise OptionError("out", f"{path} is the graph itself; give another place for the merged one.")
    if given.is_dir():
        return _folder(given, path, resolve_names)
    if given.suffix.lower() in (".graphml", ".xml"):
        before = read_graphml(given)
        merged, report, resolution, _ = _merge(before, resolve_names)
        write_graphml(path, merged)
    else:
        before, columns = read_edge_list(given)
        merged, report, resolution, _ = _merge(before, resolve_names)
        write_edge_list(path, merged, columns)
    nodes, review, report_path = (path.with_name(f"{path.stem}.{name}") for name in (NODES, REVIEW, REPORT))
    found = MergedGraph(merged, resolution, report, path, nodes, review)
    _write_report(found, nodes, review, report_path)
    return found


def default_out(graph: Path) -> Path:
    """Where the merged graph of a file or folder is written."""
    return graph.with_name(f"{graph.stem}.resolved{graph.suffix}" if graph.suffix else f"{graph.name}.resolved")


def _folder(given: Path, path: Path, resolve_names: Callable[[list[NameRecord]], Resolution]) -> MergedGraph:
    """Merge a folder: written under another name first, so that a run that ends early leaves no half of one."""
    is_rag = is_graphrag(given)
    if not is_rag and not (given / GRAPH_FILE).exists():
        raise OptionError(
            "graph",
            f"{given} has neither {GRAPH_FILE} (LightRAG, nano-graphrag) nor entities.parquet (GraphRAG: its output "
            f"folder).",
        )
    if path.exists() and not (path / REPORT).exists():
        raise OptionError("out", f"{path} exists and is not a merged graph. Remove it, or give another place.")
    before = read_graphrag(given) if is_rag else read_folder(given)
    merged, report, resolution, new_keys = _merge(before, resolve_names)
    new = path.with_name(f".{path.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    if is_rag:
        write_graphrag(given, new, merged, before, new_keys)
    else:
        write_folder(given, new, merged, new_keys)
    found = MergedGraph(merged, resolution, report, path, path / NODES, path / REVIEW)
    _write_report(found, new / NODES, new / REVIEW, new / REPORT)
    shutil.rmtree(path, ignore_errors=True)
    new.replace(path)
    return found


def _merge(
    before: Graph, resolve_names: Callable[[list[NameRecord]], Resolution]
) -> tuple[Graph, GraphReport, Resolution, dict[str, str]]:
    resolution = resolve_names(list(name_records(before)))
    merged, report, new_keys = merge_graph(before, resolution)
    return merged, report, resolution, new_keys


def _write_report(found: MergedGraph, nodes: Path, review: Path, report: Path) -> None:
    found.resolution.write(nodes, review=review)
    report.write_text(json.dumps(asdict(found.report), ensure_ascii=False, indent=2), encoding="utf-8")
