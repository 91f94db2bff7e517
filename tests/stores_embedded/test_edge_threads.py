"""The embedded store with several threads and processes: no hangs, no races."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from edge_cases import manifest_of, many

from pearl_qdrant.errors import CollectionNotFoundError, StoreClosedError, StoreError, StoreFullError
from pearl_qdrant.store.edge import folder as edge_folder
from pearl_qdrant.store.edge import lock as edge_lock
from pearl_qdrant.store.edge import store as edge
from pearl_qdrant.store.edge.store import EdgeStore


def test_a_collection_that_another_process_deletes_first_leaves_nothing_behind(
    store: EdgeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If two processes delete one collection, the second gets an error that it does not exist; no folder is left."""
    store.create(manifest_of()).close()
    acquire = edge_lock.CollectionLock.acquire

    def acquire_and_lose(path: Path, collection: str) -> edge_lock.CollectionLock:
        lock = acquire(path, collection)
        shutil.rmtree(path.parent)
        return lock

    monkeypatch.setattr(edge.CollectionLock, "acquire", acquire_and_lose)
    with pytest.raises(CollectionNotFoundError, match="'toy' does not exist"):
        store.delete("toy")

    assert list(Path(store.location).iterdir()) == []


def test_a_collection_that_cannot_be_moved_is_not_left_locked(
    store: EdgeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If deleting fails, the collection is unchanged and can be opened by others."""
    store.create(manifest_of()).close()
    failures: list[StoreError] = []

    def fail(path: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail)
        try:
            store.delete("toy")
        except StoreError as error:
            failures.append(error)  # and with it all that its traceback holds

    assert "cannot be deleted: [Errno 13] Permission denied" in str(failures[0])
    edge_lock.CollectionLock.acquire(Path(store.location) / "toy" / ".lock", "toy", wait_s=0).release()
    assert [path.name for path in Path(store.location).iterdir()] == ["toy"]


def test_a_collection_that_is_closed_while_it_is_loaded_can_be_opened_in_the_same_process(store: EdgeStore) -> None:
    """Opened again before the load has ended, it is the same collection; the process does not lock itself out."""
    collection = store.create(manifest_of())
    with collection.writer() as writer:
        writer.write(*many(20))
        collection.close()
        again = store.open("toy")
        with pytest.raises(StoreError, match="being loaded"):
            again.status()

    assert again.count() == 20
    again.close()
    assert store.open("toy").count() == 20


def test_a_collection_that_could_not_be_opened_after_a_load_can_be_opened_again(
    store: EdgeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk is full at the end of a load, I get an error; opened again with space, the collection works."""
    collection = store.create(manifest_of())

    def refuse(self: object) -> None:
        raise StoreFullError("No space left.")

    writer = collection.writer()
    writer.__enter__()
    writer.write(*many(20))
    with monkeypatch.context() as patch:
        patch.setattr(edge_folder.CollectionFolder, "_load", refuse)
        with pytest.raises(StoreFullError):
            writer.__exit__(None, None, None)
    with pytest.raises(StoreClosedError, match=r"'toy' is closed\. Open it again before counting it"):
        collection.count()

    assert store.open("toy").count() == 20
    assert collection.count() == 20
