"""Vectors of descriptions in the embedded store: beside the graph, and as readers see them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from edge_cases import WIDE, manifest_of, many, taken_files

from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.store.edge import folder as edge_folder
from pearl_qdrant.store.edge.collection import EdgeCollection
from pearl_qdrant.store.edge.store import EdgeStore


def make(store: EdgeStore, name: str = "toy") -> EdgeCollection:
    """An empty collection that keeps vectors of descriptions."""
    return store.create(manifest_of(name, dim=WIDE).model_copy(update={"has_descriptions": True}))


def described(n: int, *, start: int = 0) -> FloatArray:
    """Vectors of descriptions of `many`: every other canonical name has one."""
    rows = np.arange(start, start + n)[:, None] % 4 == 0
    return np.where(rows, many(n, dim=WIDE, start=start + 1_000_000)[1], 0).astype(np.float32)


def write(collection: EdgeCollection, n: int, *, start: int = 0) -> None:
    """Load n points of `many`."""
    with collection.writer() as writer:
        for first in range(start, start + n, 250):
            writer.write(*many(250, dim=WIDE, start=first), descriptions=described(250, start=first))


@pytest.fixture
def graph(low_threshold: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs for small collections, and a child that ends after 250 points."""
    monkeypatch.setattr(edge_folder, "COMPACT_POINTS", 250)
    monkeypatch.setattr(edge_folder, "COMPACT_UNINDEXED_POINTS", 250)


def test_a_graph_has_names_only(store: EdgeStore, graph: None, tmp_path: Path) -> None:
    """Vectors of descriptions outlast compactions and the building of the graph, are not in it, and not quantised."""
    collection = make(store)
    write(collection, 750)
    collection.finalize()
    first = collection.status()
    write(collection, 250, start=750)
    collection.finalize()

    assert (first.vectors, first.descriptions, first.indexed_vectors) == (750, 188, 750)
    status = collection.status()
    assert (status.vectors, status.descriptions, status.is_finalized) == (1000, 250, True)
    for start in (0, 250, 750):
        points, vectors, _ = many(250, dim=WIDE, start=start)
        expected = np.where(
            described(250, start=start).any(axis=1, keepdims=True), described(250, start=start), vectors
        )
        np.testing.assert_allclose(collection.description_vectors(points)[::2], expected[::2], atol=1e-3)
    shard = taken_files(store.location, tmp_path / "taken")
    quantized = {file.parent.name for file in shard.rglob("quantized.data")}
    links = {file.parent.name: json.loads(file.read_bytes())["m"] for file in shard.rglob("hnsw_config.json")}
    assert quantized == {"vector_storage-dense"}
    assert links == {"vector_index-dense": 24, "vector_index-description": 0}


@pytest.mark.slow
def test_a_search_is_that_of_a_collection_without_them(store: EdgeStore, graph: None) -> None:
    """Names are found with the same scores."""
    plain, both = store.create(manifest_of("plain", dim=WIDE)), make(store)
    for collection in (plain, both):
        with collection.writer() as writer:
            batch = many(750, dim=WIDE)
            writer.write(*batch, descriptions=described(750) if collection is both else None)
        collection.finalize()
    queries = many(20, dim=WIDE, start=5000)[1]

    expected, found = [[hits[0] for hits in one.search(queries, limit=1)] for one in (plain, both)]
    assert [hit.point for hit in found] == [hit.point for hit in expected]
    assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected], abs=1e-6)


@pytest.mark.parametrize("with_graph", [False, True])
def test_a_reader_sees_what_was_written_beside_it(
    request: pytest.FixtureRequest, store: EdgeStore, with_graph: bool
) -> None:
    """A reader has the vectors of descriptions of its state, also those that were added since the graph."""
    if with_graph:
        request.getfixturevalue("graph")
    writer = make(store)
    write(writer, 750)
    writer.finalize()
    points, vectors, encodable = many(40, dim=WIDE)
    early = store.open("toy", read_only=True)
    writer.upsert(points, vectors, encodable, descriptions=np.where(np.arange(40)[:, None] % 2 == 0, vectors[::-1], 0))
    late = store.open("toy", read_only=True)

    np.testing.assert_array_equal(late.description_vectors(points), writer.description_vectors(points))
    np.testing.assert_allclose(late.description_vectors(points[::2]), vectors[::-1][::2], atol=1e-3)
    old = np.where(described(40).any(axis=1, keepdims=True), described(40), vectors)[::2]
    np.testing.assert_allclose(early.description_vectors(points[::2]), old, atol=1e-3)
    early.close()
    late.close()
