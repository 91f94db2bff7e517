"""A store with a small base, for the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from calibrated_base import base_file
from edge_cases import copy_files

from pearl_qdrant import load_base
from pearl_qdrant.linking.calibration import calibrate


@pytest.fixture(scope="module")
def filled_store(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store with the collection `base`, which tests copy: a copy is much faster than a load."""
    folder = tmp_path_factory.mktemp("filled")
    load_base(base_file(folder), "base", store=str(folder / "store"), model=str(model))
    return folder / "store"


@pytest.fixture
def ingested(filled_store: Path, tmp_path: Path) -> Path:
    """A store with the collection `base`, where `run` looks for it; its folder."""
    return copy_files(filled_store, tmp_path / "store")


@pytest.fixture(autouse=True, scope="module")
def quick_calibrations() -> Iterator[None]:
    """Every calibration of this folder is a quick one, with few mentions of each kind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibrate, "PER_KIND", 8)
        yield
