"""A linker over a small base, for the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from linker_base import ENTITIES, fill

from pearl_qdrant import EntityLinker


@pytest.fixture(scope="module")
def store_path(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store with the collection `base`."""
    path = tmp_path_factory.mktemp("store")
    fill(path, "base", str(model), ENTITIES)
    return path


@pytest.fixture(scope="module")
def linker(store_path: Path) -> Iterator[EntityLinker]:
    """A linker over the collection `base`."""
    with EntityLinker.open("base", store=str(store_path), threshold=0.0) as opened:
        yield opened


@pytest.fixture
def own(tmp_path: Path, model: Path) -> Iterator[EntityLinker]:
    """A linker over a collection `base` in `tmp_path`, which a test may change."""
    fill(tmp_path, "base", str(model), ENTITIES)
    with EntityLinker.open("base", store=str(tmp_path), threshold=0.0) as opened:
        yield opened
