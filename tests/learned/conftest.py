"""A linker over a small base, for the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from linker_base import ENTITIES, fill

from pearl_qdrant import EntityLinker


@pytest.fixture
def store_path(tmp_path: Path, model: Path) -> Path:
    """A store with the collection `base`, where `run` looks for it."""
    fill(tmp_path / "store", "base", str(model), ENTITIES, is_loaded=True)
    return tmp_path / "store"


@pytest.fixture
def linker(store_path: Path) -> Iterator[EntityLinker]:
    """A linker over the collection `base`."""
    with EntityLinker.open("base", store=str(store_path)) as opened:
        yield opened
