"""`resolve_graph`: whole graphs in their formats."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial
from hashlib import md5
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runner import Run
from resolution_names import LetterEncoder

from pearl_qdrant.errors import FormatError, OptionError
from pearl_qdrant.resolution import NameRecord, Resolution, resolve
from pearl_qdrant.resolution.graphs import resolve_graph

Resolve = Callable[[list[NameRecord]], Resolution]
RESOLVE: Resolve = partial(resolve, encoder=LetterEncoder())

GRAPHML = """<?xml version='1.0' encoding='utf-8'?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="d0" for="node" attr.name="entity_type" attr.type="string"/>
<key id="d1" for="node" attr.name="description" attr.type="string"/>
<key id="d2" for="node" attr.name="source_id" attr.type="string"/>
<key id="d3" for="edge" attr.name="weight" attr.type="double"/>
<key id="d4" for="edge" attr.name="description" attr.type="string"/>
<graph edgedefault="undirected">
<node id="Niels Bohr"><data key="d0">person</data><data key="d1">A physicist.</data>
<data key="d2">chunk-1&lt;SEP&gt;chunk-2</data></node>
<node id="niels bohr"><data key="d0">UNKNOWN</data><data key="d1">Born 1885.</data><data key="d2">chunk-3</data></node>
<node id="Copenhagen"><data key="d0">location</data><data key="d1">A city.</data><data key="d2">chunk-1</data></node>
<edge source="Niels Bohr" target="Copenhagen"><data key="d3">2.0</data><data key="d4">lived in</data></edge>
<edge source="Copenhagen" target="niels bohr"><data key="d3">1.5</data><data key="d4">worked in</data></edge>
<edge source="Niels Bohr" target="niels bohr"><data key="d3">1.0</data><data key="d4">same man</data></edge>
</graph></graphml>
"""


@pytest.fixture
def working_folder(tmp_path: Path) -> Path:
    """A working folder as LightRAG keeps it."""
    folder = tmp_path / "rag_storage"
    folder.mkdir()
    (folder / "graph_chunk_entity_relation.graphml").write_text(GRAPHML)
    names = ["Niels Bohr", "niels bohr", "Copenhagen"]
    vectors = np.eye(3, 4, dtype=np.float32)
    rows = [{"__id__": f"ent-{name}", "entity_name": name, "content": name} for name in names]
    write_json(folder / "vdb_entities.json", vector_file(rows, vectors))
    pairs = [("Copenhagen", "niels bohr"), ("Niels Bohr", "Copenhagen"), ("Niels Bohr", "niels bohr")]
    rows = [{"__id__": f"rel-{i}", "src_id": a, "tgt_id": b} for i, (a, b) in enumerate(pairs)]
    write_json(folder / "vdb_relationships.json", vector_file(rows, vectors))
    write_json(folder / "kv_store_full_entities.json", {"doc-1": {"entity_names": names, "count": 3}})
    write_json(
        folder / "kv_store_full_relations.json", {"doc-1": {"relation_pairs": [list(p) for p in pairs], "count": 3}}
    )
    write_json(
        folder / "kv_store_entity_chunks.json",
        {"Niels Bohr": {"chunk_ids": ["chunk-1"], "count": 1}, "niels bohr": {"chunk_ids": ["chunk-3"], "count": 1}},
    )
    write_json(
        folder / "kv_store_relation_chunks.json",
        {"<SEP>".join(pair): {"chunk_ids": [f"c{i}"], "count": 1} for i, pair in enumerate(pairs)},
    )
    write_json(folder / "kv_store_text_chunks.json", {"chunk-1": {"content": "niels bohr"}})
    return folder


def vector_file(rows: list[dict[str, Any]], vectors: np.ndarray[Any, Any]) -> dict[str, Any]:
    """What nano-vectordb writes."""
    matrix = base64.b64encode(vectors.tobytes()).decode()
    return {"embedding_dim": vectors.shape[1], "data": rows, "matrix": matrix}


def write_json(path: Path, content: object) -> None:
    """Write a JSON file."""
    path.write_text(json.dumps(content))


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text())


def read_back(path: Path) -> Any:
    """A GraphML file as networkx reads it."""
    networkx = pytest.importorskip("networkx")
    return networkx.read_graphml(path)


def test_graphml_is_merged_and_loses_nothing(tmp_path: Path) -> None:
    """Descriptions, sources and weights of merged nodes and edges are joined; an edge within a node is reported."""
    path = tmp_path / "graph.graphml"
    path.write_text(GRAPHML)
    found = resolve_graph(path, RESOLVE)

    graph = read_back(tmp_path / "graph.resolved.graphml")
    assert graph.nodes["Niels Bohr"].pop("node_id").startswith("nil-")
    assert dict(graph.nodes["Niels Bohr"]) == {
        "entity_type": "person",
        "description": "A physicist.<SEP>Born 1885.",
        "source_id": "chunk-1<SEP>chunk-2<SEP>chunk-3",
        "aliases": "Niels Bohr<SEP>niels bohr",
        "probability": 0.985,
    }
    assert [dict(data) for *_, data in graph.edges(data=True)] == [
        {"weight": 3.5, "description": "lived in<SEP>worked in"}
    ]
    assert [edge.attributes["description"] for edge in found.report.within] == ["same man"]
    report = read_json(tmp_path / "graph.resolved.report.json")
    assert (report["nodes"], report["edges"], len(report["within"])) == ([3, 2], [3, 1], 1)
    assert Resolution.read(found.nodes).node("niels bohr", "UNKNOWN") == found.resolution.node("Niels Bohr", "person")
    assert path.read_text() == GRAPHML


def test_graphml_keeps_ids_types_and_parallel_edges(tmp_path: Path) -> None:
    """What is not merged stays as it is: ids of nodes and edges, numbers, truth values, two edges of the same ends."""
    path = tmp_path / "g.graphml"
    path.write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="k" for="node" attr.name="label" '
        'attr.type="string"/><key id="n" for="node" attr.name="size" attr.type="long"/><key id="b" for="edge" '
        'attr.name="sure" attr.type="boolean"/><graph edgedefault="directed"><node id="n1"><data key="k">Oslo</data>'
        '<data key="n">7</data></node><node id="n2"><data key="k">Quito</data></node>'
        '<edge id="e1" source="n1" target="n2"><data key="b">true</data></edge>'
        '<edge id="e2" source="n1" target="n2"><data key="b">false</data></edge></graph></graphml>'
    )
    resolve_graph(path, RESOLVE, out=tmp_path / "out.graphml")

    graph = read_back(tmp_path / "out.graphml")
    assert dict(graph.nodes(data=True)) == {"n1": {"label": "Oslo", "size": 7}, "n2": {"label": "Quito"}}
    assert sorted((key, data["sure"]) for *_, key, data in graph.edges(keys=True, data=True)) == [
        ("e1", True),
        ("e2", False),
    ]


def test_a_lightrag_folder_is_copied_with_the_new_names(working_folder: Path) -> None:
    """Vectors, lists of documents and of chunks have the names that are left; other files stay as they are."""
    before = {path.name: path.read_bytes() for path in working_folder.iterdir()}
    found = resolve_graph(working_folder, RESOLVE)

    out = working_folder.with_name("rag_storage.resolved")
    assert found.path == out
    entities = read_json(out / "vdb_entities.json")
    assert [row["entity_name"] for row in entities["data"]] == ["Niels Bohr", "Copenhagen"]
    matrix = np.frombuffer(base64.b64decode(entities["matrix"]), np.float32).reshape(2, 4)
    assert matrix.tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]
    relationships = read_json(out / "vdb_relationships.json")
    assert [(row["__id__"], row["src_id"], row["tgt_id"]) for row in relationships["data"]] == [
        ("rel-1", "Niels Bohr", "Copenhagen")
    ]
    assert read_json(out / "kv_store_full_entities.json")["doc-1"] == {
        "entity_names": ["Niels Bohr", "Copenhagen"],
        "count": 2,
    }
    assert read_json(out / "kv_store_full_relations.json")["doc-1"]["relation_pairs"] == [
        ["Copenhagen", "Niels Bohr"],
        ["Niels Bohr", "Copenhagen"],
    ]
    chunks = read_json(out / "kv_store_entity_chunks.json")
    assert chunks == {"Niels Bohr": {"chunk_ids": ["chunk-1", "chunk-3"], "count": 2}}
    assert "Niels Bohr<SEP>niels bohr" not in read_json(out / "kv_store_relation_chunks.json")
    assert (out / "kv_store_text_chunks.json").read_bytes() == before["kv_store_text_chunks.json"]
    assert {path.name: path.read_bytes() for path in working_folder.iterdir()} == before
    assert {"nodes.tsv", "review.tsv", "report.json"} <= {path.name for path in out.iterdir()}


def test_a_renamed_edge_has_the_id_of_its_new_names(working_folder: Path) -> None:
    """An edge whose only row had an old name gets the id that LightRAG computes from the new ones."""
    path = working_folder / "vdb_relationships.json"
    content = read_json(path)
    write_json(path, vector_file(content["data"][:1], np.ones((1, 4), np.float32)))
    resolve_graph(working_folder, RESOLVE)

    row = read_json(working_folder.with_name("rag_storage.resolved") / path.name)["data"][0]
    assert row["__id__"] == f"rel-{md5(b'CopenhagenNiels Bohr').hexdigest()}"


def test_quoted_names_of_nano_graphrag_are_read_without_quotes(tmp_path: Path) -> None:
    """nano-graphrag writes names in quotes: they are no part of a name, and stay in the file."""
    folder = tmp_path / "dickens"
    folder.mkdir()
    text = GRAPHML
    for name in ("Niels Bohr", "niels bohr", "Copenhagen"):
        text = text.replace(f'="{name}"', f'="&quot;{name}&quot;"')
    (folder / "graph_chunk_entity_relation.graphml").write_text(text)
    found = resolve_graph(folder, RESOLVE)

    assert {one.name for one in found.resolution.names} == {"Niels Bohr", "niels bohr", "Copenhagen"}
    assert set(read_back(found.path / "graph_chunk_entity_relation.graphml").nodes) == {'"Niels Bohr"', '"Copenhagen"'}


def test_graphrag_tables_are_merged_and_their_ids_follow(tmp_path: Path) -> None:
    """Entities and relationships are merged, degrees counted again, and lists of ids have those that are left."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "output"
    folder.mkdir()
    entities = [
        {"id": "e1", "human_readable_id": 0, "title": "NIELS BOHR", "type": "PERSON", "description": "A physicist.",
         "text_unit_ids": ["t1", "t2"], "frequency": 2, "degree": 2},
        {"id": "e2", "human_readable_id": 1, "title": "Niels Bohr", "type": "", "description": "Born 1885.",
         "text_unit_ids": ["t3"], "frequency": 1, "degree": 1},
        {"id": "e3", "human_readable_id": 2, "title": "COPENHAGEN", "type": "GEO", "description": "A city.",
         "text_unit_ids": ["t1"], "frequency": 1, "degree": 2},
    ]  # fmt: skip
    edges = [
        {"id": "r1", "source": "NIELS BOHR", "target": "COPENHAGEN", "description": "lived in", "weight": 2.0,
         "combined_degree": 4, "text_unit_ids": ["t1"]},
        {"id": "r2", "source": "Niels Bohr", "target": "COPENHAGEN", "description": "worked in", "weight": 1.0,
         "combined_degree": 3, "text_unit_ids": ["t3"]},
        {"id": "r3", "source": "NIELS BOHR", "target": "Niels Bohr", "description": "same", "weight": 1.0,
         "combined_degree": 3, "text_unit_ids": ["t2"]},
    ]  # fmt: skip
    units = [{"id": "t3", "text": "...", "entity_ids": ["e2", "e3"], "relationship_ids": ["r2", "r3"]}]
    for name, rows in (("entities", entities), ("relationships", edges), ("text_units", units)):
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
    (folder / "stats.json").write_text("{}")
    found = resolve_graph(folder, RESOLVE, out=tmp_path / "merged")

    nodes = pq.read_table(found.path / "entities.parquet").to_pylist()
    assert [(row["id"], row["title"], row["frequency"], row["degree"]) for row in nodes] == [
        ("e1", "NIELS BOHR", 3, 1),
        ("e3", "COPENHAGEN", 1, 1),
    ]
    assert nodes[0]["description"] == "A physicist.\nBorn 1885."
    assert nodes[0]["text_unit_ids"] == ["t1", "t2", "t3"]
    assert nodes[0]["aliases"] == "NIELS BOHR\nNiels Bohr"
    rows = pq.read_table(found.path / "relationships.parquet").to_pylist()
    assert [(row["id"], row["weight"], row["combined_degree"], row["text_unit_ids"]) for row in rows] == [
        ("r1", 3.0, 2, ["t1", "t3"])
    ]
    unit = pq.read_table(found.path / "text_units.parquet").to_pylist()[0]
    assert (unit["entity_ids"], unit["relationship_ids"]) == (["e1", "e3"], ["r1"])
    assert (found.path / "stats.json").exists()


