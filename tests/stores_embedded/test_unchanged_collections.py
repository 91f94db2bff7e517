"""An embedded collection that is opened for writing: until its first change it is the closed one for all others."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from edge_cases import WIDE, digest, manifest_of, many, python

from pearl_qdrant.errors import StoreError
from pearl_qdrant.lexical.ngrams import ngram_rows
from pearl_qdrant.store.edge import checksums as edge_checksums
from pearl_qdrant.store.edge import publisher as edge_publisher
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.collection import EdgeCollection
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.schema import Manifest

N = 60


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EdgeStore]:
    """An embedded store with one closed collection of 60 names."""
    opened = EdgeStore(tmp_path / "store")
    with opened.create(manifest_of()).writer() as writer:
        writer.write(*many(N))
    opened.close()
    yield opened
    opened.close()


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The shards that are opened on trial in a child process."""
    tried: list[Path] = []
    monkeypatch.setattr(edge_checksums, "open_on_trial", lambda shard, collection: tried.append(shard))
    return tried


def folder_of(store: EdgeStore) -> Path:
    """The folder of the collection."""
    return Path(store.location) / "toy"


def statuses(folder: Path) -> dict[str, tuple[int, int, int]]:
    """File number, size and time of the files of a collection that are not the engine's, nor the lock."""
    files = [path for path in folder.rglob("*") if path.relative_to(folder).parts[0] not in ("shard", ".lock")]
    return {str(path): (path.stat().st_ino, path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def contents(folder: Path) -> dict[str, str]:
    """Content of all files of a collection, with the lock."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): digest(path) for path in files}


def search_all_ways(collection: EdgeCollection, dim: int = 8) -> None:
    """Search, filter, count and read."""
    _, queries, _ = many(3, dim=dim)
    rows = ngram_rows([f"name {i}" for i in range(3)])
    collection.search_hybrid(queries, rows, limit=3, lexical_limit=3)
    collection.search(queries, limit=3, types=["ORG"])
    collection.status()
    collection.type_counts()
    assert len(list(collection.scroll())) == collection.count()


# Without a change


def test_opening_and_closing_without_a_change_writes_nothing(store: EdgeStore) -> None:
    """A collection that is opened for writing, searched and closed has the same files beside those of the engine."""
    before, content = statuses(folder_of(store)), contents(folder_of(store))
    for _ in range(2):
        writer = store.open("toy")
        search_all_ways(writer)
        assert statuses(folder_of(store)) == before
        writer.close()
        assert statuses(folder_of(store)) == before
    assert contents(folder_of(store)) == content


def test_the_engine_leaves_a_graph_as_it_is(tmp_path: Path, low_threshold: None) -> None:
    """Opening, searching and closing keeps each byte of a collection with a graph and with growing segments."""
    store = EdgeStore(tmp_path / "graph")
    collection = store.create(manifest_of(dim=WIDE))
    with collection.writer() as writer:
        writer.write(*many(700, dim=WIDE))
    collection.finalize()
    collection.upsert(*many(20, dim=WIDE, start=690))
    collection.delete_entities(["E3", "E350"])
    collection.close()
    store.open("toy").close()  # now the engine has repeated its log
    before = contents(folder_of(store))
    collection = store.open("toy")
    search_all_ways(collection, WIDE)
    changed = dict(contents(folder_of(store)).items() - before.items())
    assert changed.keys() == {".lock"}
    collection.close()
    assert contents(folder_of(store)) == before


def test_readers_of_an_unchanged_collection_read_the_closed_one(store: EdgeStore) -> None:
    """Readers open it beside the writer, keep it over its first change, and are told then."""
    writer = store.open("toy")
    reader = store.open("toy", read_only=True)
    assert not (folder_of(store) / "published").exists()
    writer.upsert(*many(10, start=N))

    assert (reader.count(), reader.is_outdated) == (N, True)
    assert store.open("toy", read_only=True).count() == N + 10


def test_a_reader_that_opens_during_the_first_change_has_a_whole_state(
    store: EdgeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, while and after the closed state is withdrawn, a reader finds it."""
    writer = store.open("toy")
    seen: list[int] = []
    remove = edge_publisher.remove_checksums

    def look_around(folder: Path) -> None:
        for step in (lambda: None, lambda: remove(folder)):
            step()
            with_reader = store.open("toy", read_only=True)
            seen.append(with_reader.count())
            with_reader.close()

    monkeypatch.setattr(edge_publisher, "remove_checksums", look_around)
    writer.upsert(*many(10, start=N))
    assert seen == [N, N]


def test_the_opening_after_a_change_publishes(store: EdgeStore) -> None:
    """The engine repeats its log then, which changes files: readers have copies from before."""
    writer = store.open("toy")
    writer.delete_entities(["E1"])
    writer.close()
    writer = store.open("toy")
    assert (folder_of(store) / "published").is_dir()
    assert store.open("toy", read_only=True).count() == N - 2
    writer.close()
    before = statuses(folder_of(store))
    store.open("toy").close()
    assert statuses(folder_of(store)) == before


def test_a_collection_with_vectors_of_descriptions_is_published_at_once(tmp_path: Path) -> None:
    """The engine writes two dense vectors in another order at each closing, which is never taken for damage."""
    store = EdgeStore(tmp_path / "described")
    made: Manifest = manifest_of().model_copy(update={"has_descriptions": True})
    points, vectors, encodable = many(4)
    store.create(made).upsert(points, vectors, encodable, descriptions=np.zeros_like(vectors))
    store.close()
    for _ in range(4):
        writer = store.open("toy")
        assert (folder_of(store) / "published").is_dir()
        assert store.open("toy", read_only=True).count() == writer.count() == 4
        store.close()


def test_files_that_another_engine_changes_at_opening_are_published(
    store: EdgeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If an opening changes files after all, readers get the files as they are, and nothing is called damaged."""
    load = edge_shard.EdgeShard.load

    def convert(path: str, config: object) -> object:
        loaded = load(path, config)
        config_file = Path(path) / "edge_config.json"
        config_file.write_text(config_file.read_text().replace("{", "{ ", 1))
        return loaded

    with monkeypatch.context() as patch:
        patch.setattr(edge_shard, "EdgeShard", type("Converting", (), {"load": staticmethod(convert)}))
        writer = store.open("toy")
    assert not (folder_of(store) / "files.json").exists()
    assert store.open("toy", read_only=True).count() == writer.count() == N
    writer.close()
    assert store.open("toy").count() == N


def test_files_that_the_engine_changes_at_closing_are_noted(store: EdgeStore, probes: list[Path]) -> None:
    """If a file is another one at closing, its checksum is written, and the collection opens again."""
    writer = store.open("toy")
    (tracker,) = folder_of(store).rglob("mutable_id_tracker.versions")
    tracker.write_bytes(tracker.read_bytes()[:-1] + b"\x07")
    writer.close()
    assert store.open("toy").count() == N
    assert probes == []


# Errors and kills


def refuse(folder: Path) -> None:
    """Stands for removing a file in a folder that may not be written."""
    raise OSError(errno.EACCES, os.strerror(errno.EACCES))


def test_a_change_that_cannot_withdraw_the_closed_state_is_refused(
    store: EdgeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing changes, and the next try works; the collection closes and opens."""
    writer = store.open("toy")

    with monkeypatch.context() as patch:
        patch.setattr(edge_publisher, "remove_checksums", refuse)
        with pytest.raises(StoreError, match="Make its folder writable"):
            writer.upsert(*many(10, start=N))
    assert store.open("toy", read_only=True).count() == writer.count() == N
    writer.upsert(*many(5, start=N))
    assert store.open("toy", read_only=True).count() == N + 5
    store.close()
    assert store.open("toy").count() == N + 5


def test_a_refused_change_leaves_the_collection_closed_properly(
    store: EdgeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a change that was refused, closing and opening finds the state before it, and cleans up."""
    writer = store.open("toy")

    with monkeypatch.context() as patch:
        patch.setattr(edge_publisher, "remove_checksums", refuse)
        with pytest.raises(StoreError):
            writer.delete_entities(["E1"])
        writer.close()
    assert store.open("toy", read_only=True).count() == N
    assert store.open("toy").count() == N
    store.close()
    assert not (folder_of(store) / "published").exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from edge_cases import many
from pearl_qdrant.store.edge import folder
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.edge import publisher

def kill(*arguments, **keywords):
    os.kill(os.getpid(), signal.SIGKILL)

moment = sys.argv[2]
if moment == "while publishing":
    publisher.place = kill
elif moment == "when published":
    publisher.remove_checksums = kill
elif moment == "when withdrawn":
    remove = publisher.remove_checksums
    publisher.remove_checksums = lambda path: (remove(path), kill())
elif moment == "while closing":
    publisher.Publisher.end = kill
collection = EdgeStore(Path(sys.argv[1])).open("toy")
if moment == "before a change":
    kill()
if moment == "while closing":
    collection.close()
collection.upsert(*many(10, start=60))
"""


@pytest.mark.parametrize(
    "moment, n_probes",
    [
        ("before a change", 0),
        pytest.param("while publishing", 0, marks=pytest.mark.slow),
        ("when published", 0),
        ("when withdrawn", 1),
        pytest.param("while closing", 0, marks=pytest.mark.slow),
    ],
)
def test_a_kill_around_the_first_change_loses_nothing(
    store: EdgeStore, probes: list[Path], moment: str, n_probes: int
) -> None:
    """Readers and writers open the collection as it was, wherever in its first change a writer was killed."""
    with python(KILLED, store.location, moment) as killed:
        assert killed.wait() == -signal.SIGKILL
    reader = store.open("toy", read_only=True)
    writer = store.open("toy")
    assert (reader.count(), writer.count(), reader.is_outdated) == (N, N, False)
    writer.upsert(*many(10, start=N))
    assert store.open("toy", read_only=True).count() == N + 10
    writer.close()
    assert not (folder_of(store) / "published").exists()
    assert store.open("toy").count() == N + 10
    assert len(probes) == n_probes
