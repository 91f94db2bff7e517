"""A server double and a store on it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from double_fixtures import empty_double, running_double, shared_store  # noqa: F401 (fixtures)
from qdrant_double import QdrantDouble
from transfer_cases import embedded

from pearl_qdrant.store import Store, open_store


@pytest.fixture
def server(double: QdrantDouble, shared: Store) -> Store:
    """A store on the empty server."""
    return shared


@pytest.fixture(scope="session")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the complete collection `toy`, which nobody opens."""
    return Path(embedded(tmp_path_factory.mktemp("complete") / "store").location)


@pytest.fixture(scope="module")
def kept(complete: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """The same, which no test changes."""
    store = open_store(shutil.copytree(complete, tmp_path_factory.mktemp("kept") / "store"))
    yield store
    store.close()


@pytest.fixture
def local(complete: Path, tmp_path: Path) -> Iterator[Store]:
    """An embedded store with the complete collection `toy`."""
    store = open_store(shutil.copytree(complete, tmp_path / "store"))
    yield store
    store.close()
