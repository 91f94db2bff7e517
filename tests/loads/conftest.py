"""Fixtures of the tests of loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from pearl_qdrant.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty embedded store."""
    return open_store(str(tmp_path / "store"))
