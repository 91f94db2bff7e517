"""Merge the duplicates of a graph of names, in the format that it has.

    python examples/resolve_graph.py              # the small graphs of examples/graph/
    python examples/resolve_graph.py rag_storage  # your own: it is written to rag_storage.resolved

examples/graph/ has one small graph five times: as a working folder of LightRAG and of nano-graphrag, as the output of
GraphRAG, as GraphML, and as a list of edges. The names that the sample base knows get its ids, the others are clustered
by the same scores. The same from a shell: pearl-qdrant resolve --graph rag_storage
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pearl_qdrant import EntityLinker
from pearl_qdrant.resolution import MergedGraph, resolve, resolve_graph

HERE = Path(__file__).resolve().parent
GRAPHS = ("lightrag", "nano_graphrag", "graphrag", "graph.graphml", "edges.tsv")


def main(arguments: list[str]) -> None:
    """Merge the given graph, or the small ones."""
    if arguments:
        print(resolve_graph(arguments[0]).report.to_text())
        return
    with TemporaryDirectory() as folder:
        for name, merged in merge_examples(Path(folder)).items():
            print(f"{name}\n{merged.report.to_text()}")


def merge_examples(folder: Path) -> dict[str, MergedGraph]:
    """Merge each of the small graphs into a folder, with the ids of the sample base."""
    with EntityLinker.build(read_rows("sample_base.tsv")) as linker:
        names = partial(resolve, linker=linker)
        return {name: resolve_graph(HERE / "graph" / name, names, out=folder / name) for name in GRAPHS}


def read_rows(name: str) -> list[dict[str, str]]:
    """The rows of a table beside this file, without empty cells."""
    header, *lines = (HERE / name).read_text("utf-8").splitlines()
    columns = header.split("\t")
    return [{k: v for k, v in zip(columns, line.split("\t"), strict=True) if v} for line in lines]


if __name__ == "__main__":
    main(sys.argv[1:])
