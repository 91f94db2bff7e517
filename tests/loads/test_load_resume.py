"""When a load flushes the store, and how soon it stops.
An interrupted load resumes, and writes what is missing.
"""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from qdrant_double import QdrantDouble
from small_loads import CountingEncoder, contents, load, manifest_for, write_base

from ingest.base.reader import scan
from ingest.formats import open_reader
from ingest.io.report import ReadReport
from ingest.load import pipeline
from ingest.load.pipeline import ingest
from ingest.load.request import LoadEvents
from pearl_qdrant.encoder.protocol import Encoded, Encoder
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.records import Entity
from pearl_qdrant.store import Store, open_store
from pearl_qdrant.store.edge import child_process as bulk_writer
from pearl_qdrant.store.edge.child_process import POINTS, Answer
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import Manifest, name_points


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


class _Busy:
    """Stands for a writing process that is compacting: it answers nothing more."""

    def __init__(self, job: object) -> None:
        self.killed = threading.Event()
        children.append(self)

    def receive_answer(self) -> Answer:
        return {"points": 0}

    def send(self, kind: bytes, body: bytes = b"") -> None:
        assert kind == POINTS

    def end(self) -> None:
        pass

    def kill(self) -> None:
        self.killed.set()


children: list[_Busy] = []


def test_a_stopped_load_does_not_wait_for_a_compaction(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writing process is killed; what it had acknowledged is kept."""
    monkeypatch.setattr(bulk_writer, "EdgeProcess", _Busy)
    monkeypatch.setattr(bulk_writer, "DIRECT_POINTS", 0)
    children.clear()
    manifest = Manifest.for_model(encoder.info, collection="toy", kb="toy")
    collection = open_store(str(tmp_path)).create(manifest)
    encoded: Encoded = encoder.encode(["one"])
    writer = collection.writer()

    def work() -> None:
        points = name_points("toy", [(Entity("1", "one"), "one")], encoded)
        with writer:
            writer.write(points, encoded.vectors, encoded.encodable)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert [child.killed.is_set() for child in children] == [True]
    collection.close()


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


def test_names_of_another_release_are_no_reason_to_encode(tmp_path: Path, store: Store, encoder: Encoder) -> None:
    """Where a type changed, the payload is replaced and the vector stays."""
    path = write_base(tmp_path / "base.tsv", 100)
    load(path, store, encoder)
    path.write_text(path.read_text("utf-8").replace("E3\tw3 times\tORG", "E3\tw3 times\tGPE"), encoding="utf-8")
    counting = CountingEncoder(encoder)
    result = load(path, store, counting)

    assert counting.names == []
    assert (result.added, result.changed, result.unchanged) == (0, 2, 198)
    assert {point.types for point in contents(store).values() if point.entity_id == "E3"} == {("GPE",)}  # type: ignore[attr-defined]


def test_an_input_that_changed_far_from_its_start_is_loaded_whole(
    tmp_path: Path, store: Store, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If one name in the middle of a large file changed, size and head being equal, no old name is left unread."""
    monkeypatch.setattr("ingest.load.pipeline.WINDOW", 2000)
    path, padding = tmp_path / "base.tsv", "x" * 1000  # so that what changes lies beyond the first MiB
    text = "".join(f"E{i}\tw{i} times\t{padding}\n" for i in range(4000))
    with pytest.raises(MemoryError):
        load(path, store, CountingEncoder(encoder, fail_at=2), text=text)
    result = load(path, store, encoder, text=text.replace("w1500 times", "w1500 posts"))

    assert result.resumed_at > 0
    assert result.points >= 4000
    assert "w1500 posts" in {point.name for point in contents(store).values()}  # type: ignore[attr-defined]


class NeverFinalized(Exception):
    """The process dies while the graph is built."""


def load_until_the_graph(path: Path, store: Store, encoder: Encoder) -> None:
    """A load that is killed when all names are stored."""

    class Dying(LoadEvents):
        def graph_built(self, done: int, total: int) -> None:
            raise NeverFinalized

    with pytest.raises(NeverFinalized):
        load(path, store, encoder, events=Dying())


@pytest.mark.slow
def test_a_load_resumes_after_one_entity_was_added_and_another_deleted(
    tmp_path: Path, store: Store, encoder: Encoder
) -> None:
    """What I add by hand to an unfinished collection stays, and hides no name of the base that is gone."""
    path = write_base(tmp_path / "base.tsv", 30)
    load_until_the_graph(path, store, encoder)
    linker = EntityLinker(store, [store.open("base")], encoder)
    linker.add([Entity("mine", "my times", ("my post", "my city"))])
    linker.delete(["E3"])
    linker.close()
    result = load(path, store, encoder)

    assert (result.points, result.rewritten) == (63, 2)
    assert {"E3", "mine"} <= {point.entity_id for point in contents(store).values()}  # type: ignore[attr-defined]
    assert load(path, store, encoder).points == 63


def test_a_store_that_loses_points_is_noticed(tmp_path: Path, store: Store, encoder: Encoder) -> None:
    """If the store holds fewer points than were written, the load fails with an error."""
    from pearl_qdrant.errors import StoreError

    class Forgetful:
        """A collection that counts one point too few."""

        def __init__(self, inner: Collection) -> None:
            self._inner = inner
            self.counted = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def count(self) -> int:
            self.counted += 1
            return self._inner.count() - (self.counted > 1)

    with open_reader([write_base(tmp_path / "base.tsv", 10)]) as reader:
        scanned = scan(reader, ReadReport())
        collection: Any = Forgetful(store.create(manifest_for(encoder)))
        with pytest.raises(StoreError, match="holds 19 points after a load of 20"):
            ingest(reader, scanned, encoder, collection, max_errors=0)
        collection.close()
