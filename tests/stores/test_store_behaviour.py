"""The behaviour of every store: the embedded one, and a server over HTTP; what is closed, and ledgers.

With QDRANT_URL set (and QDRANT_API_KEY), a real server is tested too; tests only touch their own collections.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from store_cases import DIM, HALF, found, manifest_of, many, point, put, unit, yes

from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.errors import InvalidPointError, StoreClosedError
from pearl_qdrant.store import Collection, Store
from pearl_qdrant.store.schema import NamePoint


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


@pytest.mark.parametrize("through_writer", [False, True])
def test_bad_points_are_refused_with_their_name(collection: Collection, through_writer: bool) -> None:
    """NaN, zero vectors, wrong widths and invalid Unicode are errors that name the point, and change nothing."""
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
    collection.upsert([point("0", "good")], unit([1.0]), yes(1))
    with pytest.raises(InvalidPointError, match="lone surrogate"):
        collection.replace_payloads([point("0", "good", description="\udc80")])
    assert [one.description for one in collection.scroll()] == [None]
    assert collection.get([]) == {}


def test_using_a_closed_collection_is_a_clear_error(store: Store, collection: Collection, name: str) -> None:
    """Using a closed collection, or a load outside its block, is an error that says what to do."""
    points, vectors, encodable = many(2)
    writer = collection.writer()
    with pytest.raises(StoreClosedError, match=f"'{name}' is not open: use it in a with statement"):
        writer.write(points, vectors, encodable)
    with pytest.raises(StoreClosedError, match="with statement"):
        writer.flush()
    collection.finalize()
    collection.close()
    collection.close()
    uses: list[Callable[[], object]] = [
        collection.count,
        collection.status,
        collection.type_counts,
        collection.finalize,
        lambda: collection.writer().__enter__(),
        lambda: collection.upsert(points, vectors, encodable),
        lambda: collection.search(vectors, limit=1),
        lambda: collection.find(names=["a"], limit=1),
        lambda: collection.get([points[0].id]),
        lambda: next(collection.scroll()),
        lambda: collection.replace_payloads(points),
        lambda: collection.delete_entities(["E1"]),
        lambda: collection.delete_points({points[0].id}),
        lambda: collection.write_manifest(manifest_of(name)),
    ]

    for use in uses:
        with pytest.raises(StoreClosedError, match=f"Collection '{name}' was closed. Open it again"):
            use()


LINES = [b'{"batch":"a"}', '["Z\u00fcrich \u2028 \U0001f984","Q72",1]'.encode(), b'{"end":"a"}']


def test_lines_come_back_in_the_order_in_which_they_were_appended(collection: Collection) -> None:
    """What several calls append is read in their order, every letter of it, also what does not fit into one part."""
    assert list(collection.read_ledger()) == []
    many = [b"%d %s" % (i, b"x" * 1000) for i in range(1500)]
    for lines in (LINES, [b"second"], many):
        collection.append_ledger(lines)

    assert list(collection.read_ledger()) == [*LINES, b"second", *many]
