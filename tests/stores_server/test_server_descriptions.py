"""Vectors of descriptions on a server: how they are kept, and answers that lack them."""

from __future__ import annotations

import pytest
from qdrant_double import QdrantDouble
from server_cases import manifest_of, points_of

from pearl_qdrant.errors import ManifestError
from pearl_qdrant.store.server.store import ServerStore


def test_vectors_of_descriptions_have_no_graph(double: QdrantDouble, store: ServerStore) -> None:
    """They are on the disk as float16, and only the vectors of names are quantised and in a graph."""
    manifest = manifest_of()
    store.create(manifest.model_copy(update={"collection": "described", "has_descriptions": True}))
    store.create(manifest.model_copy(update={"collection": "plain"}))

    dense, description = (double.created["described"]["vectors"][name] for name in ("dense", "description"))
    assert dense["quantization_config"]["scalar"]["type"] == "int8"
    assert "hnsw_config" not in dense
    assert description == {
        "size": manifest.dim,
        "distance": "Cosine",
        "hnsw_config": {"m": 0},
        "datatype": "float16",
        "on_disk": True,
    }
    assert double.created["plain"]["vectors"] == {"dense": dense}


def test_a_collection_without_the_vectors_of_its_manifest_is_refused(double: QdrantDouble, store: ServerStore) -> None:
    """A manifest that promises vectors of descriptions in a collection that has none is an error on opening."""
    created = store.create(manifest_of())
    created.write_manifest(created.manifest.model_copy(update={"has_descriptions": True}))

    with pytest.raises(ManifestError, match="there should be vectors 'description'"):
        store.open(created.name)


def test_only_missing_descriptions_are_requested_again(double: QdrantDouble, store: ServerStore) -> None:
    """Where all entities have a description, their vectors take one request."""
    manifest = manifest_of().model_copy(update={"has_descriptions": True})
    collection = store.create(manifest)
    points, vectors, encodable = points_of(10)
    collection.upsert(points, vectors, encodable, descriptions=vectors)
    double.requests.clear()
    collection.description_vectors(points)

    assert len(double.requests) == 1
