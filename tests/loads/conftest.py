"""Fixtures of the tests of loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.store import Store, open_store


@pytest.fixture(scope="module")
def encoder(model: Path) -> Encoder:
    """A tiny model."""
    return load_encoder(str(model), device="cpu")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty embedded store."""
    return open_store(str(tmp_path / "store"))
