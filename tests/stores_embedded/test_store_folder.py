"""Folders that cannot be an embedded store, foreign and damaged files in them, too few resources: clear errors."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from edge_cases import ROOT, WIDE, copy_files, left, nearest_names, stored_bytes, stored_files
from effort import THOROUGH
from small_disk import small_disk
from store_cases import manifest_of, many

from pearl_qdrant.errors import ManifestError, StoreError, StoreFullError, StoreLockedError
from pearl_qdrant.linking.learned import ledger
from pearl_qdrant.store import Store, open_store
from pearl_qdrant.store.edge import content as edge_content
from pearl_qdrant.store.edge import folder as edge_folder
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.content import StoredFile, read_content, take_files, write_content


def folder_of(filled: Store) -> Path:
    """Return the folder of its collection."""
    return Path(filled.location) / "toy"


WRITABLE = r"Make .*/toy writable for this user, open .* read-only to search it, or use a copy .* in a writable folder"


def test_a_collection_in_a_read_only_folder_says_that_it_must_be_writable(tmp_path: Path) -> None:
    """Even a search writes a lock and Edge's files, so a read-only file system is an error that says what to do."""
    with small_disk(tmp_path / "disk", "200m") as disk:
        store = open_store(disk)
        store.create(manifest_of()).close()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)

        with pytest.raises(StoreError, match=rf"'toy' cannot be opened for writing .*Read-only.*{WRITABLE}"):
            store.open("toy")
        with pytest.raises(StoreError, match=r"'toy' cannot be opened for writing .*Read-only"):
            store.delete("toy")
        with pytest.raises(StoreError, match=r"'other' cannot be created: .*Read-only.*as the store"):
            store.create(manifest_of("other"))
        assert store.collections() == ["toy"]


OPENING = """
import os, shutil, sys
from pearl_qdrant.errors import StoreFullError
from pearl_qdrant.store import open_store

disk = sys.argv[1]
for megabytes in (85, 58, 40, 18, 9):
    with open(f"{disk}/fill", "ab") as fill:
        fill.write(bytes(shutil.disk_usage(disk).free - megabytes * 1_000_000))
    for read_only in (False, True):
        try:
            open_store(f"{disk}/store").open("toy", read_only=read_only).close()
            print("opened")
        except StoreFullError as error:
            print("full" if "free some space" in str(error) else error)
"""


FILLING = """
import os, sys
from pearl_qdrant.errors import StoreFullError
from pearl_qdrant.store import open_store
from store_cases import many

disk = sys.argv[1]
collection = open_store(f"{disk}/store").open("toy")
with open(f"{disk}/fill", "wb", buffering=0) as fill:
    size = 1 << 20
    while size >= 512:
        try:
            fill.write(bytes(size))
        except OSError:
            size //= 2
    os.fsync(fill.fileno())
for change in (lambda: collection.upsert(*many(60)), lambda: collection.delete_entities(["x"])):
    try:
        change()
    except StoreFullError as error:
        print("full" if "free some space" in str(error) else error)
collection.close()
os.remove(f"{disk}/fill")
again = open_store(f"{disk}/store").open("toy")
again.upsert(*many(60))
print(again.status().points)
"""


FULL, ELSEWHERE = ["full"] * 2, ["full", "opened"]


@pytest.mark.parametrize(
    "script, size, kind, said",
    [
        ("opening", "300m", "tmpfs", FULL * 5),
        ("opening elsewhere", "300m", "tmpfs", ELSEWHERE * 5),
        ("filling", "400M", "tmpfs", [*FULL, "60"]),
        ("filling", "400M", "ext4", [*FULL, "60"]),
    ],
)
def test_a_disk_without_space_ends_no_process(
    tmp_path: Path, script: str, size: str, kind: str, said: list[str]
) -> None:
    """Files in memory take their space when they are opened: where it is not there, that is a full disk; to read, the
    folder for temporary files does as well. Of an open collection, a page of a mapped file without a place on the disk
    would be SIGBUS; what is stored stays.
    """
    with small_disk(tmp_path / "disk", size, kind) as disk:
        store = open_store(disk / "store")
        with closing(store), closing(store.create(manifest_of())) as collection:
            collection.upsert(*many(50))
        temporary = tmp_path if "elsewhere" in script else disk
        env = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)}
        code = FILLING if script == "filling" else OPENING
        done = subprocess.run(
            [sys.executable, "-c", code, str(disk)], env=env, capture_output=True, text=True, check=False
        )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == said


def test_a_lock_that_cannot_be_created_is_reported(filled: Store) -> None:
    """The error says why the lock file cannot be created, and what to do."""
    lock = folder_of(filled) / ".lock"
    lock.unlink()
    lock.mkdir()

    with pytest.raises(StoreError, match=rf"directory.*{WRITABLE}"):
        filled.open("toy")
    with pytest.raises(StoreError, match="directory"):
        filled.delete("toy")


