"""Loads and graphs of the embedded store in child processes, which are really killed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from edge_cases import WIDE, is_running, kill, nearest_names, taken_files, wait_until
from store_cases import manifest_of, many

from pearl_qdrant.errors import StoreClosedError, StoreError, StoreFullError
from pearl_qdrant.store import Collection, Store
from pearl_qdrant.store.edge import child_process as edge_process
from pearl_qdrant.store.edge import folder as edge_folder
from pearl_qdrant.store.schema import INDEXED_FIELDS, Quantization

# The writing process


def test_while_it_is_loaded_a_collection_is_neither_counted_nor_searched(store: Store) -> None:
    """A search during a load is an error at once, and works after the load."""
    collection = store.create(manifest_of())
    points, vectors, encodable = many(50)
    with collection.writer() as writer:
        writer.write(points, vectors, encodable)
        with pytest.raises(StoreError, match="being loaded"):
            collection.count()
        with pytest.raises(StoreError, match="being loaded"):
            collection.search(vectors, limit=1)
        with pytest.raises(StoreError, match="being loaded"), collection.writer():
            pass

    assert nearest_names(collection, vectors) == [point.name for point in points]
    with pytest.raises(StoreClosedError, match="with statement"):
        writer.write(points, vectors, encodable)


def test_only_a_large_load_starts_a_process(
    store: Store, children: list[edge_process.EdgeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first points are written without one, and kept, also if the load fails then."""
    monkeypatch.setattr(edge_process, "DIRECT_POINTS", 30)
    collection = store.create(manifest_of())
    with collection.writer() as writer:
        writer.flush()
        writer.write(*many(20))
        writer.flush()
    assert (children, collection.count()) == ([], 20)

    def fail() -> None:
        with collection.writer() as writer:
            writer.write(*many(20, start=20))
            assert children == []
            writer.write(*many(20, start=40))
            kill(children[-1])
            writer.flush()

    with pytest.raises(StoreError, match="SIGKILL"):
        fail()
    assert len(children) == 1
    names = {point.name for point in collection.scroll()}
    assert names >= {f"name {i}" for i in range(40)}


def test_a_killed_writer_loses_nothing_that_it_acknowledged(
    store: Store, children: list[edge_process.EdgeProcess]
) -> None:
    """After kill -9 of the writing process, flushed points are kept, and a new load completes."""
    collection = store.create(manifest_of())
    points, vectors, encodable = many(1200)

    def load(*, is_killed: bool) -> None:
        with collection.writer() as writer:
            writer.write(points[:600], vectors[:600], encodable[:600])
            writer.flush()
            writer.write(points[600:], vectors[600:], encodable[600:])
            if is_killed:
                kill(children[-1])
                with pytest.raises(StoreError, match="SIGKILL"):
                    writer.flush()
                writer.write(points, vectors, encodable)

    with pytest.raises(StoreError, match=r"that writes collection.*SIGKILL.*memory.*is kept.*again"):
        load(is_killed=True)
    assert collection.count() >= 600
    assert nearest_names(collection, vectors[:50]) == [point.name for point in points[:50]]

    load(is_killed=False)
    assert collection.count() == 1200
    assert [point.id for point in collection.scroll()] == sorted(point.id for point in points)


@pytest.mark.parametrize(
    "number, free, expected, message",
    [
        (signal.SIGBUS, 5_000_000, StoreFullError, r"5 MB free.*SIGBUS.*free some space"),
        (signal.SIGBUS, 10**12, StoreError, r"SIGBUS.*1,000,000 MB are free now.*is kept"),
        (signal.SIGKILL, 0, StoreFullError, r"0 MB free.*SIGKILL.*free some space"),
    ],
)
def test_the_error_for_a_killed_writer_names_the_free_space(
    store: Store,
    children: list[edge_process.EdgeProcess],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    free: int,
    expected: type[StoreError],
    message: str,
) -> None:
    """The error names the signal; it blames the disk only if there is no space left."""
    usage = SimpleNamespace(disk_usage=lambda path: SimpleNamespace(free=free))

    def load() -> None:
        with store.create(manifest_of()).writer() as writer:
            writer.write(*many(10))
            writer.flush()
            kill(children[0], number)
            monkeypatch.setattr(edge_process, "shutil", usage)
            writer.flush()

    with pytest.raises(StoreError, match=message) as told:
        load()

    assert type(told.value) is expected