@pytest.mark.parametrize(
    "name, text, expected",
    [
        (
            "edges.tsv",
            "source\trelation\ttarget\tweight\nBohr\tlives in\tOslo\t1\nbohr\tlives in\tOslo\t2\nbohr\tin\tOslo\t1\n",
            "source\trelation\ttarget\tweight\nBohr\tlives in\tOslo\t3\nBohr\tin\tOslo\t1\n",
        ),
        (
            "edges.csv",
            'from,to,note\n"Niels Bohr",Copenhagen,"a, b"\nniels bohr,Copenhagen,c\n',
            'from,to,note\nNiels Bohr,Copenhagen,"a, b; c"\n',
        ),
        ("edges.tsv", "Niels Bohr\tCopenhagen\nOslo\tniels bohr\n", "Niels Bohr\tCopenhagen\nOslo\tNiels Bohr\n"),
        ("edges.tsv", "Niels Bohr\tborn in\tCopenhagen\n", "Niels Bohr\tborn in\tCopenhagen\n"),
    ],
    ids=["with a header", "CSV", "two columns", "triples"],
)
def test_lists_of_edges_keep_their_form(tmp_path: Path, name: str, text: str, expected: str) -> None:
    """Edges that become equal are one, with weights added and texts joined; others only change their names."""
    (tmp_path / name).write_text(text)
    found = resolve_graph(tmp_path / name, RESOLVE)

    assert found.path.read_text() == expected


