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


@pytest.mark.slow
def test_graphrag_reads_its_merged_tables(tmp_path: Path) -> None:
    """GraphRAG reads entities and relationships; a dry run before wrote nothing; undoing gives a node back."""
    pytest.importorskip("pyarrow")
    readers = pytest.importorskip("graphrag.query.indexer_adapters")
    pandas = pytest.importorskip("pandas")
    out = tmp_path / "merged"
    planned = resolve_graph(GRAPHS / "graphrag", out=out, dry_run=True)
    assert not out.exists()

    found = resolve_graph(GRAPHS / "graphrag", out=out)
    table = pandas.read_parquet(out / "entities.parquet")
    communities = pandas.DataFrame({"community": [0], "level": [0], "entity_ids": [list(table["id"])]})
    entities = readers.read_indexer_entities(table, communities, None)
    relationships = readers.read_indexer_relationships(pandas.read_parquet(out / "relationships.parquet"))

    assert found.report == planned.report
    assert len(entities) == found.report.nodes[1]
    assert {end for one in relationships for end in (one.source, one.target)} <= {one.title for one in entities}
    earlier = found.resolution.undo(["A. EINSTEIN"])
    undone = resolve_graph(GRAPHS / "graphrag", partial(resolve, previous=earlier), out=out)
    assert undone.report.nodes[1] == found.report.nodes[1] + 1
