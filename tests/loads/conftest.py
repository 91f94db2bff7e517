"""Fixtures of the tests of loads."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_models import make_pearl

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.store import Store, open_store


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    """A tiny random model."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    make_pearl(folder)
    return load_encoder(str(folder), device="cpu")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty embedded store."""
    return open_store(str(tmp_path / "store"))
