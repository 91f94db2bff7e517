"""The embedded store: its folder, its lock, its points, and several threads and processes."""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edge_cases import python
from store_cases import manifest_of, many

from pearl_qdrant.errors import (
    CollectionExistsError,
    CollectionNotFoundError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreRejectedError,
)
from pearl_qdrant.store import Store, open_store, summarize_collections
from pearl_qdrant.store.edge import child_process
from pearl_qdrant.store.edge import content as edge_content
from pearl_qdrant.store.edge import folder as edge_folder
from pearl_qdrant.store.edge import store as edge
from pearl_qdrant.store.schema import NamePoint

# The folder


def test_a_store_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """A file in place of the folder is a clear error."""
    (tmp_path / "file").write_text("x")
    store = open_store(tmp_path / "file")

    with pytest.raises(StoreError, match="file"):
        store.collections()
    with pytest.raises(StoreError, match="file"):
        store.create(manifest_of())


def test_names_that_no_folder_may_have_are_refused(store: Store) -> None:
    """A collection's name, in any script, is that of a folder: paths and reserved characters are errors."""
    for name in ("", ".", "..", ".hidden", "a/b", "../a", "a\\b", "a:b", "x" * 201, "a\n", "a\x00", "a."):
        for use in (lambda name: store.create(manifest_of(name)), store.open, store.delete):
            with pytest.raises(StoreRejectedError, match="cannot be the name"):
                use(name)
    with pytest.raises(CollectionNotFoundError):
        store.open("toy")
    assert store.collections() == []
    assert not Path(store.location).exists()
    for name in ("Wörter 1.0", "知识库"):
        store.create(manifest_of(name)).close()

    assert store.collections() == ["Wörter 1.0", "知识库"]


def test_other_folders_are_no_collections_and_never_deleted(store: Store) -> None:
    """Another folder within the store is never changed."""
    notes = Path(store.location) / "notes"
    notes.mkdir(parents=True)
    (notes / "keep.txt").write_text("keep")

    assert store.collections() == []
    with pytest.raises(CollectionNotFoundError):
        store.delete("notes")
    with pytest.raises(CollectionExistsError):
        store.create(manifest_of("notes"))
    assert (notes / "keep.txt").read_text() == "keep"


def test_a_failed_create_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """If creating a collection fails, nothing of it is left, and the name is free."""

    def fail(*given: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(edge_content, "write_content", fail)
    with pytest.raises(StoreError, match="Input/output error"):
        store.create(manifest_of())
    monkeypatch.undo()

    assert list(Path(store.location).iterdir()) == []
    store.create(manifest_of())


def test_temporary_folders_of_a_killed_process_are_removed(store: Store) -> None:
    """A temporary folder that is an hour old is removed by the next create; a new one may be in use and stays."""
    old, new = Path(store.location) / ".new-old", Path(store.location) / ".new-new"
    for path in (old, new):
        path.mkdir(parents=True)
    os.utime(old, (0, 0))

    store.create(manifest_of())

    assert (old.exists(), new.exists()) == (False, True)
    assert store.collections() == ["toy"]


def test_a_manifest_is_replaced_atomically(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """If writing a manifest fails, the old one is unchanged."""
    collection = store.create(manifest_of())

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreFullError):
        collection.write_manifest(manifest_of().model_copy(update={"names": 7}))
    monkeypatch.undo()
    assert collection.manifest.names == 0
    collection.close()

    assert store.open("toy").manifest == manifest_of().as_created()


# Opening more than once


def test_opening_twice_in_one_process_shares_the_collection(store: Store) -> None:
    """One handle sees what the other writes; closing one, even twice, does not close the other."""
    first = store.create(manifest_of())
    second = open_store(Path(store.location) / ".." / "store").open("toy")
    points, vectors, encodable = many(10)

    first.upsert(points, vectors, encodable)
    first.write_manifest(first.manifest.model_copy(update={"names": 10}))
    first.close()
    first.close()

    assert second.count() == 10
    assert second.manifest.names == 10
    with pytest.raises(StoreClosedError, match="closed"):
        first.count()
    second.close()
    assert store.open("toy").count() == 10


def test_a_second_process_learns_who_has_the_collection(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error for a collection that another process has open, and its summary, name that process until it exits."""
    with closing(store.create(manifest_of())) as collection:
        collection.upsert(*many(10))
    monkeypatch.setattr(edge_folder, "WAIT_S", 0.1)
    script = """
import sys
from pathlib import Path
from pearl_qdrant.store import Store, open_store
collection = open_store(Path(sys.argv[1])).open("toy")
print("open", flush=True)
sys.stdin.read()
"""
    with python(script, store.location) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        try:
            with pytest.raises(StoreLockedError, match=f"process {other.pid}: -c"):
                store.open("toy")
            with pytest.raises(StoreLockedError, match=str(other.pid)):
                store.delete("toy")
            (summary,) = summarize_collections(store)
            assert (summary.state, summary.names) == ("unfinished", 10)
            assert f"its load did not finish, or still runs: process {other.pid}" in str(summary.problem)
        finally:
            other.kill()

    assert store.open("toy").count() == 10


def test_an_open_collection_is_not_deleted(store: Store) -> None:
    """Deleting an open collection is an error; after closing it works."""
    collection = store.create(manifest_of())
    with pytest.raises(StoreLockedError, match="close it first"):
        store.delete("toy")
    collection.close()

    store.delete("toy")
    assert store.collections() == []


# Points


def test_numbers_of_numpy_are_stored_as_numbers(store: Store) -> None:
    """A probability given as a numpy float is read back as a float."""
    collection = store.create(manifest_of())
    point = NamePoint("t", "1", "a", "a", True, phrase_type="NP-ORG", type_probability=np.float64(0.5))
    _, vectors, encodable = many(1)
    collection.upsert([point], vectors, encodable)

    assert type(collection.find(names=["a"], limit=1)[0].type_probability) is float


JOIN_S = 30.0  # far more than anything here takes: a thread that is still there hangs


def test_a_flush_that_fails_while_another_thread_closes_does_not_hang(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a load cannot start because of the disk while another thread closes the collection, neither thread hangs."""
    collection = store.create(manifest_of())
    flushing, failures = threading.Event(), list[StoreError]()

    def fail(folder: object, shard: Any, doing: str) -> None:
        flushing.set()
        time.sleep(0.3)  # until the other thread waits for the collection
        shard.close()
        raise StoreError("I/O error (os error 5)")

    def load() -> None:
        try:
            with collection.writer() as writer:
                writer.write(*many(1))
        except StoreError as error:
            failures.append(error)

    monkeypatch.setattr(child_process, "DIRECT_POINTS", 0)
    with monkeypatch.context() as patch:
        patch.setattr(edge_folder.CollectionFolder, "_close_shard", fail)
        loader = threading.Thread(target=load, daemon=True)
        closer = threading.Thread(target=collection.close, daemon=True)
        loader.start()
        assert flushing.wait(JOIN_S)
        closer.start()
        loader.join(JOIN_S)
        closer.join(JOIN_S)

    assert [thread.is_alive() for thread in (loader, closer)] == [False, False], "they wait for each other"
    assert "os error 5" in str(failures[0])
    assert store.open("toy").count() == 0


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
    acquire = edge_folder.CollectionLock.acquire

    def acquire_and_lose(path: Path, collection: str) -> edge_folder.CollectionLock:
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
    edge_folder.CollectionLock.acquire(Path(store.location) / "toy" / ".lock", "toy", wait_s=0).release()
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
