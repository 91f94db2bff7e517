"""Search by vector in every kind of store: results, order and filters."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from store_cases import DIM, HALF, found, many, point, put, unit, yes

from pearl_qdrant.store import Collection


def test_scores_are_cosines_best_first(collection: Collection) -> None:
    """The nearest name is first, with its cosine."""
    put(collection, (point("1", "near"), [1.0, 0.1]), (point("2", "far"), [0.0, 1.0]), (point("3", "anti"), [-1.0]))

    hits = collection.search(unit([1.0]), limit=10)[0]

    assert [hit.point.name for hit in hits] == ["near", "far", "anti"]
    assert [hit.score for hit in hits] == pytest.approx([1 / np.sqrt(1.01), 0.0, -1.0], abs=HALF)
    assert found(collection, [1.0], limit=2) == ["near", "far"]


def test_a_query_without_a_vector_finds_nothing(collection: Collection) -> None:
    """A mention that cannot be encoded finds nothing; the others of the batch are not affected."""
    put(collection, (point("1", "a"), [1.0]))

    hits = collection.search(unit([], [1.0], []), limit=5)

    assert [[h.point.name for h in row] for row in hits] == [[], ["a"], []]
    assert collection.search(unit([]), limit=5) == [[]]
    assert collection.search(np.zeros((0, DIM), dtype=np.float32), limit=5) == []


def test_types_filter_native_and_coarse_types(collection: Collection) -> None:
    """A type filter keeps points with one of the types, native or coarse."""
    put(
        collection,
        (point("1", "paper", types=("ORG",), kb_types=("newspaper",)), [1.0]),
        (point("2", "city", types=("GPE",), kb_types=("city", "place")), [1.0, 0.1]),
        (point("3", "man", types=("PERSON",), kb_types=("human",)), [1.0, 0.2]),
    )

    assert found(collection, [1.0], types=("ORG",)) == ["paper"]
    assert found(collection, [1.0], types=("place",)) == ["city"]
    assert found(collection, [1.0], types=("newspaper", "PERSON")) == ["paper", "man"]
    assert found(collection, [1.0], types=("org",)) == []
    assert found(collection, [1.0]) == ["paper", "city", "man"]


def test_the_predicted_type_counts_only_where_the_base_has_no_coarse_type(collection: Collection) -> None:
    """The predicted type replaces a missing type, and never a type of the base."""
    head: dict[str, Any] = {
        "phrase_type": "NP-ORG",
        "lexical_class": "NP",
        "predicted_type": "ORG",
        "type_probability": 0.9,
    }
    put(
        collection,
        (point("1", "untyped", types=(), kb_types=(), **head), [1.0]),
        (point("2", "native only", types=(), kb_types=("place",), **head), [1.0, 0.1]),
        (point("3", "typed otherwise", types=("GPE",), kb_types=(), **head), [1.0, 0.2]),
        (point("4", "nothing known", types=(), kb_types=()), [1.0, 0.3]),
    )

    assert found(collection, [1.0], types=("ORG",)) == ["untyped", "native only"]
    assert found(collection, [1.0], types=("GPE",)) == ["typed otherwise"]


def test_equal_scores_are_ordered_by_point_id(collection: Collection) -> None:
    """Names with equal scores always have the same order, even if the limit cuts through them."""
    points = [point(f"E{i}", "Springfield") for i in range(40)]
    collection.upsert(points, np.repeat(unit([1.0, 2.0, 3.0]), 40, axis=0), yes(40))
    ordered = sorted(p.id for p in points)

    for limit in (1, 5, 39, 40, 100):
        hits = collection.search(unit([1.0, 2.0, 2.5]), limit=limit)[0]
        assert [hit.point.id for hit in hits] == ordered[:limit]


def test_a_batch_gives_what_single_queries_give(collection: Collection) -> None:
    """Many vectors in one call, more than fit into a request, get the same answers as alone."""
    collection.upsert(*many(60, types=("ORG",)))
    _, queries, _ = many(70, start=1)

    batch = collection.search(queries, limit=3, types=("ORG",))

    assert len(batch) == 70
    for i in (0, 63, 64, 69):
        single = collection.search(queries[i : i + 1], limit=3, types=("ORG",))[0]
        assert [h.point.id for h in batch[i]] == [h.point.id for h in single]
        assert [h.score for h in batch[i]] == pytest.approx([h.score for h in single], abs=1e-6)


def test_search_refuses_bad_arguments(collection: Collection) -> None:
    """A query of the wrong width, NaN, a limit of 0, or nothing to find is an error, not an empty answer."""
    with pytest.raises(ValueError, match=str(DIM)):
        collection.search(np.ones((1, DIM + 1), dtype=np.float32), limit=1)
    with pytest.raises(ValueError, match="finite"):
        collection.search(np.full((1, DIM), np.nan, dtype=np.float32), limit=1)
    with pytest.raises(ValueError, match="limit"):
        collection.search(unit([1.0]), limit=0)
    with pytest.raises(ValueError, match="entity_ids"):
        collection.find(limit=10)


def test_many_threads_may_search(collection: Collection) -> None:
    """Concurrent searches return the same as single ones."""
    points, vectors, encodable = many(100)
    collection.upsert(points, vectors, encodable)

    def best(i: int) -> str:
        return collection.search(vectors[i : i + 1], limit=1)[0][0].point.name

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(best, range(40))) == [p.name for p in points[:40]]
