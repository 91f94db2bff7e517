"""The behaviour of every store: the embedded one, and a server over HTTP.

With QDRANT_URL set (and QDRANT_API_KEY), a real server is tested too; tests only touch their own collections.
"""

from __future__ import annotations

import numpy as np
import pytest
from store_cases import DIM, HALF, found, many, point, put, unit, yes

from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.errors import InvalidPointError
from pearl_qdrant.store import Collection
from pearl_qdrant.store.schema import NamePoint


def test_unencodable_names_are_kept_and_never_found_by_vector(collection: Collection) -> None:
    """A name without a vector is counted and found exactly, but no search by vector returns it; its row is not read."""
    points = [point("1", "word"), point("2", "\U0001f600"), point("3", "\U0001f601")]
    vectors = unit([1.0], [], [])
    vectors[2] = np.nan
    collection.upsert(points, vectors, np.array([True, False, False]))

    assert collection.count() == 3
    assert collection.status().vectors == 1
    assert found(collection, [1.0]) == ["word"]
    assert found(collection, [1.0], types=("ORG",)) == ["word"]
    assert [p.entity_id for p in collection.find(names=["\U0001f600"], limit=5)] == ["2"]


def test_invalid_unicode_finds_nothing(collection: Collection) -> None:
    """A name with a lone surrogate matches nothing; the request does not fail."""
    put(collection, (point("1", "a"), [1.0]))

    assert collection.find(names=["\ud800"], limit=5) == []
    assert [p.name for p in collection.find(names=["\ud800", "a"], limit=5)] == ["a"]
    assert collection.delete_entities(["\ud800"]) == 0


def test_many_points_are_read_in_parts(collection: Collection) -> None:
    """Scrolling returns all points, page by page, ordered by id; vectors come for more than one request may ask for."""
    points, vectors, encodable = many(1300)
    with collection.writer() as writer:
        writer.write(points, vectors, encodable)

    assert [p.id for p in collection.scroll()] == sorted(p.id for p in points)
    canonical = np.array([i - i % 2 for i in range(1300)])
    assert collection.canonical_vectors(points) == pytest.approx(vectors[canonical], abs=HALF)


def test_a_bulk_load_stores_everything(collection: Collection) -> None:
    """A load in uneven pieces, of an array that is used again, stores each point once, also when it is done twice."""
    points, vectors, encodable = many(900)
    encodable[::100] = False
    progress: list[tuple[int, int]] = []

    for _ in range(2):
        with collection.writer() as writer:
            for start, stop in ((0, 1), (1, 1), (1, 300), (300, 900)):
                buffer = vectors[start:stop].copy()
                writer.write(points[start:stop], buffer, encodable[start:stop])
                buffer[:] = 0
            writer.flush()
        assert collection.count() == 900
    collection.finalize(lambda done, total: progress.append((done, total)))

    status = collection.status()
    assert (status.points, status.vectors, status.is_finalized) == (900, 891, True)
    assert progress
    assert all(0 <= done <= total == 891 for done, total in progress)
    assert found(collection, vectors[1].tolist(), limit=1) == ["name 1"]
    assert found(collection, vectors[0].tolist(), limit=1) != ["name 0"]


def test_an_error_in_a_load_keeps_what_was_acknowledged(collection: Collection) -> None:
    """If I stop a load by an exception, the flushed points stay."""
    points, vectors, encodable = many(20)

    def load() -> None:
        with collection.writer() as writer:
            writer.write(points, vectors, encodable)
            writer.flush()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load()

    assert collection.count() == 20


@pytest.mark.parametrize("through_writer", [False, True])
def test_bad_points_are_refused_with_their_name(collection: Collection, through_writer: bool) -> None:
    """NaN, zero vectors, wrong widths and invalid Unicode are errors that name the point; nothing is stored."""
    good, nan = unit([1.0], [1.0]), unit([1.0], [1.0])
    nan[1, 3] = np.nan
    cases = [
        (point("1", "bad one"), nan, "bad one"),
        (point("1", "bad one"), unit([1.0], []), "bad one"),
        (point("1", "bad one"), np.ones((2, DIM + 1), dtype=np.float32), str(DIM + 1)),
        (point("1", "lone \ud800"), good, "lone"),
        (point("1", "bad one", description="\udfff"), good, "bad one"),
    ]

    def store_both(bad: NamePoint, vectors: FloatArray) -> None:
        if not through_writer:
            collection.upsert([point("0", "good"), bad], vectors, yes(2))
            return
        with collection.writer() as writer:
            writer.write([point("0", "good"), bad], vectors, yes(2))

    for bad, vectors, shown in cases:
        with pytest.raises(InvalidPointError, match=shown) as caught:
            store_both(bad, vectors)
        str(caught.value).encode("utf-8")

    assert collection.count() == 0


def test_a_bad_payload_changes_nothing(collection: Collection) -> None:
    """A new payload with invalid Unicode is refused, and the stored one stays."""
    old = point("1", "a", description="x")
    put(collection, (old, [1.0, 0.5]))

    with pytest.raises(InvalidPointError, match="lone surrogate"):
        collection.replace_payloads([point("1", "a", description="\udc80")])
    assert collection.get([old.id]) == {old.id: old}
    assert collection.get([]) == {}
