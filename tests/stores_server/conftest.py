"""A server double, as strict as a managed server, and a store on it."""

from __future__ import annotations

import pytest
from double_fixtures import empty_double, running_double, shared_store  # noqa: F401 (fixtures)
from qdrant_double import QdrantDouble
from store_cases import manifest_of

from pearl_qdrant.store import Collection, Store


@pytest.fixture
def store(double: QdrantDouble, shared: Store) -> Store:
    """A store on the empty server."""
    return shared


@pytest.fixture
def collection(double: QdrantDouble, store: Store) -> Collection:
    """An empty collection; the requests that made it are forgotten."""
    created = store.create(manifest_of())
    double.requests.clear()
    return created
