"""A model is changed twice and rolled back once while readers read and a writer writes, on a server."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from linker_base import ENTITIES, fill
from qdrant_double import QdrantDouble
from tiny_models import make_pearl

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.transfer import push_collection, reencode_collection, rollback_collection

pytestmark = pytest.mark.slow

NAME = "demo"
SECONDS = float(os.environ.get("PEARL_QDRANT_LOAD_SECONDS", "12"))
"""How long; five minutes for the figure in docs/moving-collections.md."""


class Load:
    """Threads that work until told to stop; their errors are kept."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.end = threading.Event()
        self.threads: list[threading.Thread] = []

    def start(self, work: Callable[[], None]) -> None:
        """Repeat something in a thread."""

        def run() -> None:
            while not self.end.is_set():
                try:
                    work()
                except Exception as error:  # noqa: BLE001 - the test reports it
                    self.errors.append(error)
                    return

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def stop(self) -> None:
        """Wait for all of them."""
        self.end.set()
        for thread in self.threads:
            thread.join()


def test_readers_and_a_writer_notice_nothing(double: QdrantDouble, tmp_path: Path) -> None:
    """No call fails, each answer is of one model, and every name that was written is there at the end."""
    models = [str(tmp_path / f"model{seed}") for seed in range(3)]
    for seed, folder in enumerate(models):
        make_pearl(Path(folder), seed=seed)
    fill(tmp_path / "store", NAME, models[0], ENTITIES, is_loaded=True)
    push_collection(NAME, to=double.url, store=str(tmp_path / "store"))
    load, written, deleted, n_read = Load(), list[str](), set[str](), [0]
    readers = [EntityLinker.open(NAME, store=double.url) for _ in range(2)]
    writer = EntityLinker.open(NAME, store=double.url)

    def read(linker: EntityLinker) -> None:
        link = linker.link("heart attack", threshold=0)
        # With the vectors of another model the mention's own name has another cosine than 1.
        assert link.candidates[0].entity_id == "mi"
        assert link.candidates[0].dense_score == pytest.approx(1.0, abs=1e-3)
        n_read[0] += 1
        if linker.is_outdated:
            linker.reload()

    def write() -> None:
        number = len(written)
        writer.add([Entity(f"w{number}", f"written number {number}")])
        written.append(f"w{number}")
        if number % 3 == 2:
            writer.delete([f"w{number - 1}"])
            deleted.add(f"w{number - 1}")
        time.sleep(0.05)

    for linker in readers:
        load.start(lambda linker=linker: read(linker))  # type: ignore[misc]
    load.start(write)
    moves = [
        lambda: reencode_collection(NAME, model=models[1], store=double.url),
        lambda: reencode_collection(NAME, model=models[2], store=double.url),
        lambda: rollback_collection(NAME, store=double.url),
    ]
    try:
        for move in moves:
            time.sleep(SECONDS / 4)
            assert move().switched
        time.sleep(SECONDS / 4)
    finally:
        load.stop()
        for linker in (*readers, writer):
            linker.close()

    assert load.errors == []
    assert n_read[0] > 10
    with EntityLinker.open(NAME, store=double.url) as linker:
        assert linker.encoder.info.name == models[1]
        assert linker.missing(set(written) - deleted) == []
        assert set(linker.missing(sorted(deleted))) == deleted
