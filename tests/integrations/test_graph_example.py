"""The small graph of examples/graph, merged in each of its formats with the ids of the sample base."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from ingest.load_base import SAMPLE_BASE
from pearl_qdrant import EntityLinker, read_entities
from pearl_qdrant.resolution import MergedGraph, resolve, resolve_graph

GRAPHS = Path(__file__).resolve().parents[2] / "examples" / "graph"
FORMATS = ("lightrag", "nano_graphrag", "graphrag", "graph.graphml", "edges.tsv")


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, MergedGraph]:
    """The graph in each format, merged once."""
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("merged")
    with EntityLinker.build(list(read_entities(SAMPLE_BASE))) as linker:
        names = partial(resolve, linker=linker)
        return {name: resolve_graph(GRAPHS / name, names, out=folder / name) for name in FORMATS}


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_each_format_is_merged_alike(merged: dict[str, MergedGraph], name: str) -> None:
    """20 nodes and 16 edges become fewer, weights add up, and years keep reports apart."""
    found = merged[name]
    nodes = {node.name.upper(): node for node in found.graph.nodes}
    assert found.report.nodes[0] == 20
    assert {"QUARTERLY REPORT 2019", "QUARTERLY REPORT 2020", "THE NEW YORK TIMES", "ALBERT EINSTEIN"} <= set(nodes)
    assert not {"NYTIMES", "NEW YORK TIMES", "A. EINSTEIN", "QUARTZ, ZELDA", "ACME ROBOTICS, INC."} & set(nodes)
    weight = sum(float(edge.attributes["weight"]) for edge in found.graph.edges)
    assert weight + sum(float(edge.attributes["weight"]) for edge in found.report.within) == 21
    keys = {node.key for node in found.graph.nodes}
    assert all({edge.source, edge.target} <= keys for edge in found.graph.edges)
    assert len({(edge.source, edge.target) for edge in found.graph.edges}) == len(found.graph.edges)


@pytest.mark.slow
def test_linked_nodes_have_the_name_and_id_of_their_entity(merged: dict[str, MergedGraph]) -> None:
    """GraphRAG's table has the canonical name as the title, the other names, the id and a probability."""
    import pyarrow.parquet as pq

    rows = pq.read_table(merged["graphrag"].path / "entities.parquet").to_pylist()
    times = next(row for row in rows if row["node_id"] == "the-new-york-times")
    assert times["title"] == "The New York Times"
    assert set(times["aliases"].split("\n")) == {
        "The New York Times",
        "THE NEW YORK TIMES",
        "NYTIMES",
        "NEW YORK TIMES",
    }
    assert set(times["text_unit_ids"]) == {"t1", "t2", "t3", "t4"}
    assert times["degree"] == 3
    assert times["probability"] > 0
