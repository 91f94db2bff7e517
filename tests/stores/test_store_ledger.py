"""The ledger of a collection, in every kind of store."""

from __future__ import annotations

import pytest
from store_cases import manifest_of, point, put

from pearl_qdrant.store.protocol import Collection, Store

LINES = [b'{"batch":"a"}', '["Z\u00fcrich \u2028 \U0001f984","Q72",1]'.encode(), b'{"end":"a"}']


def test_a_collection_without_a_ledger_has_no_lines(collection: Collection) -> None:
    """Where nothing was learned, there is nothing to read."""
    assert list(collection.read_ledger()) == []


def test_lines_come_back_in_the_order_in_which_they_were_appended(collection: Collection) -> None:
    """What several calls append is read in their order, every letter of it."""
    collection.append_ledger(LINES)
    collection.append_ledger([b"second"])

    assert list(collection.read_ledger()) == [*LINES, b"second"]


def test_many_lines_are_one_call(collection: Collection) -> None:
    """Lines that do not fit into one part come back whole."""
    lines = [b"%d %s" % (i, b"x" * 1000) for i in range(1500)]
    collection.append_ledger(lines)

    assert list(collection.read_ledger()) == lines


def test_a_ledger_belongs_to_the_name_of_a_collection(store: Store, name: str) -> None:
    """A collection that is deleted to be made again has its ledger again; after that it is gone with the collection."""
    first = store.create(manifest_of(name))
    put(first, (point("1", "a"), [1.0]))
    first.append_ledger(LINES)
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


def test_a_ledger_is_no_collection_of_its_own(store: Store, name: str) -> None:
    """The list of collections does not have the ledgers."""
    collection = store.create(manifest_of(name))
    collection.append_ledger(LINES)

    assert [one for one in store.collections() if one.startswith(name)] == [name]
    collection.close()
    store.delete(name)
