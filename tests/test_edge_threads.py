"""The embedded store under threads and beside other processes: nothing hangs, nothing races."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_edge_store import manifest_of

from pearl_qdrant.errors import StoreError
from pearl_qdrant.store import edge_folder
from pearl_qdrant.store.edge import EdgeStore

JOIN_S = 30.0  # far more than anything here takes: a thread that is still there hangs


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EdgeStore]:
    """An empty embedded store."""
    opened = EdgeStore(tmp_path / "store")
    yield opened
    opened.close()


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
    """A lock like the registry's, which sets `taken` once another thread than this one has it."""
    lock, here = threading.RLock(), threading.get_ident()

    class Noting:
        def __enter__(self) -> None:
            lock.acquire()
            if threading.get_ident() != here:
                taken.set()

        def __exit__(self, *exc_info: object) -> None:
            lock.release()

    return Noting()


def test_a_flush_that_fails_while_another_thread_closes_hangs_nobody(
    store: EdgeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a load cannot begin because of the disk, and the collection is closed meanwhile, both threads go on."""
    collection = store.create(manifest_of())
    folder = collection._folder
    flushing, closing = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def in_flush() -> None:
        flushing.set()
        assert closing.wait(JOIN_S)

    def load() -> None:
        try:
            with collection.writer():
                pass
        except StoreError as error:
            failures.append(error)

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
