"""The ledger of a collection, in every kind of store."""

from __future__ import annotations

import pytest
from store_cases import manifest_of, point, put

from pearl_qdrant.store.protocol import Collection, Store

LINES = [b'{"batch":"a"}', '["Z\u00fcrich \u2028 \U0001f984","Q72",1]'.encode(), b'{"end":"a"}']


def test_lines_come_back_in_the_order_in_which_they_were_appended(collection: Collection) -> None:
    """What several calls append is read in their order, every letter of it, also what does not fit into one part."""
    assert list(collection.read_ledger()) == []
    many = [b"%d %s" % (i, b"x" * 1000) for i in range(1500)]
    for lines in (LINES, [b"second"], many):
        collection.append_ledger(lines)

    assert list(collection.read_ledger()) == [*LINES, b"second", *many]


def test_a_ledger_belongs_to_the_name_of_a_collection(store: Store, name: str) -> None:
    """A collection that is deleted to be made again has its ledger again; after that it is gone with the collection."""
    first = store.create(manifest_of(name))
    put(first, (point("1", "a"), [1.0]))
    first.append_ledger(LINES)
    assert [one for one in store.collections() if one.startswith(name)] == [name], "a ledger is none"
    first.close()
    store.delete(name, keep_ledger=True)
    assert name not in store.collections()
    second = store.create(manifest_of(name))
    kept = list(second.read_ledger())
    second.close()
    store.delete(name)
    third = store.create(manifest_of(name))

    assert kept == LINES
    assert list(third.read_ledger()) == []
    third.close()
    store.delete(name)


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
def test_a_collection_can_be_deleted_before_it_learned(store: Store, name: str, again: bool) -> None:
    """Keeping a ledger that is not there is no error."""
    store.create(manifest_of(name)).close()
    store.delete(name, keep_ledger=True)
    if again:
        store.create(manifest_of(name)).close()
        store.delete(name, keep_ledger=again)

    assert name not in store.collections()
