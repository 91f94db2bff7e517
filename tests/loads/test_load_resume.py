"""A load as a whole: what it reads, encodes and writes, when it flushes, and how it resumes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from counting_encoder import CountingEncoder
from qdrant_double import QdrantDouble
from small_loads import contents, load, manifest_for, write_base
from store_cases import vectors_of

from ingest.load import pipeline
from ingest.load.pipeline import overlap
from ingest.load.request import LoadEvents
from pearl_qdrant import LoadResult, load_base
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
        counting, heard = CountingEncoder(encoder), Mock(wraps=LoadEvents())
        result = load(path, used, counting, events=heard)

        assert n_stored >= 20
        assert sum(one.args[0] for one in heard.names_stored.call_args_list) == n_stored
        assert sum(one.args[0] for one in heard.names_done.call_args_list) == 200 - n_stored
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


def test_every_name_becomes_a_point(tmp_path: Path, store: Store, encoder: Encoder) -> None:
    """What I ingest is all there, with its phrase types, and the report counts it exactly."""
    result = load(write_base(tmp_path / "base.tsv", 50), store, encoder)

    assert (result.entities, result.names, result.points) == (50, 100, 100)
    assert result.distinct_names == 100 - 4
    points = contents(store)
    assert len(points) == 100
    assert all(point.phrase_type and point.types == ("ORG",) for point in points.values())  # type: ignore[attr-defined]


def load_shard(url: str, path: Path, encoder: Encoder) -> LoadResult:
    """Load one of several inputs into the collection `base` of a server."""
    return load_base(path, "base", store=url, model=encoder)


def test_several_inputs_are_loaded_at_once(tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of a base go into one collection on a server in parallel; one that is interrupted resumes on its own."""
    monkeypatch.setattr("ingest.load.pipeline.WINDOW", 20)
    rows = write_base(tmp_path / "all.tsv", 300).read_text("utf-8").splitlines()
    shards = [tmp_path / f"shard{i}.tsv" for i in range(3)]
    for i, shard in enumerate(shards):
        shard.write_text("\n".join([rows[0], *rows[1 + i :: 3]]) + "\n", encoding="utf-8")
    with QdrantDouble() as double:
        store = open_store(double.url)
        collection = store.create(manifest_for(encoder))
        with pytest.raises(MemoryError):
            load_shard(double.url, shards[0], CountingEncoder(encoder, fail_at=4))

        with ThreadPoolExecutor(2) as threads:
            others = list(threads.map(lambda shard: load_shard(double.url, shard, encoder), shards[1:]))
        assert all(str(shards[0]) in other.unfinished for other in others)
        manifest = collection.read_manifest()
        assert manifest.state == "loading"
        assert [one.is_done for one in manifest.checkpoints] == [False, True, True]
        assert not collection.status().is_finalized

        last = load_shard(double.url, shards[0], encoder)
        assert last.resumed_at > 0
        assert (last.unfinished, last.points) == ((), 600)
        manifest = collection.read_manifest()
        assert manifest.checkpoints == ()
        assert (manifest.state, manifest.entities, manifest.names) == ("ready", 300, 600)
        assert collection.status().is_finalized
        stored = {point.id: point for point in collection.scroll()}
        store.close()
    whole = open_store(str(tmp_path / "whole"))
    load(tmp_path / "all.tsv", whole, encoder)
    assert stored == contents(whole)


@pytest.mark.parametrize("capacity", [32_768, 2])
def test_each_distinct_name_is_encoded_once(
    tmp_path: Path, store: Store, encoder: Encoder, monkeypatch: pytest.MonkeyPatch, capacity: int
) -> None:
    """A name that many entities share is encoded once, at any distance, as far as memory allows; it has its vector."""
    path, whole = tmp_path / "base.tsv", open_store(str(tmp_path / "whole"))
    rows = "".join(f"E{i}\tw{i}\tORG\tthe times|post {i % 7}\n" for i in range(120))
    load(path, whole, encoder, text=f"id\tname\ttype\taliases\n{rows}")
    monkeypatch.setattr("ingest.load.pipeline.WINDOW", 16)
    monkeypatch.setattr("ingest.load.pipeline.CAPACITY", capacity)
    counting = CountingEncoder(encoder)

    result = load(path, store, counting)

    assert result.distinct_names == len(set(counting.names)) == 120 + 1 + 7
    assert (len(counting.names) > result.distinct_names) == (capacity == 2)
    with closing(store.open("base")) as ours, closing(whole.open("base")) as theirs:
        assert vectors_of(ours) == pytest.approx(vectors_of(theirs), abs=1e-6)


def test_the_counts_of_a_report_add_up(tmp_path: Path, store: Store, encoder: Encoder) -> None:
    """Names with and without a vector, of this input and of others, add up to the points, also of a second input."""
    first, second = tmp_path / "a.tsv", tmp_path / "b.tsv"
    first.write_text("E1\tthe times\nE2\t\U0001f984\n", "utf-8")
    second.write_text("E3\tpost\nE4\t\U0001f5de\n", "utf-8")
    reports = [load(path, store, encoder).to_json() for path in (first, second, second)]

    assert [(one["points"], one["without_vector"]) for one in reports] == [(2, 1), (4, 2), (4, 2)]
    for one in reports:
        assert one["points"] == one["names"] + one["other_names"] == one["with_vector"] + one["without_vector"]
        assert one["seconds"] == pytest.approx(one["load_seconds"] + one["graph_seconds"], abs=2e-3)


def test_overlap_stops_its_producer_when_the_consumer_stops() -> None:
    """Stopping a load early leaves no thread behind, and closes the files of the producer."""
    closed = []

    def produce() -> Any:
        try:
            yield from range(10**9)
        finally:
            closed.append(True)

    items = overlap(produce(), 2)
    assert next(items) == 0
    items.close()
    assert closed == [True]
