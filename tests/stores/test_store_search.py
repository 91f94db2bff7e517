"""Search by vector in every kind of store: results, order and filters."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from store_cases import DIM, many, point, unit, yes

from pearl_qdrant.store import Collection


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
