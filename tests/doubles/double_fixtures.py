"""A server double for the tests of a file, and stores on it that do not wait long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from qdrant_double import QdrantDouble

from pearl_qdrant.settings import ServerAccess
from pearl_qdrant.store.server import collection as server_collection
from pearl_qdrant.store.server.errors import RetryPolicy
from pearl_qdrant.store.server.store import ServerStore

QUICK = RetryPolicy(tries=4, first_wait_s=0.002, max_wait_s=0.01, max_retry_after_s=0.02)


def connect(url: str, *, timeout: float = 5.0, access: ServerAccess | None = None, **policy: Any) -> ServerStore:
    """A store that does not wait long, or as `RetryPolicy(**policy)` says; the fixture `double` closes it."""
    _opened.append(ServerStore(url, access, timeout=timeout, retry=RetryPolicy(**policy) if policy else QUICK))
    return _opened[-1]


_opened: list[ServerStore] = []


@pytest.fixture(name="running", scope="module")
def running_double() -> Iterator[QdrantDouble]:
    """One server for all tests of a file, which is asked often whether its graph is built."""
    with QdrantDouble() as started, pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_collection, "POLL_S", 0.005)
        yield started


@pytest.fixture(name="shared", scope="module")
def shared_store(running: QdrantDouble) -> Iterator[ServerStore]:
    """One store on it: a client takes a fifth of a second to make."""
    opened = connect(running.url)
    _opened.remove(opened)
    yield opened
    opened.close()


@pytest.fixture(name="double")
def empty_double(running: QdrantDouble) -> Iterator[QdrantDouble]:
    """An empty server, as strict as a managed one."""
    running.reset()
    running.strict = True
    yield running
    while _opened:
        _opened.pop().close()
