"""Fixtures of the evaluation tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from evaluation_data import make_evaluation_data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a little of every set except PPDB-filtered, UMLS and BC5CDR."""
    made = tmp_path / "data"
    make_evaluation_data(made)
    return made
