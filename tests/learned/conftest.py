"""A linker over a small base, for the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from edge_cases import copy_files
from linker_base import ENTITIES, fill

from pearl_qdrant import EntityLinker


@pytest.fixture(scope="session")
def filled_store(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store with the collection `base`, which tests copy: a copy is faster than writing one."""
    path = tmp_path_factory.mktemp("filled") / "store"
    fill(path, "base", str(model), ENTITIES, is_loaded=True)
    return path


@pytest.fixture
def store_path(filled_store: Path, tmp_path: Path) -> Path:
    """A store with the collection `base`, where `run` looks for it."""
    return copy_files(filled_store, tmp_path / "store")


@pytest.fixture
def linker(store_path: Path) -> Iterator[EntityLinker]:
    """A linker over the collection `base`."""
    with EntityLinker.open("base", store=str(store_path)) as opened:
        yield opened
