"""The example that merges the duplicates of a graph."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_names_of_a_graph_become_nodes_and_edges_are_merged(tmp_path: Path) -> None:
    """GraphRAG's tables go in and out: 20 nodes and 16 edges become 10 and 9, and nothing is lost."""
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    example = runpy.run_path(str(ROOT / "examples" / "resolve_graph.py"))
    before = example["read_example"]()
    example["write_graph"](before, tmp_path / "in")

    example["main"]([str(tmp_path / "in"), str(tmp_path / "out")])

    after = example["read_graph"](tmp_path / "out")
    assert (before.counts(), after.counts()) == ("20 nodes, 16 edges", "10 nodes, 9 edges")
    nodes = after.entities.set_index("node_id")
    times = nodes.loc["the-new-york-times"]
    assert times["title"] == "The New York Times"
    assert set(times["aliases"]) == {"THE NEW YORK TIMES", "NYTIMES", "NEW YORK TIMES"}
    assert set(times["text_unit_ids"]) == {"t1", "t2", "t3", "t4"}
    assert times["description"].count("\n") == 2
    assert {"QUARTERLY REPORT 2019", "QUARTERLY REPORT 2020"} <= set(nodes["title"])
    assert (nodes["probability"] > 0).all()
    edges = after.relationships.set_index(["source", "target"])
    assert edges.loc[("Albert Einstein", "The New York Times"), "weight"] == 3
    assert edges.index.is_unique
    assert set(edges.index.get_level_values(0)) | set(edges.index.get_level_values(1)) <= set(nodes["title"])
    to_itself = 1  # the edge between two names of the newspaper
    assert edges["weight"].sum() == before.relationships["weight"].sum() - to_itself
    assert (nodes.loc["the-new-york-times", "degree"]) == 3
