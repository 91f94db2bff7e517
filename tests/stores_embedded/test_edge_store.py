"""What is special to the embedded store: its folder, its lock, and its child processes, which are really killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_disk import small_disk

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.errors import (
    CollectionExistsError,
    CollectionNotFoundError,
    ManifestError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreRejectedError,
)
from pearl_qdrant.lexical.ngrams import ngram_rows
from pearl_qdrant.store.edge import (
    bulk_writer as edge_bulk,
)
from pearl_qdrant.store.edge import (
    child_process as edge_process,
)
from pearl_qdrant.store.edge import (
    collection as edge_collection,
)
from pearl_qdrant.store.edge import (
    folder as edge_folder,
)
from pearl_qdrant.store.edge import (
    lock as edge_lock,
)
from pearl_qdrant.store.edge import (
    points as edge_points,
)
from pearl_qdrant.store.edge import (
    shard as edge_shard,
)
from pearl_qdrant.store.edge import (
    store as edge,
)
from pearl_qdrant.store.edge.collection import EdgeCollection
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.schema import INDEXED_FIELDS, Manifest, NamePoint, Quantization

WIDE = 64
"""So wide that with `low_threshold` 640 vectors are enough for a graph."""

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EdgeStore]:
    """An empty embedded store."""
    opened = EdgeStore(tmp_path / "store")
    yield opened
    opened.close()


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[edge_process.EdgeProcess]:
    """The child processes that are started, in order."""
    started: list[edge_process.EdgeProcess] = []

    class Recorded(edge_process.EdgeProcess):
        def __init__(self, job: edge_process.Job) -> None:
            super().__init__(job)
            started.append(self)

    monkeypatch.setattr(edge_bulk, "EdgeProcess", Recorded)
    monkeypatch.setattr(edge_collection, "EdgeProcess", Recorded)
    return started


@pytest.fixture
def low_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs for small collections."""
    monkeypatch.setattr(edge_shard, "INDEXING_THRESHOLD_KB", 160)


def manifest_of(name: str = "toy", *, dim: int = 8) -> Manifest:
    """A manifest for tests."""
    return Manifest(collection=name, kb="test", model="toy", weights_hash="sha256:0", dim=dim, has_head=True)


def many(n: int, *, dim: int = 8, start: int = 0) -> tuple[list[NamePoint], FloatArray, BoolArray]:
    """Points of two names an entity, of three types, with random unit vectors."""
    vectors = np.random.default_rng(start).normal(size=(n, dim)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    points = [
        NamePoint(
            kb="test",
            entity_id=f"E{i // 2}",
            name=f"name {i}",
            canonical_name=f"name {i - i % 2}",
            is_canonical=i % 2 == 0,
            types=(("ORG", "GPE", "PERSON")[i % 3],),
        )
        for i in range(start, start + n)
    ]
    return points, vectors, np.ones(n, dtype=np.bool_)


def nearest_names(collection: EdgeCollection, vectors: FloatArray) -> list[str]:
    """Name of the nearest point of each vector."""
    return [hits[0].point.name for hits in collection.search(vectors, limit=1)]


def kill(child: edge_process.EdgeProcess, number: int = signal.SIGKILL) -> None:
    """Really kill it."""
    os.kill(child.pid, number)


def is_running(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: Any, *, seconds: float = 300.0) -> None:
    """Wait for something to come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.001)


def python(script: str, *arguments: str) -> subprocess.Popen[str]:
    """Run a script in another process."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support"), str(HERE)])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


# The folder


def test_a_store_that_is_not_there_yet_is_empty(store: EdgeStore) -> None:
    """Looking at a new store makes no folder."""
    assert store.collections() == []
    with pytest.raises(CollectionNotFoundError):
        store.open("toy")
    assert not Path(store.location).exists()


def test_a_store_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """A file in the place of the folder is a clear error."""
    (tmp_path / "file").write_text("x")
    store = EdgeStore(tmp_path / "file")

    with pytest.raises(StoreError, match="file"):
        store.collections()
    with pytest.raises(StoreError, match="file"):
        store.create(manifest_of())


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "a/b", "../a", "a\\b", "a:b", "x" * 201, "a\n", "a\x00", "a."]
)
def test_names_that_would_leave_the_folder_are_refused(store: EdgeStore, name: str) -> None:
    """A collection's name is the name of a folder, and nothing else."""
    with pytest.raises(StoreRejectedError, match="cannot be the name"):
        store.create(manifest_of(name))
    with pytest.raises(StoreRejectedError):
        store.open(name)
    with pytest.raises(StoreRejectedError):
        store.delete(name)
    assert store.collections() == []


