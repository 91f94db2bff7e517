"""An embedded store, and the child processes that it starts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_cases import manifest_of, many

from pearl_qdrant.store import Store, open_store
from pearl_qdrant.store.edge import child_process as edge_process
from pearl_qdrant.store.edge import collection as edge_collection
from pearl_qdrant.store.edge import shard as edge_shard


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty embedded store."""
    opened = open_store(tmp_path / "store")
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one closed collection of 60 names, which no test changes."""
    store = open_store(tmp_path_factory.mktemp("written") / "store")
    with store.create(manifest_of()).writer() as writer:
        writer.write(*many(60))
    store.close()
    return Path(store.location)


@pytest.fixture
def filled(store: Store, written: Path) -> Store:
    """A store with a copy of that collection."""
    shutil.copytree(written, store.location)
    return store


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[edge_process.EdgeProcess]:
    """The child processes that are started, in order; all points are written in one."""
    started: list[edge_process.EdgeProcess] = []

    class Recorded(edge_process.EdgeProcess):
        def __init__(self, job: edge_process.Job) -> None:
            super().__init__(job)
            started.append(self)

    monkeypatch.setattr(edge_process, "DIRECT_POINTS", 0)
    monkeypatch.setattr(edge_process, "EdgeProcess", Recorded)
    monkeypatch.setattr(edge_collection, "EdgeProcess", Recorded)
    return started


@pytest.fixture
def low_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs for small collections."""
    monkeypatch.setattr(edge_shard, "INDEXING_THRESHOLD_KB", 160)
