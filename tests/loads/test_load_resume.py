"""When a load flushes the store, and how soon it stops.
An interrupted load resumes, and writes what is missing.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from qdrant_double import QdrantDouble
from small_loads import CountingEncoder, contents, load, write_base

from ingest.load import pipeline
from ingest.load.request import LoadEvents
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import StoreError
from pearl_qdrant.store import Store, open_store
from pearl_qdrant.store.edge.child_process import EdgeWriter


@pytest.mark.parametrize("step_s, n_flushes", [(0.0, 1), (4.0, 2), (11.0, 6)])
def test_the_store_is_flushed_every_ten_seconds(
    tmp_path: Path, store: Store, encoder: Encoder, monkeypatch: pytest.MonkeyPatch, step_s: float, n_flushes: int
) -> None:
    """Few names are kept, too, if they took long; the last call is for the whole input."""
    monkeypatch.setattr(pipeline, "WINDOW", 40)
    clock = [0.0]
    monkeypatch.setattr(pipeline.time, "perf_counter", lambda: clock[0])
    stored: list[int] = []

    class Heard(LoadEvents):
        def names_done(self, names: int) -> None:
            clock[0] += step_s

        def entities_stored(self, entities: int) -> None:
            stored.append(entities)

    load(write_base(tmp_path / "base.tsv", 95), store, encoder, events=Heard())

    assert len(stored) == n_flushes
    assert stored == sorted(stored)
    assert stored[-1] == 95


@pytest.mark.parametrize("on_server", [False, True])
def test_what_is_stored_is_not_encoded_again(
    tmp_path: Path, store: Store, encoder: Encoder, monkeypatch: pytest.MonkeyPatch, on_server: bool
) -> None:
    """A load that failed halfway is marked as incomplete, and goes on with the names that are not stored."""
    monkeypatch.setattr("ingest.load.pipeline.WINDOW", 20)
    path = write_base(tmp_path / "base.tsv", 100)
    with QdrantDouble() as double, closing(open_store(double.url)) as server:
        used: Store = server if on_server else store
        with pytest.raises(MemoryError):
            load(path, used, CountingEncoder(encoder, fail_at=6))
        with closing(used.open("base")) as collection:
            n_stored, manifest = collection.count(), collection.read_manifest()
        assert (manifest.state, len(manifest.checkpoints)) == ("loading", 1)
        counting = CountingEncoder(encoder)
        result = load(path, used, counting)

        assert n_stored >= 20
        assert result.resumed_at == n_stored // 2
        assert len(counting.names) <= 200 - n_stored
        assert result.points == 200
        with closing(used.open("base")) as collection:
            manifest = collection.read_manifest()
        assert (manifest.state, manifest.checkpoints) == ("ready", ())
        resumed = contents(used)
    fresh = open_store(str(tmp_path / "fresh"))
    load(path, fresh, encoder)
    assert resumed == contents(fresh)


@pytest.mark.parametrize("on_server", [False, True])
def test_a_load_that_dies_before_its_last_write_resumes(
    tmp_path: Path, store: Store, encoder: Encoder, monkeypatch: pytest.MonkeyPatch, on_server: bool
) -> None:
    """All names and the graph are there. The checkpoint stays until the manifest has the input, so nothing is asked."""
    path = write_base(tmp_path / "base.tsv", 20)
    with QdrantDouble() as double, closing(open_store(double.url)) as server:
        used: Store = server if on_server else store
        with monkeypatch.context() as dying:
            dying.setattr("ingest.load.pipeline.IdfTable.from_names", lambda names: (_ for _ in ()).throw(MemoryError))
            with pytest.raises(MemoryError):
                load(path, used, encoder)
        with closing(used.open("base")) as collection:
            manifest = collection.read_manifest()
            assert ([one.entities for one in manifest.checkpoints], manifest.state) == ([20], "loading")
        counting = CountingEncoder(encoder)
        result = load(path, used, counting)

        assert (result.resumed_at, result.points, counting.names) == (20, 40, [])
        with closing(used.open("base")) as collection:
            manifest = collection.read_manifest()
            assert (manifest.checkpoints, manifest.state, len(manifest.loaded)) == ((), "ready", 1)


def test_a_store_that_loses_points_is_noticed(
    tmp_path: Path, store: Store, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the store holds fewer points than were written, the load fails with an error."""
    write = EdgeWriter.write
    monkeypatch.setattr(EdgeWriter, "write", lambda self, *rows: write(self, *(part[1:] for part in rows)))
    with pytest.raises(StoreError, match="holds 19 points after a load of 20"):
        load(write_base(tmp_path / "base.tsv", 10), store, encoder)
