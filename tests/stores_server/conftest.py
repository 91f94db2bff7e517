"""A server double, as strict as a managed server, and a store on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from qdrant_double import QdrantDouble
from server_cases import connect, manifest_of

from pearl_qdrant.store.server.collection import ServerCollection
from pearl_qdrant.store.server.store import ServerStore


@pytest.fixture(scope="module")
def running() -> Iterator[QdrantDouble]:
    """One server for all tests of this file."""
    with QdrantDouble() as started:
        yield started


@pytest.fixture(scope="module")
def shared(running: QdrantDouble) -> Iterator[ServerStore]:
    """One store on it: a client takes a fifth of a second to make."""
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
def store(double: QdrantDouble, shared: ServerStore) -> ServerStore:
    """A store on the empty server."""
    return shared


@pytest.fixture
def collection(double: QdrantDouble, store: ServerStore) -> ServerCollection:
    """An empty collection; the requests that made it are forgotten."""
    created = store.create(manifest_of())
    double.requests.clear()
    return created