def test_a_file_system_without_locks_is_reported(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network file systems have no locks: the error does not claim that another process has the collection."""

    def refuse(file: object, flags: object) -> None:
        raise edge_folder.portalocker.LockException(OSError(errno.ENOLCK, "No locks available"))

    monkeypatch.setattr(edge_folder.portalocker, "lock", refuse)

    with pytest.raises(StoreError, match=r"'toy' cannot be locked .*No locks available.*local disk.*server"):
        filled.open("toy")


@pytest.mark.parametrize("part", ["x" * 300, "/".join(["y" * 200] * 30)])
def test_a_store_path_that_is_too_long_is_refused(tmp_path: Path, part: str) -> None:
    """A path that the file system refuses is a store error with the system's message."""
    store = open_store(tmp_path / part)
    for act in (
        store.collections,
        lambda: store.create(manifest_of()),
        lambda: store.open("t"),
        lambda: store.delete("t"),
    ):
        with pytest.raises(StoreError, match=r"(?s)File name too long.*as the store"):
            act()


def test_a_folder_that_cannot_be_read_is_reported(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the folder cannot be read, I learn that, and not that the collection does not exist."""

    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pearl_qdrant.store.edge.store._is_collection", refuse)

    for act in (filled.open, filled.delete):
        with pytest.raises(StoreError, match=r"cannot be read.*Permission denied.*as the store"):
            act("toy")


@pytest.mark.parametrize(
    "content, why",
    [
        (b"[" * 200_000, "its JSON is nested too deeply"),
        (b'{"dim": -1}', "unreadable"),
        (b'{"collection": "toy", "kb"', "unreadable"),
        (b"\xff\xfe", "unreadable"),
        (None, "there is none"),
        (os.mkdir, "there is none"),
        (os.mkfifo, "there is none"),
        (b" " * 101, "it has more than 100 bytes"),
    ],
)
def test_a_hostile_manifest_is_refused(
    filled: Store, monkeypatch: pytest.MonkeyPatch, content: bytes | Callable[[Path], None] | None, why: str
) -> None:
    """Deep, large, torn, foreign, missing or no file: an error each time, and the collection can be deleted."""
    if "100 bytes" in why:
        monkeypatch.setattr(edge_content, "MAX_MANIFEST_BYTES", 100)
    manifest = folder_of(filled) / "manifest.json"
    manifest.unlink()
    if callable(content):
        content(manifest)
    elif content is not None:
        manifest.write_bytes(content)

    for _ in range(2):
        with pytest.raises(ManifestError, match=rf"{why}.*Restore it from a copy"):
            filled.open("toy")
    assert filled.collections() == ["toy"]
    filled.delete("toy")
    assert list(Path(filled.location).iterdir()) == []


def test_links_in_the_folder_do_not_overwrite_files_outside(filled: Store, tmp_path: Path) -> None:
    """A link in place of the lock or of a temporary manifest does not overwrite its target."""
    outside = tmp_path / "outside"
    outside.write_text("precious", encoding="utf-8")
    folder = folder_of(filled)
    (folder / ".manifest.json.new").symlink_to(outside)
    collection = filled.open("toy")
    collection.write_manifest(collection.manifest.model_copy(update={"names": 7}))
    collection.close()
    (folder / ".lock").unlink()
    (folder / ".lock").symlink_to(outside)

    with pytest.raises(StoreError, match="'toy' cannot be opened for writing"):
        filled.open("toy")
    assert outside.read_text(encoding="utf-8") == "precious"
    assert json.loads((folder / "manifest.json").read_bytes())["names"] == 7


def test_the_owner_in_a_lock_file_is_shown_safely(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk may leave it empty, and anybody may write it: no control characters or long texts are shown."""
    lock = folder_of(filled) / ".lock"

    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        held = edge_folder.CollectionLock.acquire(lock, "toy", wait_s=0)
    with pytest.raises(StoreError, match=r"\(unknown\)"):
        edge_folder.CollectionLock.acquire(lock, "toy", wait_s=0)
    lock.write_bytes("process 1: \x1b[31m\u202e\a".encode() + b"x" * 1_000_000)
    with pytest.raises(StoreError) as told:
        edge_folder.CollectionLock.acquire(lock, "toy", wait_s=0)
    held.release()

    assert str(told.value).isprintable()
    assert "(process 1: ?[31m??xxx" in str(told.value)
    assert len(str(told.value)) < 400


KEPT = "What is stored in it is kept: free some space"


def test_the_error_for_a_full_disk_says_what_is_kept(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says whether the collection was created, or which points are kept."""
    collection = filled.open("toy")
    full = SimpleNamespace(**vars(edge_shard.shutil) | {"disk_usage": lambda path: SimpleNamespace(free=0)})
    monkeypatch.setattr(edge_shard, "shutil", full)

    with pytest.raises(StoreFullError, match=r"for collection 'other'.*It was not created: free some space"):
        filled.create(manifest_of("other"))
    with pytest.raises(StoreFullError, match="What was acknowledged is kept: free some space"):
        collection.upsert(*many(1))
    collection.close()
    with pytest.raises(StoreFullError, match=KEPT):
        filled.open("toy")
    for said, told in (
        ("No space left on device (os error 28)", KEPT),
        ("Permission denied (os error 13)", "cannot be opened for writing (Permission denied (os error 13))"),
    ):
        assert told in str(edge_shard.translate_error(said, "toy", "opening it"))


def test_a_torn_last_line_of_the_ledger_is_ended(filled: Store) -> None:
    """After a process died while it wrote, new lines do not run into the torn one."""
    collection = filled.open("toy")
    (folder_of(filled) / edge_content.LEDGER_FILE).write_bytes(b"whole\nto")
    collection.append_ledger([b"next"])

    assert list(collection.read_ledger()) == [b"whole", b"to", b"next"]


def test_a_ledger_that_cannot_be_written_stays_as_it_was(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without space, or where it is not a file of this user, the error says so and nothing is left of the lines."""
    collection = filled.open("toy")
    collection.append_ledger([b"whole"])

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreFullError, match="No space left"):
            collection.append_ledger([b"lost"])
    assert list(collection.read_ledger()) == [b"whole"]
    (folder_of(filled) / edge_content.LEDGER_FILE).unlink()
    (folder_of(filled) / edge_content.LEDGER_FILE).mkdir()
    with pytest.raises(StoreError, match="toy"):
        collection.append_ledger([b"lost"])


def test_a_kept_ledger_is_adopted_after_a_crash(filled: Store) -> None:
    """If a process dies between keeping a ledger and deleting its collection, opening it puts the ledger back."""
    collection = filled.open("toy")
    collection.append_ledger([b"whole"])
    collection.close()
    edge_content.retire_ledger(Path(filled.location), "toy", keep=True)
    assert not (folder_of(filled) / edge_content.LEDGER_FILE).exists()

    assert list(filled.open("toy").read_ledger()) == [b"whole"]


FORBIDDEN = ("damaged", "delete", "as the store", "writable", "Restore")

FEW_FILES = """
import json, os, resource, sys
sys.path.insert(0, "tests/support")
from contextlib import suppress
from pathlib import Path
from store_cases import many
from pearl_qdrant.errors import StoreError
from pearl_qdrant.store import Store, open_store
used = max(map(int, os.listdir("/proc/self/fd")))
said = {}
for more in range(0, 45, 2):
    for read_only in (True, False):
        store = open_store(Path(sys.argv[1]))
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + more, hard))
        try:
            for glance in store.glance(store.collections()):
                said[f"{more} glance"] = glance.problem or "opened"
            collection = store.open("toy", read_only=read_only)
            collection.count()
            said[f"{more} {read_only}"] = "opened"
        except StoreError as error:
            said[f"{more} {read_only}"] = str(error)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        with suppress(StoreError):
            store.close()
print(json.dumps(said))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of open files")
@pytest.mark.slow
def test_with_too_few_files_every_error_says_so(filled: Store) -> None:
    """Wherever the limit of open files strikes, the error names it, and what is stored opens with a higher one."""
    command = [sys.executable, "-c", FEW_FILES, filled.location]
    ended = subprocess.run(command, capture_output=True, check=False, cwd=ROOT, text=True)
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    failed = {key: text for key, text in said.items() if text != "opened"}

    assert len(failed) > 2
    assert "opened" in said.values()
    for text in failed.values():
        assert "open files" in text
        assert "ulimit -n" in text
        without_path = re.sub("'/[^']*'", "", text)  # the engine has files named deleted
        assert not any(word in without_path for word in FORBIDDEN), text
    assert filled.open("toy").count() == 60


@pytest.mark.parametrize(
    "message, word",
    [
        ("Service runtime error: Too many open files (os error 24)", "open files"),
        ("failed to open WAL: Cannot allocate memory (os error 12)", "memory"),
        ("memory allocation of 4294967296 bytes failed", "memory"),
        ('failed to spawn thread: Os { code: 11, kind: WouldBlock, message: "Resource temporarily..." }', "thread"),
        ("failed to build edge-search thread pool: Resource temporarily unavailable (os error 11)", "thread"),
    ],
)
def test_what_the_engine_says_of_resources(message: str, word: str) -> None:
    """The engine's own texts about files and memory are told from those about damage."""
    said = str(edge_shard.translate_error(message, "toy", "opening it"))

    assert word in said
    assert not any(text in said for text in FORBIDDEN)


def test_a_huge_ledger_that_memory_cannot_hold_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """If memory runs out while learned names are read, the error says so, and not a traceback."""

    def fail(*given: object) -> None:
        raise MemoryError

    monkeypatch.setattr(ledger, "parse_ledger", fail)
    collection = SimpleNamespace(name="toy", manifest=SimpleNamespace(kb="kb"), read_ledger=list)
    with pytest.raises(StoreError, match="What collection 'toy' learned cannot be read: memory ran out"):
        ledger.read_ledger(collection)  # type: ignore[arg-type]


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
    for one, (file, start, end) in sorted(files.items())[:: 1 if THOROUGH else 3]:
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
