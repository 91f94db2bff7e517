"""When a load notes how far it is, and how soon it stops."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_loads import CountingEncoder, load, write_base

from ingest.load import pipeline
from ingest.load.windows import WindowSize
from ingest.readers.table import TableReader
from pearl_qdrant.encoder.protocol import Encoded, Encoder
from pearl_qdrant.records import Entity
from pearl_qdrant.store.edge import bulk_writer
from pearl_qdrant.store.edge.child_process import POINTS, Answer
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.points import name_points
from pearl_qdrant.store.schema import Manifest

MOST_S = 60
"""Bounds a hang; what is waited for takes a moment on any machine."""


@pytest.mark.parametrize("most", [100, 4096])
def test_a_window_is_about_a_second_of_work(most: int) -> None:
    """Its size follows the speed of the encoder, between the least and the most."""
    size = WindowSize(most, least=50, seconds=2.0)
    sizes = [size.names]
    for names, seconds in [(50, 5.0), (50, 1.0), (100, 0.1), (most, 0.0), (most, 1000.0)]:
        size.adapt(names, seconds)
        sizes.append(size.names)

    assert sizes == [50, 50, 100, min(most, 2000), most, 50]
    assert WindowSize(20, least=512).names == 20


@pytest.mark.parametrize("step_s, n_checkpoints", [(0.0, 1), (4.0, 4), (11.0, 10)])
def test_a_checkpoint_is_written_every_ten_seconds(
    tmp_path: Path,
    store: EdgeStore,
    encoder: Encoder,
    monkeypatch: pytest.MonkeyPatch,
    step_s: float,
    n_checkpoints: int,
) -> None:
    """Far fewer names than are worth a checkpoint are kept if they took long; the last call is for the whole input."""
    monkeypatch.setattr(pipeline, "WINDOW", 20)
    clock = [0.0]
    monkeypatch.setattr(pipeline.time, "perf_counter", lambda: clock[0])
    stored: list[int] = []

    def names_done(names: int) -> None:
        clock[0] += step_s

    load(write_base(tmp_path / "base.tsv", 95), store, encoder, on_progress=names_done, on_checkpoint=stored.append)

    assert len(stored) == n_checkpoints + (step_s == 11.0)
    assert stored == sorted(stored)
    assert stored[-1] == 95


def test_what_was_noted_by_time_is_not_encoded_again(
    tmp_path: Path, store: EdgeStore, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load that is stopped soon after a checkpoint resumes there."""
    monkeypatch.setattr(pipeline, "WINDOW", 20)
    monkeypatch.setattr(pipeline, "CHECKPOINT_S", 0.0)
    path = write_base(tmp_path / "base.tsv", 100)
    with pytest.raises(MemoryError):
        load(path, store, CountingEncoder(encoder, fail_at=6))

    assert load(path, store, encoder).resumed_at > 0


def test_a_load_that_is_stopped_while_it_skips_reads_no_further(
    tmp_path: Path, store: EdgeStore, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was stored before may take minutes to read again, and Ctrl-C does not wait for it."""
    monkeypatch.setattr(pipeline, "WINDOW", 20)
    monkeypatch.setattr(pipeline, "CHECKPOINT_S", 0.0)
    path = write_base(tmp_path / "base.tsv", 100)
    with pytest.raises(MemoryError):
        load(path, store, CountingEncoder(encoder, fail_at=6))
    stopped = threading.Event()
    read: list[Entity] = []
    real = TableReader.read

    def slow(self: TableReader, *args: object, **options: object) -> Iterator[Entity]:
        for entity in real(self, *args, **options):  # type: ignore[arg-type]
            yield entity
            read.append(entity)
            assert stopped.wait(MOST_S)

    def stop(self: pipeline._Load, *args: object) -> None:
        threading.Timer(0.0, stopped.set).start()
        self.is_stopped = True
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "count_stored", lambda entities, collection: 0)  # it reads in this thread
    monkeypatch.setattr(TableReader, "read", slow)
    monkeypatch.setattr(pipeline._Load, "write", stop)
    with pytest.raises(KeyboardInterrupt):
        load(path, store, encoder)

    assert len(read) <= 2


class _Busy:
    """Stands for a writing process that is compacting: it answers when it is killed."""

    def __init__(self, job: object) -> None:
        self.killed = threading.Event()
        children.append(self)

    def receive_answer(self) -> Answer:
        return {"points": 0}

    def request(self, kind: bytes, body: bytes = b"") -> Answer:
        asked.set()
        assert kind == POINTS
        assert self.killed.wait(MOST_S)
        raise bulk_writer.StoreError("killed")

    def end(self) -> None:
        pass

    def kill(self) -> None:
        self.killed.set()


children: list[_Busy] = []
asked = threading.Event()


def test_a_stopped_load_does_not_wait_for_a_compaction(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writing process is killed if it does not end soon; what it had acknowledged is kept."""
    monkeypatch.setattr(bulk_writer, "EdgeProcess", _Busy)
    monkeypatch.setattr(bulk_writer, "STOP_S", 0.0)
    children.clear()
    asked.clear()
    manifest = Manifest.for_model(encoder.info, collection="toy", kb="toy")
    collection = EdgeStore(tmp_path).create(manifest)
    encoded: Encoded = encoder.encode(["one"])
    writer = collection.writer()

    def work() -> None:
        points = name_points("toy", [(Entity("1", "one"), "one")], encoded)
        with writer:
            writer.write(points, encoded.vectors, encoded.encodable)
            assert asked.wait(MOST_S)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert [child.killed.is_set() for child in children] == [True]
    collection.close()
