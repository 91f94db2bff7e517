"""Forked processes cannot use the handles of their parent, and do no damage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from edge_cases import ROOT, digest, left, nearest_names
from qdrant_double import QdrantDouble
from store_cases import manifest_of, many

from pearl_qdrant.errors import StoreForkedError, StoreLockedError
from pearl_qdrant.store import Collection, Store, open_store
from pearl_qdrant.store.edge import folder as edge_folder

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),  # of threads, since 3.12
]

HANGS_S = 60  # seconds after which a child is killed; it takes none


@pytest.fixture
def filled(store: Store) -> Collection:
    """A collection of 20 points that are not flushed yet."""
    collection = store.create(manifest_of())
    collection.upsert(*many(20))
    return collection


def in_child(do: Callable[[], object]) -> str:
    """Run `do` in a forked child; return its result or its error, as text."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(HANGS_S)
        try:
            said = str(do())
        except BaseException as error:  # noqa: BLE001 - the parent is told
            said = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        said = answers.read().decode()
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child ended with {status}"
    return said


def digests(store: Store) -> dict[str, str]:
    """Digest of each file of a store."""
    files = sorted(file for file in Path(store.location).rglob("*") if file.is_file())
    return {str(file): digest(file) for file in files}


USES: list[Callable[[Store, Collection], object]] = [
    lambda store, collection: collection.count(),
    lambda store, collection: collection.search(many(1)[1], limit=1),
    lambda store, collection: collection.upsert(*many(5, start=100)),
    lambda store, collection: collection.get(["00000000-0000-4000-8000-000000000000"]),
    lambda store, collection: next(collection.scroll()),
    lambda store, collection: collection.write_manifest(manifest_of()),
    lambda store, collection: collection.delete_entities(["E1"]),
    lambda store, collection: collection.writer().__enter__(),
    lambda store, collection: collection.finalize(),
    lambda store, collection: collection.status(),
    lambda store, collection: store.open("toy"),
    lambda store, collection: store.create(manifest_of("other")),
    lambda store, collection: store.delete("toy"),
    lambda store, collection: store.collections(),
]


def test_every_use_of_a_collection_in_a_fork_is_a_clear_error(store: Store, filled: Collection) -> None:
    """The error in a forked process names the process that opened the collection and what to do; no file changes."""
    before = digests(store)
    told = [in_child(lambda use=use: use(store, filled)) for use in USES]

    for text in told:
        assert text.startswith("StoreForkedError: "), text
        assert f"opened by process {os.getpid()} and cannot be used by process" in text
        assert "Open it in this process" in text
        assert "'spawn'" in text
    assert digests(store) == before
    assert filled.count() == 20


def test_a_fork_leaves_the_view_to_its_parent(store: Store, filled: Collection) -> None:
    """A forked process may neither use nor remove the view of its parent."""
    filled.close()
    reader = store.open("toy", read_only=True)

    assert in_child(reader.count).startswith("StoreForkedError")
    assert in_child(reader.close) == "None"
    assert reader.count() == 20
    assert len(left(store)) == 1


EXITS = """
import gc, os, sys
from pathlib import Path

sys.path.insert(0, "tests/support")

from edge_cases import digest
from store_cases import manifest_of, many

from pearl_qdrant.store import open_store
from pearl_qdrant.store.edge.folder import find_owner

def digests():
    return {file: digest(file) for file in place.rglob("*") if file.is_file()}

place = Path(sys.argv[1])
store = open_store(place)
collection = store.create(manifest_of())
collection.upsert(*many(20))
before = digests()
for way in ("exit", "collect", "close"):
    if os.fork() == 0:
        if way == "collect":
            del collection, store
            gc.collect()
        elif way == "close":
            collection.close()
            store.close()
        sys.exit(0)  # with all that an interpreter does at its end
    _, status = os.wait()
    assert status == 0, (way, status)
    assert digests() == before, way
    assert str(os.getpid()) in find_owner(place / "toy" / ".lock"), way
collection.upsert(*many(20, start=20))
"""


def test_a_fork_that_exits_leaves_files_and_lock_to_its_parent(tmp_path: Path) -> None:
    """The exit of a forked interpreter flushes nothing into the files of its parent, and unlocks nothing; that of the
    parent closes its collections, and leaves nothing of the writer.
    """
    place = tmp_path / "store"
    script = [sys.executable, "-c", EXITS, str(place)]
    ended = subprocess.run(script, capture_output=True, text=True, check=False, cwd=ROOT)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert not (place / "toy" / "work").exists()
    assert open_store(place).open("toy").count() == 40


@pytest.mark.parametrize("kind", ["embedded", "server"])
def test_a_fork_during_a_load_leaves_the_load_alone(store: Store, kind: str) -> None:
    """A forked process that leaves the load's block by an error neither stops nor awaits the load of its parent."""
    points, vectors, encodable = many(50)

    def leave() -> str:
        try:
            writer.write(points, vectors, encodable)
        except StoreForkedError as error:
            writer.__exit__(type(error), error, None)
            collection.close()
            return "refused"
        return "written"

    with QdrantDouble() as double:
        remote = open_store(double.url)
        collection: Collection = (remote if kind == "server" else store).create(manifest_of())
        with collection.writer() as writer:
            writer.write(points[:20], vectors[:20], encodable[:20])
            if kind == "embedded":
                writer.flush()
            told = in_child(leave)
            writer.write(points[20:], vectors[20:], encodable[20:])

        assert told == "refused"
        assert nearest_names(collection, vectors) == [point.name for point in points]
        remote.close()


def test_a_fork_may_open_a_store_of_its_own(store: Store, filled: Collection) -> None:
    """A fork can open other collections, even if it was forked while a thread opened one."""
    filled.close()
    held, forked = threading.Event(), threading.Event()

    def hold() -> None:
        with edge_folder._registry.lock:
            held.set()
            forked.wait(HANGS_S)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(HANGS_S)
    told = in_child(lambda: open_store(Path(store.location)).open("toy").count())
    forked.set()
    holder.join()

    assert told == "20"


def test_a_lock_outlives_the_forks_of_its_owner(store: Store, filled: Collection, tmp_path: Path) -> None:
    """A fork that outlives its parent does not keep the collection locked."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(HANGS_S)
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    filled.close()
    lock = edge_folder.CollectionLock.acquire(Path(store.location) / "toy" / ".lock", "toy", wait_s=0)
    with pytest.raises(StoreLockedError):
        edge_folder.CollectionLock.acquire(Path(store.location) / "toy" / ".lock", "toy", wait_s=0)
    lock.release()
    os.close(writing)
    os.close(reading)
    os.waitpid(pid, 0)

    assert store.open("toy").count() == 20


def test_a_fork_does_not_share_a_servers_connections(name: str) -> None:
    """Using the parent's connection in a fork is an error, since both would read each other's answers."""
    with QdrantDouble() as double:
        store = open_store(double.url)
        collection: Collection = store.create(manifest_of(name))
        vectors = np.ones((1, 8), dtype=np.float32)
        before = len(double.requests)
        uses: list[Callable[[], object]] = [
            collection.count,
            lambda: collection.search(vectors, limit=1),
            lambda: collection.upsert(*many(1)),
            collection.writer,
            store.collections,
            lambda: store.open(name),
            store.close,
        ]
        told = [in_child(use) for use in uses]

        for text in told[:-1]:
            assert text.startswith(f"StoreForkedError: The store {double.url} was opened by process {os.getpid()}")
        assert told[-1] == "None"
        assert len(double.requests) == before
        collection.upsert(*many(3))
        assert collection.count() == 3
        store.close()
