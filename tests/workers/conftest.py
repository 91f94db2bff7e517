"""Linkers over a small base, with two workers and small windows, for the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from linker_base import ENTITIES, fill

from pearl_qdrant import EntityLinker
from pearl_qdrant.linking import workers as jobs


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers get a few mentions or passages at a time, so that short batches have many windows."""
    monkeypatch.setattr(jobs, "MENTIONS", 4)
    monkeypatch.setattr(jobs, "PASSAGES", 2)


@pytest.fixture(scope="session")
def reader(base_store: Path) -> Iterator[EntityLinker]:
    """A linker that only reads; its workers start with the first test that uses them."""
    with EntityLinker.open("base", store=str(base_store), threshold=0.0, read_only=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def open_writer(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[EntityLinker]:
    """A linker that may write, over a base of its own."""
    path = tmp_path_factory.mktemp("writer") / "store"
    fill(path, "base", str(model), ENTITIES, is_loaded=True)
    with EntityLinker.open("base", store=str(path), threshold=0.0) as opened:
        yield opened


@pytest.fixture
def writer(open_writer: EntityLinker) -> EntityLinker:
    """The same without what a test before added to its base."""
    open_writer.delete(["flu"])
    return open_writer
