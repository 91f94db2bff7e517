"""A server double and a store on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from qdrant_double import QdrantDouble
from transfer_cases import connect, embedded

from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.server.store import ServerStore


@pytest.fixture(scope="module")
def running() -> Iterator[QdrantDouble]:
    """One server for all tests of a file."""
    with QdrantDouble() as started:
        yield started


@pytest.fixture(scope="module")
def shared(running: QdrantDouble) -> Iterator[ServerStore]:
    """One store on it."""
    opened = connect(running)
    yield opened
    opened.close()


@pytest.fixture
def double(running: QdrantDouble) -> QdrantDouble:
    """An empty server, as strict as a managed one."""
    running.reset()
    running.strict = True
    return running


@pytest.fixture
def server(double: QdrantDouble, shared: ServerStore) -> ServerStore:
    """A store on the empty server."""
    return shared


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeStore]:
    """An embedded store with the complete collection `toy`, which no test changes."""
    store = embedded(tmp_path_factory.mktemp("kept") / "store")
    yield store
    store.close()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[EdgeStore]:
    """An embedded store with the complete collection `toy`."""
    store = embedded(tmp_path / "store")
    yield store
    store.close()
