"""Vectors of canonical names by id, in every kind of store."""

from __future__ import annotations

import numpy as np
import pytest
from store_cases import DIM, many, point, put, unit

from pearl_qdrant.store.protocol import Collection


def test_any_name_has_the_vector_of_the_canonical_name(collection: Collection) -> None:
    """Any name of an entity gives the dense vector of its canonical name, in the order of the names."""
    paris = point("Q90", "Paris")
    alias = point("Q90", "City of Light", canonical=False, canonical_name="Paris")
    rome = point("Q220", "Rome")
    put(collection, (paris, [1.0, 2.0]), (alias, [0.0, 0.0, 1.0]), (rome, [0.0, 1.0]))

    vectors = collection.canonical_vectors([rome, alias, paris, alias])

    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, unit([0.0, 1.0], *[[1.0, 2.0]] * 3), atol=1e-6)


def test_an_entity_without_any_vector_has_zeros(collection: Collection) -> None:
    """Where the canonical name has no vector or is not stored, the row is zero."""
    silent, lost = point("1", "\U0001f600"), point("2", "alias", canonical=False, canonical_name="gone")
    collection.upsert([silent, lost], unit([], [1.0]), np.array([False, True]))

    assert not collection.canonical_vectors([silent, lost, point("3", "unknown")]).any()
    assert collection.canonical_vectors([]).shape == (0, DIM)


def test_many_vectors_are_read_in_parts(collection: Collection) -> None:
    """More points than one request may ask for are returned all the same."""
    points, vectors, encodable = many(1300)
    collection.upsert(points, vectors, encodable)

    canonical = np.array([i - i % 2 for i in range(1300)])
    assert [p.is_canonical for p in points[:2]] == [True, False]
    aliases = [
        point(p.entity_id, p.name, canonical=False, canonical_name=points[i].name)
        for p, i in zip(points, canonical, strict=True)
    ]
    assert collection.canonical_vectors(aliases) == pytest.approx(vectors[canonical], abs=1e-6)
