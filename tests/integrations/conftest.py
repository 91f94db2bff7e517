"""A linker over a small base in memory, for the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from linker_base import ENTITIES, fill

from pearl_qdrant import EntityLinker


@pytest.fixture(scope="session")
def store_path(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store with the collection `base`."""
    path = tmp_path_factory.mktemp("store")
    fill(path, "base", str(model), ENTITIES, is_loaded=True)
    return path


@pytest.fixture(scope="session")
def linker(store_path: Path) -> Iterator[EntityLinker]:
    """A linker over the collection `base`, beside others."""
    with EntityLinker.open("base", store=str(store_path), read_only=True) as opened:
        yield opened