@pytest.mark.parametrize(
    "name, text, said",
    [
        ("g.graphml", "<graphml><graph></graphml>", "not XML"),
        ("g.graphml", '<!DOCTYPE x [<!ENTITY a "b">]><graphml/>', "DOCTYPE"),
        ("g.graphml", "<graphml><graph><edge source='a' target='b'/></graph></graphml>", "no node"),
        ("e.tsv", "a\tb\tc\td\n", "no header"),
        ("e.tsv", "a\tb\na\n", "expected 2 cells, found 1"),
        ("e.tsv", "", "empty"),
    ],
)
def test_a_damaged_graph_says_what_is_wrong(tmp_path: Path, name: str, text: str, said: str) -> None:
    """Nothing is written for a graph that cannot be read."""
    (tmp_path / name).write_text(text)
    with pytest.raises(FormatError, match=said):
        resolve_graph(tmp_path / name, RESOLVE)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_folder_of_somebody_else_is_not_replaced(working_folder: Path) -> None:
    """The output replaces an earlier output, and nothing else; a folder without a graph is an error."""
    resolve_graph(working_folder, RESOLVE)
    resolve_graph(working_folder, RESOLVE)
    other = working_folder.with_name("mine")
    other.mkdir()
    with pytest.raises(OptionError, match="not a merged graph"):
        resolve_graph(working_folder, RESOLVE, out=other)
    with pytest.raises(OptionError, match="the graph itself"):
        resolve_graph(working_folder, RESOLVE, out=working_folder)
    with pytest.raises(OptionError, match="neither"):
        resolve_graph(other, RESOLVE)


