"""Collections in every kind of store: create, open, delete; their manifests and ledgers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from store_cases import manifest_of, many, point, put

from pearl_qdrant.errors import CollectionExistsError, CollectionNotFoundError, StoreClosedError
from pearl_qdrant.store import Collection, Store
from pearl_qdrant.store.schema import INDEXED_FIELDS


def test_a_collection_is_kept(store: Store, collection: Collection, name: str) -> None:
    """After reopening, manifest and points are the same; the manifest can be replaced, also with empty fields."""
    assert collection.manifest == manifest_of(name).as_created()
    assert collection.name == name
    assert set(INDEXED_FIELDS) <= set(collection.status().payload_indexes)
    first = collection.manifest.model_copy(update={"kb_version": "2024ab", "names": 3})
    collection.write_manifest(first)
    assert collection.manifest == first
    final = collection.manifest.model_copy(update={"kb_version": None, "state": "ready", "names": 2})
    collection.write_manifest(final)
    points, vectors, encodable = many(50)
    with collection.writer() as writer:
        writer.write(points, vectors, encodable)
    collection.finalize()
    collection.close()

    reopened = store.open(name)
    assert (reopened.manifest, reopened.count(), reopened.status().is_finalized) == (final, 50, True)
    assert reopened.search(vectors[9:10], limit=1)[0][0].point.name == "name 9"
    reopened.close()


def test_creating_twice_is_refused(store: Store, collection: Collection, name: str) -> None:
    """Creating an existing collection fails and does not change it."""
    put(collection, (point("1", "a"), [1.0]))

    with pytest.raises(CollectionExistsError, match=name):
        store.create(manifest_of(name, dim=4))

    assert collection.count() == 1


def test_opening_or_deleting_a_missing_collection(store: Store, collection: Collection, name: str) -> None:
    """The error for a missing collection lists the existing ones."""
    with pytest.raises(CollectionNotFoundError, match=name) as caught:
        store.open("pearl-test-absent")
    assert caught.value.collection == "pearl-test-absent"
    assert name in caught.value.existing
    with pytest.raises(CollectionNotFoundError):
        store.delete("pearl-test-absent")


def test_a_deleted_collection_is_gone(store: Store, collection: Collection, name: str) -> None:
    """After deletion I can use the name again, for an empty collection; others, listed by name, share no points."""
    other = store.create(manifest_of(f"{name}-b"))
    put(collection, (point("1", "a"), [1.0]))
    assert (collection.count(), other.count()) == (1, 0)
    assert [one for one in store.collections() if one.startswith(name)] == [name, f"{name}-b"]
    other.close()
    collection.close()

    store.delete(name)

    assert name not in store.collections()
    again = store.create(manifest_of(name))
    assert again.count() == 0
    again.close()


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