def test_names_of_all_scripts_are_taken(store: EdgeStore) -> None:
    """A collection may be called as its users call it."""
    for name in ("Wörter 1.0", "知识库"):
        store.create(manifest_of(name)).close()

    assert store.collections() == ["Wörter 1.0", "知识库"]


def test_other_folders_are_no_collections_and_never_deleted(store: EdgeStore) -> None:
    """A folder of the user's that lies in the store is left alone."""
    notes = Path(store.location) / "notes"
    notes.mkdir(parents=True)
    (notes / "keep.txt").write_text("keep")

    assert store.collections() == []
    with pytest.raises(CollectionNotFoundError):
        store.delete("notes")
    with pytest.raises(CollectionExistsError):
        store.create(manifest_of("notes"))
    assert (notes / "keep.txt").read_text() == "keep"


def test_a_collection_appears_whole_or_not_at_all(store: EdgeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """When making a collection fails, nothing is left of it, and the name is free."""

    def fail(path: Path, text: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(edge, "write_atomically", fail)
    with pytest.raises(StoreError, match="Input/output error"):
        store.create(manifest_of())
    monkeypatch.undo()

    assert list(Path(store.location).iterdir()) == []
    store.create(manifest_of())


def test_remains_of_a_killed_process_are_swept_up(store: EdgeStore) -> None:
    """A folder that was half made an hour ago goes when the next collection is made; a new one may be in use."""
    old, new = Path(store.location) / ".new-old", Path(store.location) / ".new-new"
    for path in (old, new):
        path.mkdir(parents=True)
    os.utime(old, (0, 0))

    store.create(manifest_of())

    assert (old.exists(), new.exists()) == (False, True)
    assert store.collections() == ["toy"]


@pytest.mark.parametrize("content", [b'{"collection": "toy", "kb"', b"", b"\xff\xfe", None])
def test_a_broken_manifest_is_refused_and_the_collection_can_be_deleted(
    store: EdgeStore, content: bytes | None
) -> None:
    """A truncated, foreign or missing manifest is a clear error, each time, and no lock stays behind."""
    store.create(manifest_of()).close()
    path = Path(store.location) / "toy" / "manifest.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)

    for _ in range(2):
        with pytest.raises(ManifestError, match="collections delete toy"):
            store.open("toy")
    assert store.collections() == ["toy"]
    store.delete("toy")
    assert list(Path(store.location).iterdir()) == []


def test_a_manifest_is_replaced_atomically(store: EdgeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """When writing a manifest fails half-way, the old one is still whole."""
    collection = store.create(manifest_of())

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreFullError):
        collection.write_manifest(manifest_of().model_copy(update={"names": 7}))
    monkeypatch.undo()
    assert collection.manifest.names == 0
    collection.close()

    assert store.open("toy").manifest == manifest_of().as_created()


@pytest.mark.parametrize("damage", ["segment.json", "status.dat"])
def test_a_damaged_collection_says_what_to_do(store: EdgeStore, damage: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Missing or truncated files of the engine, panics included, are one clear error."""
    store.create(manifest_of()).close()
    for path in (Path(store.location) / "toy" / "shard").rglob(damage):
        path.write_bytes(b"")

    with pytest.raises(StoreError, match=r"Restore.*pearl-qdrant collections delete toy"):
        store.open("toy")
    store.delete("toy")


# Opening more than once


def test_opening_twice_in_one_process_shares_the_collection(store: EdgeStore) -> None:
    """What one handle writes the other sees; closing one, even twice, leaves the other."""
    first = store.create(manifest_of())
    second = EdgeStore(Path(store.location) / ".." / "store").open("toy")
    points, vectors, encodable = many(10)

    first.upsert(points, vectors, encodable)
    first.write_manifest(first.manifest.model_copy(update={"names": 10}))
    first.close()
    first.close()

    assert second.count() == 10
    assert second.manifest.names == 10
    with pytest.raises(StoreClosedError, match="closed"):
        first.count()
    second.close()
    assert store.open("toy").count() == 10


def test_a_second_process_is_told_who_has_the_collection(store: EdgeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection that another process has open is refused with that process's number, until it ends."""
    store.create(manifest_of()).close()
    monkeypatch.setattr(edge_lock, "WAIT_S", 0.1)
    script = """
import sys
from pathlib import Path
from pearl_qdrant.store.edge.store import EdgeStore
collection = EdgeStore(Path(sys.argv[1])).open("toy")
print("open", flush=True)
sys.stdin.read()
"""
    with python(script, store.location) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        try:
            with pytest.raises(StoreLockedError, match=f"process {other.pid}: -c"):
                store.open("toy")
            with pytest.raises(StoreLockedError, match=str(other.pid)):
                store.delete("toy")
        finally:
            other.kill()

    assert store.open("toy").count() == 0


def test_an_open_collection_is_not_deleted(store: EdgeStore) -> None:
    """Deleting what this process has open is refused; after closing it works."""
    collection = store.create(manifest_of())
    with pytest.raises(StoreLockedError, match="close it first"):
        store.delete("toy")
    collection.close()

    store.delete("toy")
    assert store.collections() == []


# Points


def test_names_of_all_scripts_come_back(store: EdgeStore) -> None:
    """Whatever is valid Unicode is stored, found and given back as it was."""
    names = ["Zoë", "Zoe\u0308", "القاهرة", "東京都", "👩🏽‍🚀", "a\x00b", "\u202eabc", "\U0010ffff", "'\"\\\n\t", " "]
    collection = store.create(manifest_of())
    points = [
        NamePoint("test", f"id {name}", name, name, True, kb_types=(name,), description=name, extra={"x": name})
        for name in names
    ]
    _, vectors, encodable = many(len(names))

    with collection.writer() as writer:
        writer.write(points[:5], vectors[:5], encodable[:5])
    collection.upsert(points[5:], vectors[5:], encodable[5:])

    for point in points:
        assert collection.find(names=[point.name], limit=5) == [point]
        assert collection.find(entity_ids=[point.entity_id], types=[point.name], limit=5) == [point]


def test_numbers_of_numpy_are_stored_as_numbers(store: EdgeStore) -> None:
    """A probability that comes as numpy's float is a float afterwards."""
    collection = store.create(manifest_of())
    point = NamePoint("t", "1", "a", "a", True, phrase_type="NP-ORG", type_probability=np.float64(0.5))
    _, vectors, encodable = many(1)
    collection.upsert([point], vectors, encodable)

    assert type(collection.find(names=["a"], limit=1)[0].type_probability) is float


def test_a_batch_survives_packing() -> None:
    """What goes through the pipe to the child arrives as it was."""
    points, vectors, encodable = many(1500, dim=3)
    encodable[7] = False
    vectors[7] = np.nan

    batches = edge_points.check_points(points, vectors, encodable, dim=3)
    first, second = [edge_points.PointBatch.unpack(batch.pack()) for batch in batches]

    assert (len(first), len(second)) == (1000, 500)
    assert first.ids == [point.id for point in points[:1000]]
    assert first.payloads == [edge_points.edge_payload(point) for point in points[:1000]]
    np.testing.assert_array_equal(second.vectors, vectors[1000:])
    np.testing.assert_array_equal(first.encodable, encodable[:1000])
    assert not first.vectors[7].any()


def test_a_collection_from_before_there_were_n_grams_goes_on(store: EdgeStore) -> None:
    """It opens, is written, built and searched as ever, by vector alone."""
    store.create(manifest_of()).close()
    folder = Path(store.location) / "toy"
    shutil.rmtree(folder / "shard")
    (folder / "files.json").unlink()
    (folder / "shard").mkdir()
    edge_shard.create_shard(folder / "shard", 8, has_lexical=False)
    old = json.loads((folder / "manifest.json").read_text())
    del old["lexical_version"]
    (folder / "manifest.json").write_text(json.dumps(old))
    points, vectors, encodable = many(30)

    collection = store.open("toy")
    with collection.writer() as writer:
        writer.write(points[:20], vectors[:20], encodable[:20])
    collection.upsert(points[20:], vectors[20:], encodable[20:])
    collection.finalize()

    assert collection.manifest.lexical_version is None
    names = [point.name for point in points]
    hits = collection.search_hybrid(vectors, ngram_rows(names), limit=1, lexical_limit=5)
    assert [[hit.point.name for hit in row] for row in hits] == [[name] for name in names]
    assert collection.status().is_finalized


# The writing process


def test_while_it_is_loaded_a_collection_is_counted_but_not_searched(store: EdgeStore) -> None:
    """A search during a load is refused at once, and works when the load has ended."""
    collection = store.create(manifest_of())
    points, vectors, encodable = many(50)
    with collection.writer() as writer:
        writer.write(points, vectors, encodable)
        assert collection.count() == 50
        with pytest.raises(StoreError, match="being loaded"):
            collection.search(vectors, limit=1)
        with pytest.raises(StoreError, match="being loaded"), collection.writer():
            pass

    assert nearest_names(collection, vectors) == [point.name for point in points]
    with pytest.raises(StoreClosedError, match="with statement"):
        writer.write(points, vectors, encodable)


def test_an_empty_load_starts_no_process(store: EdgeStore, children: list[edge_process.EdgeProcess]) -> None:
    """A load of nothing costs nothing."""
    with store.create(manifest_of()).writer() as writer:
        writer.write(*many(0))
        writer.flush()

    assert children == []


def test_a_killed_writer_loses_nothing_that_it_acknowledged(
    store: EdgeStore, children: list[edge_process.EdgeProcess]
) -> None:
    """After kill -9 of the writing process, what was flushed is there, and loading again completes."""
    collection = store.create(manifest_of())
    points, vectors, encodable = many(6000)

    def load(*, is_killed: bool) -> None:
        with collection.writer() as writer:
            writer.write(points[:3000], vectors[:3000], encodable[:3000])
            writer.flush()
            writer.write(points[3000:], vectors[3000:], encodable[3000:])
            if is_killed:
                kill(children[-1])
                with pytest.raises(StoreError, match="SIGKILL"):
                    writer.flush()
                writer.write(points, vectors, encodable)

    with pytest.raises(StoreError, match=r"that writes collection.*SIGKILL.*memory.*is kept.*again"):
        load(is_killed=True)
    assert collection.count() >= 3000
    assert nearest_names(collection, vectors[:50]) == [point.name for point in points[:50]]

    load(is_killed=False)
    assert collection.count() == 6000
    assert [point.id for point in collection.scroll()] == sorted(point.id for point in points)


def test_ctrl_c_in_the_terminal_leaves_the_writer_to_its_parent(
    store: EdgeStore, children: list[edge_process.EdgeProcess]
) -> None:
    """An interrupt that reaches the writing process too does not end it."""
    collection = store.create(manifest_of())
    with collection.writer() as writer:
        writer.write(*many(10))
        writer.flush()
        kill(children[0], signal.SIGINT)
        writer.write(*many(10, start=10))

    assert collection.count() == 20


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("task", ["load", "finalize"])
def test_a_killed_parent_leaves_no_orphan(store: EdgeStore, task: str) -> None:
    """When the loading program is killed, its child ends too, and what was acknowledged is there."""
    store.create(manifest_of(dim=WIDE)).close()
    script = """
import sys, time
from pathlib import Path
from pearl_qdrant.store.edge import bulk_writer as edge_bulk
from pearl_qdrant.store.edge import collection as edge_collection
from pearl_qdrant.store.edge import child_process as edge_process
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.store import EdgeStore
from test_edge_store import WIDE, many

class Told(edge_process.EdgeProcess):
    def __init__(self, job):
        super().__init__(job)
        print(job.task, self.pid, flush=True)

edge_shard.INDEXING_THRESHOLD_KB = 160
edge_bulk.EdgeProcess = edge_collection.EdgeProcess = Told
collection = EdgeStore(Path(sys.argv[1])).open("toy")
with collection.writer() as writer:
    writer.write(*many(1000, dim=WIDE))
    writer.flush()
    print("flushed", 0, flush=True)
    while sys.argv[2] == "load":
        writer.write(*many(1000, dim=WIDE))
while True:
    collection.finalize()
"""
    with python(script, store.location, task) as parent:
        assert parent.stdout is not None
        pid = 0
        for line in parent.stdout:
            said, _, number = line.partition(" ")
            pid = int(number) or pid
            if said == ("flushed" if task == "load" else "finalize"):
                break
        time.sleep(0.2)
        parent.kill()

    wait_until(lambda: not is_running(pid))
    collection = store.open("toy")
    assert collection.count() == 1000
    points, vectors, _ = many(1000, dim=WIDE)
    assert nearest_names(collection, vectors[:20]) == [point.name for point in points[:20]]


def test_a_large_load_goes_through_several_processes(
    store: EdgeStore, low_threshold: None, children: list[edge_process.EdgeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each child ends when its share is compacted; filters and counts are exact with and without payload indexes."""
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
def wide(store: EdgeStore, low_threshold: None) -> EdgeCollection:
    """A collection that is large enough for a graph, and has none yet."""
    collection = store.create(manifest_of(dim=WIDE))
    with collection.writer() as writer:
        writer.write(*many(1000, dim=WIDE))
    return collection


@pytest.mark.parametrize("quantization, least", [("none", 38), ("int8", 38), ("turbo", 38), ("binary", 30)])
def test_scores_come_from_the_whole_vectors(
    store: EdgeStore, low_threshold: None, quantization: Quantization, least: int
) -> None:
    """However vectors are kept for finding candidates, a score is the exact cosine, with the filter and without."""
    collection = store.create(manifest_of(dim=WIDE).model_copy(update={"quantization": quantization}))
    points, vectors, encodable = many(1500, dim=WIDE)
    with collection.writer() as writer:
        writer.write(points, vectors, encodable)
    collection.finalize()
    assert collection.status().indexed_vectors == 1500
    # Between two of the points: no score is 1.
    queries = vectors[:40] + vectors[100:140]
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    row_of = {point.name: i for i, point in enumerate(points)}

    for types in ((), ("ORG",)):
        found = collection.search(queries, limit=5, types=types)
        for query, hits in zip(queries, found, strict=True):
            exact = [float(query @ vectors[row_of[hit.point.name]]) for hit in hits]
            assert len(hits) == 5
            np.testing.assert_allclose([hit.score for hit in hits], exact, atol=1e-5)
    # Each query has two nearest points, of equal score; 64 bits tell less of them than 64 bytes.
    nearest = collection.search(queries, limit=2)
    right = sum({hit.point.name for hit in hits} == {f"name {i}", f"name {i + 100}"} for i, hits in enumerate(nearest))
    assert right >= least


def test_a_killed_finalize_loses_nothing(wide: EdgeCollection, children: list[edge_process.EdgeProcess]) -> None:
    """After kill -9 while the graph is built, search is exact as before, and finalize can run again."""
    points, vectors, encodable = many(5000, dim=WIDE)
    wide.upsert(points, vectors, encodable)
    shard = wide._folder.path / "shard"

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
    assert (status.points, status.indexed_vectors, status.is_finalized) == (5000, 0, False)
    assert nearest_names(wide, vectors) == [point.name for point in points]

    wide.finalize()
    assert wide.status().is_finalized
    assert nearest_names(wide, vectors) == [point.name for point in points]


def test_ctrl_c_ends_finalize_at_once(wide: EdgeCollection, children: list[edge_process.EdgeProcess]) -> None:
    """An interrupt stops the building of the graph; the collection goes on as it was."""

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


def test_what_is_written_after_finalize_is_found_and_told(wide: EdgeCollection) -> None:
    """A later load is searched at once, shows as not finalized when it is large, and finalize takes it in."""
    wide.finalize()
    points, vectors, encodable = many(1700, dim=WIDE)
    with wide.writer() as writer:
        writer.write(points[900:], vectors[900:], encodable[900:])

    status = wide.status()
    assert (status.points, status.indexed_vectors, status.is_finalized) == (1700, 900, False)
    assert status.payload_indexes == INDEXED_FIELDS
    assert nearest_names(wide, vectors[::10]) == [point.name for point in points[::10]]

    wide.finalize()
    assert wide.status().indexed_vectors == 1700
    assert wide.status().is_finalized
    assert wide.delete_entities(["E0", "E849"]) == 4
    assert (wide.count(), wide.status().indexed_vectors) == (1696, 1696)
    assert nearest_names(wide, vectors[2:-2:10]) == [point.name for point in points[2:-2:10]]


# A full disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with little space."""
    with small_disk(tmp_path / "disk", "180m") as folder:
        yield folder


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs")
def test_a_full_disk_stops_a_load_and_loses_nothing(disk: Path) -> None:
    """A load that fills the disk ends with the numbers; what was acknowledged is there, and can be searched."""
    store = EdgeStore(disk)
    collection = store.create(manifest_of(dim=1024))
    acknowledged = 0

    def load() -> None:
        nonlocal acknowledged
        with collection.writer() as writer:
            for start in range(0, 30_000, 500):
                writer.write(*many(500, dim=1024, start=start))
                writer.flush()
                acknowledged += 500

    with pytest.raises(StoreFullError, match=r"MB free.*free some space"):
        load()

    assert acknowledged > 0
    assert collection.count() == acknowledged
    with pytest.raises(StoreFullError, match="MB needed"):
        collection.upsert(*many(1, dim=1024))
    points, vectors, _ = many(500, dim=1024)
    assert nearest_names(collection, vectors[:20]) == [point.name for point in points[:20]]
    store.close()
    assert EdgeStore(disk).open("toy").count() == acknowledged
    json.loads((disk / "toy" / "manifest.json").read_text())
    edge_folder.CollectionFolder.acquire(Path(os.path.realpath(disk / "toy")), "toy")._close()
