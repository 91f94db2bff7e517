"""Messages of `ingest` about what is stored, after a failure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_runner import Run

from pearl_qdrant.errors import StoreError
from pearl_qdrant.store.edge.bulk_writer import EdgeWriter
from pearl_qdrant.store.edge.collection import EdgeCollection
from pearl_qdrant.store.edge.store import EdgeStore

KEPT = "stored and kept"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base of 60 entities."""
    path = tmp_path / "base.tsv"
    path.write_text("".join(f"E{i}\tw{i} times\n" for i in range(60)), encoding="utf-8")
    return path


def test_nothing_is_said_to_be_kept_where_nothing_was_stored(
    run: Run, base: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load that fails before anything is stored does not claim that something is kept."""

    def refuse(store: EdgeStore, manifest: object, placement: object) -> EdgeCollection:
        raise StoreError("The store cannot be written.")

    monkeypatch.setattr(EdgeStore, "create", refuse)
    outcome = run("ingest", str(base), "--model", str(model))

    assert outcome.status == 1
    assert KEPT not in outcome.err


def test_what_is_stored_is_said_to_be_kept(run: Run, base: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that fails halfway reports how many entities are stored, and the same command resumes there."""
    monkeypatch.setattr("ingest.load.pipeline.WINDOW", 20)
    monkeypatch.setattr("ingest.load.pipeline.FLUSH_S", 0.0)
    flush, flushed = EdgeWriter.flush, []

    def fail_the_third_time(writer: EdgeWriter) -> None:
        flushed.append(True)
        if len(flushed) == 3:
            raise StoreError("The disk went away.")
        flush(writer)

    with monkeypatch.context() as patch:
        patch.setattr(EdgeWriter, "flush", fail_the_third_time)
        failed = run("ingest", str(base), "--model", str(model))
    again = run("ingest", str(base), "--model", str(model))

    assert failed.status == 1
    assert f"40 entities are {KEPT}" in failed.err
    assert again.status == 0
    (resumed,) = re.findall(r"resuming: (\d+) entities", again.err)
    assert int(resumed) >= 40  # what was written after the last flush may be there, too


def test_names_that_were_gone_are_reported(run: Run, base: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If I deleted an entity between a killed load and the next, the load reports that its names are written again."""

    def die(collection: EdgeCollection, on_progress: object = None) -> None:
        raise StoreError("Killed while the graph is built.")

    with monkeypatch.context() as patch:
        patch.setattr(EdgeCollection, "finalize", die)
        assert run("ingest", str(base), "--model", str(model)).status == 1
    assert run("entities", "delete", "E7", "--collection", "base", "--yes").status == 0
    again = run("ingest", str(base), "--model", str(model))

    assert again.status == 0, again.err
    assert "names that had disappeared from the collection and were written again: 1" in again.err
