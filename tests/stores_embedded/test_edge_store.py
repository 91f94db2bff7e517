"""What is special to the embedded store: its folder, its lock, and its points."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from edge_cases import manifest_of, many, python

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
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.schema import NamePoint

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
