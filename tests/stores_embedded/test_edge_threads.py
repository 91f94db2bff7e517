"""The embedded store with several threads and processes: no hangs, no races."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from store_cases import manifest_of, many

from pearl_qdrant.errors import CollectionNotFoundError, StoreClosedError, StoreError, StoreFullError
from pearl_qdrant.store import Store
from pearl_qdrant.store.edge import child_process
from pearl_qdrant.store.edge import folder as edge_folder
from pearl_qdrant.store.edge import folder as edge_lock
from pearl_qdrant.store.edge import store as edge

JOIN_S = 30.0  # far more than anything here takes: a thread that is still there hangs


class FailingShard:
    """A shard whose flush fails as on a bad disk, after `meanwhile`; the rest is the real one's."""

    def __init__(self, shard: Any, meanwhile: Callable[[], None]) -> None:
        self._shard = shard
        self._meanwhile = meanwhile

    def flush(self) -> None:
        self._meanwhile()
        raise Exception("I/O error (os error 5)")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shard, name)


def lock_noting_its_first_owner_elsewhere(taken: threading.Event) -> Any:
    """Make a lock like the registry's that sets `taken` when another thread acquires it."""
    lock, here = threading.RLock(), threading.get_ident()

    class Noting:
        def __enter__(self) -> None:
            lock.acquire()
            if threading.get_ident() != here:
                taken.set()

        def __exit__(self, *exc_info: object) -> None:
            lock.release()

    return Noting()


def test_a_flush_that_fails_while_another_thread_closes_does_not_hang(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a load cannot start because of the disk while another thread closes the collection, neither thread hangs."""
    collection = store.create(manifest_of())
    folder = collection._folder
    flushing, closing = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def in_flush() -> None:
        flushing.set()
        assert closing.wait(JOIN_S)

    def load() -> None:
        try:
            with collection.writer() as writer:
                writer.write(*many(1))
        except StoreError as error:
            failures.append(error)

    monkeypatch.setattr(child_process, "DIRECT_POINTS", 0)
    folder._shard = FailingShard(folder._shard, in_flush)  # type: ignore[assignment]
    loader = threading.Thread(target=load, daemon=True)
    # The main thread waits below: that another one than it has the registry can only be the closer, until then.
    monkeypatch.setattr(edge_folder._registry, "lock", lock_noting_its_first_owner_elsewhere(closing))
    closer = threading.Thread(target=collection.close, daemon=True)
    loader.start()
    assert flushing.wait(JOIN_S)
    closer.start()
    loader.join(JOIN_S)
    closer.join(JOIN_S)

    assert [thread.is_alive() for thread in (loader, closer)] == [False, False], "they wait for each other"
    assert "os error 5" in str(failures[0])
    reopened = store.open("toy")
    assert reopened.count() == 0


def test_a_deletion_finished_by_another_process_is_not_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may remove the files of a deleted collection: the deletion succeeds."""
    store.create(manifest_of()).close()
    rmtree = shutil.rmtree

    def lose_and_rmtree(path: Path, *, ignore_errors: bool = False) -> None:
        rmtree(path)
        rmtree(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(edge.shutil, "rmtree", lose_and_rmtree)
    store.delete("toy")

    assert store.collections() == []
    assert list(Path(store.location).iterdir()) == []


def test_a_collection_that_another_process_deletes_first_leaves_nothing_behind(
    store: Store, monkeypatch: pytest.MonkeyPatch
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


def test_a_collection_that_cannot_be_moved_is_not_left_locked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_collection_that_is_closed_while_it_is_loaded_can_be_opened_in_the_same_process(store: Store) -> None:
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
    collection = store.open("toy")
    with collection.writer() as writer:
        writer.write(*many(20, start=20))
        collection.close()  # the last handle
    assert store.open("toy", read_only=True).count() == 40
    assert store.open("toy").count() == 40


def test_a_collection_that_could_not_be_opened_after_a_load_can_be_opened_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk is full at the end of a load, I get an error; opened again with space, the collection works."""
    collection = store.create(manifest_of())

    def refuse(self: object) -> None:
        raise StoreFullError("No space left.")

    monkeypatch.setattr(child_process, "DIRECT_POINTS", 0)
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
