"""Where views are made, of links or of copies, and what happens where neither can be."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from edge_cases import ROOT, copy_files, nearest_names, stored_files
from store_cases import manifest_of, many

from pearl_qdrant.errors import StoreFullError
from pearl_qdrant.store import Store, open_store
from pearl_qdrant.store.edge import content as edge_content
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge import view as edge_places
from pearl_qdrant.store.edge.content import write_at

N = 60


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one closed collection of 60 names and a graph, which no test changes."""
    store = open_store(tmp_path_factory.mktemp("built") / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edge_shard, "INDEXING_THRESHOLD_KB", 1)
        collection = store.create(manifest_of())
        collection.upsert(*many(N))
        collection.finalize()
        store.close()
    return Path(store.location)


@pytest.fixture
def store(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A copy of that store, and a folder for temporary files."""
    monkeypatch.setattr(edge_shard, "INDEXING_THRESHOLD_KB", 1)
    opened = open_store(copy_files(built, tmp_path / "store"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    yield opened
    opened.close()


def kinds(folder: Path) -> dict[str, str]:
    """How each large file of a view was made."""
    found = {}
    for file in folder.rglob("*"):
        if file.name in ("matrix.dat", "page_0.dat", "id_tracker.deleted") and "payload_index" not in file.parts:
            kind = "symbolic" if file.is_symlink() else "hard" if file.stat().st_nlink > 1 else "copy"
            found[file.name] = max(kind, found.get(file.name, ""))
    return found


def no_hard_links(monkeypatch: pytest.MonkeyPatch, number: int = errno.EXDEV) -> None:
    """A file system without hard links."""

    def fail(self: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "hardlink_to", fail)


def no_room_in_the_store(store: Store, monkeypatch: pytest.MonkeyPatch, number: int = errno.EROFS) -> None:
    """A store in which no folder can be made."""
    make = tempfile.mkdtemp

    def mkdtemp(suffix: str | None = None, prefix: str | None = None, dir: Path | None = None) -> str:
        if dir is not None and str(dir) == store.location:
            raise OSError(number, os.strerror(number))
        return make(suffix, prefix, dir)

    monkeypatch.setattr(edge_places.tempfile, "mkdtemp", mkdtemp)


def test_large_files_are_hard_links(store: Store) -> None:
    """In the store's own file system nothing large is copied."""
    reader = store.open("toy", read_only=True)
    assert kinds(reader._folder.path) == {"matrix.dat": "hard", "page_0.dat": "hard", "id_tracker.deleted": "copy"}
    assert reader._folder.path.parent == Path(store.location)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_store_that_cannot_be_written_is_read(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    """Where the store takes no folder, the view lies with the temporary files, and goes with its handle."""
    no_room_in_the_store(store, monkeypatch, number)
    no_hard_links(monkeypatch)
    reader = store.open("toy", read_only=True)
    _, queries, _ = many(N)

    assert kinds(reader._folder.path) == {"matrix.dat": "symbolic", "page_0.dat": "copy", "id_tracker.deleted": "copy"}
    assert nearest_names(reader, queries) == [f"name {i}" for i in range(N)]
    assert len(list((tmp_path / "temporary").iterdir())) == 1
    reader.close()
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_read_only_mount_is_read(store: Store, tmp_path: Path) -> None:
    """A store on a file system that is mounted read-only is searched, and nothing is left."""
    mount, script = tmp_path / "mount", tmp_path / "read.py"
    mount.mkdir()
    script.write_text(
        "import sys; from pearl_qdrant.store import open_store\n"
        "reader = open_store(sys.argv[1]).open('toy', read_only=True)\n"
        "print(reader.count(), ', '.join(sorted(one.name for one in reader.find(entity_ids=['E0'], limit=9))))\n"
    )
    steps = f'mount --bind "$0" "{mount}" && mount -o remount,ro,bind "{mount}" || exit 77; "$1" "$2" "{mount}"'
    unshare = shutil.which("unshare") or pytest.skip("there is no unshare")
    done = subprocess.run(
        [unshare, "-rm", "sh", "-c", steps, store.location, sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "temporary")},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip("nothing can be mounted here")

    assert (done.stdout, done.stderr) == (f"{N} name 0, name 1\n", "")
    assert list((tmp_path / "temporary").iterdir()) == []


def test_without_any_links_all_is_copied(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where neither hard nor symbolic links can be made, writers and readers have copies, and see the same."""
    no_hard_links(monkeypatch, errno.EPERM)

    def fail(self: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", fail)
    writer = store.open("toy")
    before = store.open("toy", read_only=True)
    stored = set(stored_files(store.location).values())
    writer.upsert(*many(10, start=N))
    assert set(kinds(before._folder.path).values()) == {"copy"}
    assert len(stored & set(stored_files(store.location).values())) > len(stored) / 3  # not copied once more
    writer.close()
    assert [before.count(), store.open("toy", read_only=True).count(), store.open("toy").count()] == [N, N + 10, N + 10]


@pytest.mark.parametrize("step", ["write_at", "sync", "write_content"])
def test_a_commit_that_fails_anywhere_leaves_no_files(store: Store, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Wherever the disk is full in a commit, what it had stored until then is removed, and nothing is lost."""
    calls = 0

    def full(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 9 or step != "write_at":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_at(*given, **named)

    writer = store.open("toy")
    writer.upsert(*many(5, start=N))
    with monkeypatch.context() as patch:
        patch.setattr(edge_content, step, full)
        with pytest.raises(StoreFullError, match="free some space"):
            writer.upsert(*many(5, start=N + 5))
    assert set((Path(store.location) / "toy" / "files").iterdir()) == set(stored_files(store.location).values())
    assert store.open("toy", read_only=True).count() == N + 5
    if step == "sync":
        writer.upsert(*many(5, start=N + 10))
        assert store.open("toy", read_only=True).count() == N + 15
        return
    writer.close()
    assert store.open("toy").count() == N + 10
