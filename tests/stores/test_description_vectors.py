"""Vectors of descriptions in every kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from store_cases import DIM, found, manifest_of, many, point, put, unit, yes

from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.errors import InvalidPointError
from pearl_qdrant.store.protocol import Collection, Store


def test_without_descriptions_it_is_the_vector_of_the_canonical_name(collection: Collection) -> None:
    """Any name of an entity gives the dense vector of its canonical name, in the order of the names."""
    paris = point("Q90", "Paris")
    alias = point("Q90", "City of Light", canonical=False, canonical_name="Paris")
    rome = point("Q220", "Rome")
    put(collection, (paris, [1.0, 2.0]), (alias, [0.0, 0.0, 1.0]), (rome, [0.0, 1.0]))

    vectors = collection.description_vectors([rome, alias, paris, alias])

    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, unit([0.0, 1.0], *[[1.0, 2.0]] * 3), atol=1e-6)


def test_an_entity_without_any_vector_has_zeros(collection: Collection) -> None:
    """Where the canonical name has no vector or is not stored, the row is zero."""
    silent, lost = point("1", "\U0001f600"), point("2", "alias", canonical=False, canonical_name="gone")
    collection.upsert([silent, lost], unit([], [1.0]), np.array([False, True]))

    assert not collection.description_vectors([silent, lost, point("3", "unknown")]).any()


def test_no_points_have_no_vectors(collection: Collection) -> None:
    """An empty list gives an array without rows."""
    assert collection.description_vectors([]).shape == (0, DIM)


def test_many_vectors_are_read_in_parts(collection: Collection) -> None:
    """More points than one request may ask for are returned all the same."""
    points, vectors = many(1300)
    collection.upsert(points, vectors, yes(1300))

    canonical = np.array([i - i % 2 for i in range(1300)])
    assert [p.is_canonical for p in points[:2]] == [True, False]
    aliases = [
        point(p.entity_id, p.name, canonical=False, canonical_name=points[i].name)
        for p, i in zip(points, canonical, strict=True)
    ]
    assert collection.description_vectors(aliases) == pytest.approx(vectors[canonical], abs=1e-6)


@pytest.fixture
def described(store: Store, name: str) -> Iterator[Collection]:
    """An empty collection in each store, which keeps vectors of descriptions."""
    created = store.create(manifest_of(name).model_copy(update={"has_descriptions": True}))
    yield created
    created.close()


PARIS = point("Q90", "Paris", description="capital of France")
CITY = point("Q90", "City of Light", canonical=False, canonical_name="Paris", description="capital of France")
ROME = point("Q220", "Rome")


def write_cities(collection: Collection) -> None:
    """Two names of one entity with a description, and an entity without one."""
    vectors, descriptions = unit([1.0], [0.0, 1.0], [0.0, 0.0, 1.0]), unit([1.0, 2.0, 3.0, 4.0], [], [])
    collection.upsert([PARIS, CITY, ROME], vectors, yes(3), descriptions=descriptions)


def test_vectors_of_descriptions_come_back_normalised(described: Collection) -> None:
    """Each name gives the vector of its entity's description, or of the canonical name where there is none."""
    write_cities(described)

    vectors = described.description_vectors([CITY, ROME, PARIS])

    expected = unit([1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 1.0], [1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(vectors, expected, atol=1e-3)  # stored as float16
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_vectors_of_descriptions_do_not_change_a_search(described: Collection) -> None:
    """A search finds names by their own vectors only, and the counts are those of names."""
    write_cities(described)
    described.finalize()

    assert found(described, [1.0, 2.0, 3.0, 4.0]) == ["Rome", "City of Light", "Paris"]
    status = described.status()
    assert (status.points, status.vectors) == (3, 3)


def test_a_name_that_is_written_again_has_the_new_description(described: Collection) -> None:
    """A later write replaces the vector of a description, or removes it."""
    write_cities(described)
    described.upsert([PARIS], unit([1.0]), yes(1), descriptions=unit([0.0, 0.0, 0.0, 1.0]))
    replaced = described.description_vectors([CITY])
    described.upsert([PARIS], unit([1.0]), yes(1))

    np.testing.assert_allclose(replaced, unit([0.0, 0.0, 0.0, 1.0]), atol=1e-6)
    np.testing.assert_allclose(described.description_vectors([CITY]), unit([1.0]), atol=1e-6)


def test_a_load_stores_vectors_of_descriptions(described: Collection) -> None:
    """A bulk load writes those of canonical names, also in several batches, and for a name without a vector."""
    points, vectors = many(1300)
    descriptions = np.where(np.arange(1300)[:, None] % 4 == 0, vectors[::-1], 0)
    encodable = yes(1300)
    encodable[4] = False
    with described.writer() as writer:
        for start in range(0, 1300, 650):
            part = slice(start, start + 650)
            writer.write(points[part], vectors[part], encodable[part], descriptions=descriptions[part])
    described.finalize()

    canonical = described.description_vectors(points[::2])
    expected = np.where(np.arange(650)[:, None] % 2 == 0, vectors[::-1][::2], vectors[::2])
    np.testing.assert_allclose(canonical, expected, atol=2e-3)
    assert described.status().vectors == 1299


def test_a_new_payload_keeps_the_vector_of_the_description(described: Collection) -> None:
    """Where everything but the vectors is replaced, the description's vector stays."""
    write_cities(described)
    described.replace_payloads([replace(PARIS, types=("GPE",))])

    assert described.description_vectors([PARIS])[0] == pytest.approx(unit([1.0, 2.0, 3.0, 4.0])[0], abs=1e-3)


def test_a_collection_that_is_opened_again_has_them(described: Collection, store: Store) -> None:
    """The setting is in the manifest, and the vectors are in the store."""
    write_cities(described)
    described.close()
    opened = store.open(described.name, read_only=True)

    assert opened.manifest.has_descriptions
    assert opened.description_vectors([PARIS])[0] == pytest.approx(unit([1.0, 2.0, 3.0, 4.0])[0], abs=1e-3)
    opened.close()


@pytest.mark.parametrize(
    "descriptions, message",
    [
        (np.full((1, DIM), np.nan, dtype=np.float32), "description of 'Paris'.*NaN"),
        (np.ones((1, DIM + 1), dtype=np.float32), "description of 'Paris'.*9 dimensions"),
        (np.ones((2, DIM), dtype=np.float32), "1 points and vectors of descriptions .* do not pair up"),
        (np.ones(DIM, dtype=np.float32), "do not pair up"),
    ],
)
def test_bad_vectors_of_descriptions_are_refused(described: Collection, descriptions: FloatArray, message: str) -> None:
    """Nothing is written if a vector of a description cannot be stored."""
    with pytest.raises((InvalidPointError, ValueError), match=message):
        described.upsert([PARIS], unit([1.0]), yes(1), descriptions=descriptions)

    assert described.count() == 0


def test_a_collection_without_them_refuses_them(collection: Collection) -> None:
    """Vectors of descriptions are an error in a collection that was made without them."""
    with pytest.raises(ValueError, match="made without vectors of descriptions"):
        collection.upsert([PARIS], unit([1.0]), yes(1), descriptions=unit([1.0]))