def test_a_stopped_load_does_not_wait_for_its_process(store: Store, children: list[edge_process.EdgeProcess]) -> None:
    """It may be compacting: it is killed, and what it had acknowledged is kept."""
    collection = store.create(manifest_of())

    def load() -> None:
        with collection.writer() as writer:
            writer.write(*many(10))
            writer.flush()
            kill(children[0], signal.SIGSTOP)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load()

    assert collection.count() == 10


def test_ctrl_c_does_not_stop_the_writing_process(store: Store, children: list[edge_process.EdgeProcess]) -> None:
    """Ctrl-C in a terminal also reaches the writing process, which ignores it."""
    collection = store.create(manifest_of())
    with collection.writer() as writer:
        writer.write(*many(10))
        writer.flush()
        kill(children[0], signal.SIGINT)
        writer.write(*many(10, start=10))

    assert collection.count() == 20


@pytest.mark.slow
def test_a_large_load_uses_several_processes(
    store: Store, low_threshold: None, children: list[edge_process.EdgeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each child exits after a compaction; filters and counts are exact with and without payload indexes."""
    monkeypatch.setattr(edge_folder, "SMALL_POINTS", 500)
    monkeypatch.setattr(edge_folder, "COMPACT_UNINDEXED_POINTS", 800)
    collection = store.create(manifest_of(dim=WIDE))
    points, vectors, encodable = many(1900, dim=WIDE)
    with collection.writer() as writer:
        for start in range(0, 1900, 400):
            part = slice(start, start + 400)
            writer.write(points[part], vectors[part], encodable[part])
        writer.write(points[:3], vectors[:3], encodable[:3])

    def check() -> None:
        assert (collection.count(), collection.count_entities()) == (1900, 950)
        assert collection.type_counts(2)["types"] == {"ORG": 634, "GPE": 633}
        assert len(collection.find(entity_ids=["E7"], limit=9)) == 2
        hits = collection.search(vectors[:40], limit=3, types=["GPE"])
        assert {hit.point.types for row in hits for hit in row} == {("GPE",)}
        assert nearest_names(collection, vectors[::30]) == [point.name for point in points[::30]]

    assert len(children) == 3
    status = collection.status()
    assert (status.payload_indexes, status.indexed_vectors, status.is_finalized) == ((), 0, False)
    check()

    progress: list[tuple[int, int]] = []
    collection.finalize(lambda done, total: progress.append((done, total)))

    status = collection.status()
    assert (status.payload_indexes, status.indexed_vectors, status.is_finalized) == (INDEXED_FIELDS, 1900, True)
    assert status.segments <= 2
    assert progress == [(0, 1900), (1900, 1900)]
    check()


# The graph


@pytest.fixture
def wide(store: Store, low_threshold: None) -> Collection:
    """A collection that is large enough for a graph, and has none yet."""
    collection = store.create(manifest_of(dim=WIDE))
    with collection.writer() as writer:
        writer.write(*many(1000, dim=WIDE))
    return collection


@pytest.mark.parametrize(
    "quantization, error", [("turbo4", 2e-4), ("int8", 1e-5), pytest.param("none", 1e-5, marks=pytest.mark.slow)]
)
def test_scores_come_from_the_full_vectors(
    store: Store, low_threshold: None, quantization: Quantization, error: float
) -> None:
    """With every quantization a score is the cosine to the digits that are stored, with and without a filter."""
    collection = store.create(manifest_of(dim=WIDE, quantization=quantization))
    points, vectors, encodable = many(800, dim=WIDE)
    collection.upsert(points, vectors, encodable)
    collection.finalize()
    assert collection.status().indexed_vectors == 800
    # Between two of the points: no score is 1.
    queries = vectors[:40] + vectors[100:140]
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    row_of = {point.name: i for i, point in enumerate(points)}

    for types in ((), ("ORG",)):
        found = collection.search(queries, limit=5, types=types)
        for query, hits in zip(queries, found, strict=True):
            exact = [float(query @ vectors[row_of[hit.point.name]]) for hit in hits]
            assert len(hits) == 5
            np.testing.assert_allclose([hit.score for hit in hits], exact, atol=error)
    # Each query has two nearest points, of equal score.
    nearest = collection.search(queries, limit=2)
    right = sum({hit.point.name for hit in hits} == {f"name {i}", f"name {i + 100}"} for i, hits in enumerate(nearest))
    assert right >= 38


def test_a_graph_is_as_it_is_configured_and_what_is_written_after_it_is_found(
    store: Store, wide: Collection, tmp_path: Path
) -> None:
    """Dense vectors are linked, and also kept quantised; sparse ones are neither. A later load is searched at once; a
    large one shows as not finalized, and finalize adds it to the graph, with its older parameters.
    """
    wide.finalize()

    shard = taken_files(store.location, tmp_path / "taken")
    assert {file.parent.name for file in shard.rglob("quantized.data")} == {"vector_storage-dense"}
    links = {file.parent.name: json.loads(file.read_bytes())["m"] for file in shard.rglob("hnsw_config.json")}
    assert links == {"vector_index-dense": 24}
    folder = wide._folder
    folder.write_index_state(replace(folder.index, m=16, ef_construct=100))
    points, vectors, encodable = many(1700, dim=WIDE)
    with wide.writer() as writer:
        writer.write(points[900:], vectors[900:], encodable[900:])

    status = wide.status()
    assert (status.points, status.indexed_vectors, status.is_finalized) == (1700, 900, False)
    assert status.payload_indexes == INDEXED_FIELDS
    assert nearest_names(wide, vectors[::10]) == [point.name for point in points[::10]]

    wide.finalize()
    shard = taken_files(store.location, tmp_path / "updated")
    assert {json.loads(file.read_bytes())["m"] for file in shard.rglob("hnsw_config.json")} == {16}
    assert wide.status().indexed_vectors == 1700
    assert wide.status().is_finalized
    assert wide.delete_entities(["E0", "E849"]) == 4
    assert (wide.count(), wide.status().indexed_vectors) == (1696, 1696)
    assert nearest_names(wide, vectors[2:-2:10]) == [point.name for point in points[2:-2:10]]


@pytest.mark.slow
def test_a_killed_finalize_loses_nothing(wide: Collection, children: list[edge_process.EdgeProcess]) -> None:
    """After kill -9 while the graph is built, search is still exact, and finalize can run again."""
    points, vectors, encodable = many(3000, dim=WIDE)
    wide.upsert(points, vectors, encodable)
    shard = wide._folder.work / "shard"

    def kill_when_busy() -> None:
        wait_until(lambda: children and any((shard / "temp_segments").glob("*")))
        kill(children[0])

    killer = threading.Thread(target=kill_when_busy)
    killer.start()
    with pytest.raises(StoreError, match=r"builds the graph.*SIGKILL"):
        wide.finalize()
    killer.join()

    assert list((shard / "temp_segments").glob("*")) == []
    status = wide.status()
    assert (status.points, status.indexed_vectors, status.is_finalized) == (3000, 0, False)
    assert nearest_names(wide, vectors[::10]) == [point.name for point in points[::10]]

    wide.finalize()
    assert wide.status().is_finalized
    assert nearest_names(wide, vectors[::10]) == [point.name for point in points[::10]]


def test_ctrl_c_stops_finalize_at_once(wide: Collection, children: list[edge_process.EdgeProcess]) -> None:
    """Ctrl-C stops the building of the graph; the collection works as before."""

    def interrupt_when_started() -> None:
        wait_until(lambda: children)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt_when_started)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        wide.finalize()
    thread.join()

    assert not is_running(children[0].pid)
    assert wide.count() == 1000
    assert not wide.status().is_finalized
