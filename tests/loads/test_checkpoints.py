"""When a load flushes the store, and how soon it stops."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from small_loads import load, write_base

from ingest.load import pipeline
from ingest.load.results import LoadEvents
from pearl_qdrant.encoder.protocol import Encoded, Encoder
from pearl_qdrant.records import Entity
from pearl_qdrant.store.edge import bulk_writer
from pearl_qdrant.store.edge.child_process import POINTS, Answer
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.points import name_points
from pearl_qdrant.store.schema import Manifest

MOST_S = 60
"""Bounds a hang; what is waited for takes a moment on any machine."""


@pytest.mark.parametrize("step_s, n_flushes", [(0.0, 1), (4.0, 2), (11.0, 6)])
def test_the_store_is_flushed_every_ten_seconds(
    tmp_path: Path, store: EdgeStore, encoder: Encoder, monkeypatch: pytest.MonkeyPatch, step_s: float, n_flushes: int
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
