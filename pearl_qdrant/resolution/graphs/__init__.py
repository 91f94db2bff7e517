"""Whole graphs: their names resolved, their nodes and edges merged, written in their own format.

    from pearl_qdrant.resolution.graphs import resolve_graph

    merged = resolve_graph("rag_storage")          # a working folder of LightRAG
    print(merged.report.to_text())

`records.py` merges, `resolving.py` recognises a format; `graphml.py` (GraphML and lists of edges), `folders.py`,
`parquet.py` and `neo4j.py` read and write one each.
"""

from __future__ import annotations

from pearl_qdrant.resolution.graphs.records import Edge, Graph, GraphReport, Node
from pearl_qdrant.resolution.graphs.resolving import MergedGraph, resolve_graph

__all__ = ["Edge", "Graph", "GraphReport", "MergedGraph", "Node", "resolve_graph"]