def test_a_dry_run_says_what_would_merge_and_writes_nothing(working_folder: Path) -> None:
    """I see the report before a graph is written."""
    planned = resolve_graph(working_folder, RESOLVE, dry_run=True)

    assert "Niels Bohr: niels bohr" in planned.report.to_text()
    assert [path.name for path in working_folder.parent.iterdir()] == ["rag_storage"]
    merged = resolve_graph(working_folder, RESOLVE)
    assert (merged.report, merged.path, merged.nodes) == (planned.report, planned.path, planned.nodes)


def test_types_that_are_ignored_do_not_keep_nodes_apart(tmp_path: Path) -> None:
    """Without types, nodes of two types and one name are one."""
    rows = "source\tsource_type\ttarget\ttarget_type\nLund\tcity\tOslo\tcity\nLUND\tuniversity\tOslo\tcity\n"
    (tmp_path / "e.tsv").write_text(rows)
    found = resolve_graph(tmp_path / "e.tsv", partial(resolve, encoder=LetterEncoder(), type_mode="off"))

    assert found.report.nodes == (3, 2)


def test_the_command_merges_a_graph(run: Run, model: Path, tmp_path: Path) -> None:
    """`--graph` writes the graph beside the input, and says what it did."""
    (tmp_path / "e.tsv").write_text("heart attack\tnew york\nHeart Attack\toslo\n")
    done = run("resolve", "--graph", str(tmp_path / "e.tsv"), "--set", f"model={model}")

    assert done.status == 0, done.err
    assert "nodes: 4 before, 3 after" in done.err.splitlines()
    assert (tmp_path / "e.resolved.tsv").exists()
    nodes = str(tmp_path / "e.resolved.nodes.tsv")
    again = run("resolve", "--graph", str(tmp_path / "e.tsv"), "--previous", nodes, "--undo", "oslo")
    assert again.status == 1
    assert "alone in its node" in again.err
    assert run("resolve", str(tmp_path / "e.tsv"), "--graph", str(tmp_path / "e.tsv")).status == 2
