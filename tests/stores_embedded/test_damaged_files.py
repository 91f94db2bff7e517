"""Damaged files of the embedded engine: a clear error before the engine sees them."""

from __future__ import annotations

import os
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from edge_cases import WIDE, copy_files, left, nearest_names, stored_bytes, stored_files
from store_cases import manifest_of, many

from pearl_qdrant.errors import ManifestError, StoreError, StoreLockedError
from pearl_qdrant.store import Store, open_store
from pearl_qdrant.store.edge import content as edge_content
from pearl_qdrant.store.edge import folder as edge_folder
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.content import StoredFile, read_content, take_files, write_content

DAMAGED = r"'toy' cannot be opened, its files look damaged \(.*Restore .*collections delete toy and ingest again"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a closed collection that has a graph, quantised vectors and a growing segment of 20 points."""
    location = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edge_shard, "INDEXING_THRESHOLD_KB", 160)
        store = open_store(location)
        collection = store.create(manifest_of(dim=WIDE))
        with collection.writer() as writer:
            writer.write(*many(700, dim=WIDE))
        collection.finalize()
        collection.upsert(*many(20, dim=WIDE, start=700))
        store.close()
    return location


def test_a_changed_byte_of_any_file_is_noticed_before_the_engine_sees_it(built: Path, tmp_path: Path) -> None:
    """A changed byte in any small file, or at either end of a large one, is reported as damage."""
    copy_files(built, tmp_path / "store")
    path, rng = tmp_path / "store" / "toy", random.Random(1)
    content = read_content(path, "toy")[1]
    files = stored_bytes(tmp_path / "store")
    assert len(files) > 100
    for one, (file, start, end) in sorted(files.items()):
        ends = min(end - start, edge_content.EDGE_BYTES)
        offset = rng.choice((start, end - 1, start + rng.randrange(ends), end - 1 - rng.randrange(ends)))
        with file.open("r+b") as opened:
            opened.seek(offset)
            byte = opened.read(1)[0]
            opened.seek(offset)
            opened.write(bytes([byte ^ 1 << rng.randrange(8)]))
        with pytest.raises(StoreError, match=re.escape(one)):
            take_files(path, "toy", content.files, tmp_path / "taken")
        shutil.rmtree(tmp_path / "taken")
        shutil.copy2(stored_files(built)[one], file)

    store = open_store(tmp_path / "store")
    collection, (points, vectors, _) = store.open("toy"), many(700, dim=WIDE)
    assert collection.count() == 720
    assert nearest_names(collection, vectors[:50]) == [point.name for point in points[:50]]
    store.close()


@pytest.mark.parametrize("way", ["changed", "truncated", "empty", "missing", "folder", "pipe"])
@pytest.mark.parametrize("name", ["segment.json", "matrix.dat"])
def test_a_file_of_another_size_or_kind_is_damage(built: Path, tmp_path: Path, way: str, name: str) -> None:
    """Files that were cut or changed or are missing are reported, to writers and to readers, which leave nothing."""
    store = open_store(copy_files(built, tmp_path / "store"))
    file = next(file for one, file in stored_files(store.location).items() if one.endswith(name))
    content = file.read_bytes()
    file.unlink()
    if way == "folder":
        file.mkdir()
    elif way == "pipe":
        os.mkfifo(file)
    elif way != "missing":
        file.write_bytes({"changed": b"x" + content[1:], "truncated": content[:-1], "empty": b""}[way])

    for read_only in (False, True):
        with pytest.raises(StoreError, match=DAMAGED):
            store.open("toy", read_only=read_only)
    assert left(store) == []
    store.delete("toy")


@pytest.mark.parametrize(
    "path, token", [("../../escaped", None), ("/escaped", None), ("segments/../../../escaped", None), (None, "../x")]
)
def test_a_list_of_files_that_leads_out_of_the_folder_is_refused(
    filled: Store, path: str | None, token: str | None
) -> None:
    """A collection that somebody else made writes nowhere but where it is opened."""
    folder = Path(filled.location) / "toy"
    manifest, content = read_content(folder, "toy")
    (known, file), *_ = content.files.items()
    file = StoredFile(token or file.token, file.size, file.checksum)
    write_content(folder, manifest, replace(content, files={path or known: file}))
    for read_only in (False, True):
        with pytest.raises(ManifestError, match="Restore it from a copy"):
            filled.open("toy", read_only=read_only)


def test_a_damaged_text_is_reported_when_it_is_read(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The middle of large files has no checksum; damage there is reported when it is read, with what to do."""
    found = (one for path, one in stored_bytes(filled.location).items() if "payload_storage/page_0.dat" in path)
    file, start, end = next(found)
    with file.open("r+b") as opened:
        opened.seek(start + 4)
        opened.write(b"\xff" * min(4000, end - start - 4))
    take = edge_content._take_packed

    def taken(source: Path, stored: StoredFile, target: Path) -> int:
        take(source, stored, target)
        return stored.checksum

    monkeypatch.setattr(edge_content, "_take_packed", taken)
    collection = filled.open("toy")

    with pytest.raises(StoreError, match=r"'toy' failed while reading it, its files look damaged .*Restore the folder"):
        list(collection.scroll())


def test_foreign_files_are_left_out(filled: Store) -> None:
    """What another program adds to the files is not taken for the engine's."""
    folder = Path(filled.location) / "toy" / "files"
    (folder / ".DS_Store").write_bytes(b"desktop")
    os.mkfifo(folder / "pipe")

    assert filled.open("toy").count() == 60


def test_a_shard_that_a_process_has_open_is_not_called_damaged(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the child of a killed load still has the files, the error says so, and what it builds is left alone."""
    monkeypatch.setattr(edge_folder, "WAIT_S", 0.0)
    folder = filled.open("toy")._folder
    folder._keep()
    folder.release()
    work = Path(filled.location) / "toy" / "work" / "shard"
    shard = edge_shard.load_shard(work, "toy")
    half_built = work / "temp_segments" / "segment_builder_x"
    half_built.mkdir(parents=True)

    with pytest.raises(StoreLockedError, match="a writer that has not exited yet"):
        filled.open("toy")
    assert half_built.exists()
    shard.close()
    filled.open("toy").close()
    assert not half_built.exists()
