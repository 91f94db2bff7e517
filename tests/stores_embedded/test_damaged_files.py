"""Damaged files of the embedded engine: a clear error, without a crash, a hang or much memory."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from edge_cases import ROOT, WIDE, copy_files, manifest_of, many, nearest_names

from pearl_qdrant.errors import StoreError, StoreLockedError
from pearl_qdrant.store.edge import checksums as edge_checksums
from pearl_qdrant.store.edge import child_process as edge_process
from pearl_qdrant.store.edge import lock as edge_lock
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.store import EdgeStore

DAMAGED = r"'toy' cannot be opened, its files look damaged \(.*Restore .*collections delete toy and ingest again"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EdgeStore]:
    """A store with a closed collection of 20 points."""
    opened = EdgeStore(tmp_path / "store")
    collection = opened.create(manifest_of())
    collection.upsert(*many(20))
    collection.close()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a closed collection that has a graph, quantised vectors and a growing segment of 20 points."""
    location = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edge_shard, "INDEXING_THRESHOLD_KB", 160)
        store = EdgeStore(location)
        collection = store.create(manifest_of(dim=WIDE))
        with collection.writer() as writer:
            writer.write(*many(700, dim=WIDE))
        collection.finalize()
        collection.upsert(*many(20, dim=WIDE, start=700))
        store.close()
    return location


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The shards that are opened on trial in a child process."""
    tried: list[Path] = []
    probe = edge_checksums.open_on_trial

    def noting(shard: Path, collection: str) -> None:
        tried.append(shard)
        probe(shard, collection)

    monkeypatch.setattr(edge_checksums, "open_on_trial", noting)
    return tried


def shard_of(location: Path) -> Path:
    """Return the folder of Edge's files."""
    return location / "toy" / "shard"


def seal_of(store: EdgeStore) -> Path:
    """Return the file with the checksums."""
    return Path(store.location) / "toy" / "files.json"


def flip(file: Path, offset: int, bits: int = 0xFF) -> None:
    """Change a byte."""
    with file.open("r+b") as opened:
        opened.seek(offset)
        byte = opened.read(1)[0]
        opened.seek(offset)
        opened.write(bytes([byte ^ bits]))


# After a clean close


def test_a_collection_that_was_closed_is_opened_at_once(store: EdgeStore, probes: list[Path]) -> None:
    """Its files have not changed, so no child process is started to test them, however often it is opened."""
    for n_points in (20, 40, 60):
        assert seal_of(store).exists()
        collection = store.open("toy")
        assert collection.count() == n_points
        collection.upsert(*many(20, start=n_points))
        assert not seal_of(store).exists(), "it holds for closed files alone"
        collection.close()

    assert probes == []


@pytest.mark.slow
def test_checksums_match_after_every_kind_of_write(built: Path, tmp_path: Path) -> None:
    """After a graph, loads and deletions, Edge's own writes on closing do not count as damage."""
    copy_files(built, tmp_path / "store")
    store = EdgeStore(tmp_path / "store")
    for round_ in range(3):
        collection = store.open("toy")
        with collection.writer() as writer:
            writer.write(*many(50, dim=WIDE, start=1000 + 50 * round_))
        collection.delete_entities([f"E{round_}"])
        collection.close()

    collection = store.open("toy")
    assert collection.count() == 720 + 150 - 6
    collection.close()


@pytest.mark.parametrize("n_bytes", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_a_changed_byte_of_any_file_is_noticed_before_the_engine_sees_it(
    built: Path, tmp_path: Path, n_bytes: int
) -> None:
    """A changed byte in any small file, or at either end of a large one, is reported as damage."""
    copy_files(built, tmp_path / "store")
    shard, rng = shard_of(tmp_path / "store"), random.Random(1)
    seal = shard.with_name("files.json").read_bytes()
    files = sorted(file for file in shard.rglob("*") if file.is_file() and file.stat().st_size)
    assert len(files) > 100
    for file in files:
        size = file.stat().st_size
        ends = min(size, edge_checksums.EDGE_BYTES)
        offsets = {0, size - 1, rng.randrange(ends), size - 1 - rng.randrange(ends)}
        for offset in rng.sample(sorted(offsets), min(n_bytes, len(offsets))):
            flip(file, offset, 1 << rng.randrange(8))
            with pytest.raises(StoreError, match=rf"{DAMAGED}.*remove .*files.json") as told:
                edge_checksums.verify_and_remove_checksums(shard, "toy")
            assert str(file.relative_to(shard)) in str(told.value)
            shutil.copy2(shard_of(built) / file.relative_to(shard), file)

    assert shard.with_name("files.json").read_bytes() == seal, "a refused collection stays sealed"
    store = EdgeStore(tmp_path / "store")
    assert store.open("toy").count() == 720
    store.close()


@pytest.mark.parametrize("way", ["truncated", "longer", "missing", "folder"])
def test_a_file_of_another_size_or_kind_is_damage(store: EdgeStore, way: str) -> None:
    """Files that were cut, have grown or are missing since closing are named."""
    file = next(shard_of(Path(store.location)).rglob("segment.json"))
    content = file.read_bytes()
    file.unlink()
    if way == "folder":
        file.mkdir()
    elif way != "missing":
        file.write_bytes(content[:-1] if way == "truncated" else content + b" ")

    with pytest.raises(StoreError, match=f"(?s){DAMAGED}") as told:
        store.open("toy")
    assert "segment.json is not as it was when the collection was closed" in str(told.value)
    store.delete("toy")


def test_removing_the_checksums_opens_a_changed_collection(store: EdgeStore, probes: list[Path]) -> None:
    """For damage that Edge tolerates, the message says how to open the collection anyway."""
    trackers = list(shard_of(Path(store.location)).rglob("mutable_id_tracker.versions"))
    for tracker in trackers:
        flip(tracker, tracker.stat().st_size - 1)
    with pytest.raises(StoreError, match=r"To open it anyway, remove .*/toy/files.json\."):
        store.open("toy")
    seal_of(store).unlink()

    assert store.open("toy").count() == 20
    assert len(probes) == 1


def test_a_damaged_text_is_reported_when_it_is_read(store: EdgeStore) -> None:
    """The middle of large files has no checksum; damage there is reported when it is read, with what to do."""
    (page,) = shard_of(Path(store.location)).rglob("payload_storage/page_0.dat")
    with page.open("r+b") as opened:
        opened.write(bytes(4) + b"\xff" * 4000)
    seal_of(store).unlink()
    collection = store.open("toy")

    with pytest.raises(StoreError, match=r"'toy' failed while reading it, its files look damaged .*Restore the folder"):
        list(collection.scroll())


# After a crash


@pytest.mark.parametrize("seal", [None, b"", b"[" * 100_000, b'{"files": {"a": 1}}', b'{"files": {}, "version": 99}'])
def test_without_readable_checksums_files_are_tested_first(
    store: EdgeStore, probes: list[Path], seal: bytes | None
) -> None:
    """After a crash, or with foreign checksums, the collection is opened in a child process first."""
    seal_of(store).unlink()
    if seal is not None:
        seal_of(store).write_bytes(seal)

    assert store.open("toy").count() == 20
    assert len(probes) == 1


def test_unknown_files_are_tested_first(store: EdgeStore, probes: list[Path]) -> None:
    """A file added to the shard after closing is not damage, but may be anything."""
    (shard_of(Path(store.location)) / ".DS_Store").write_bytes(b"desktop")
    os.mkfifo(shard_of(Path(store.location)) / "segments" / "pipe")

    assert store.open("toy").count() == 20
    assert len(probes) == 1


CRASH = """
import os, sys
sys.path.insert(0, "tests/support")
from pathlib import Path
from edge_cases import many
from pearl_qdrant.store.edge.store import EdgeStore
collection = EdgeStore(Path(sys.argv[1])).open("toy")
collection.upsert(*many(1))
if sys.argv[2] == "crash":
    os._exit(1)
"""


@pytest.mark.parametrize("end, n_probes", [("crash", 1), ("exit", 0)])
def test_a_program_closes_its_collections_at_exit(
    store: EdgeStore, probes: list[Path], end: str, n_probes: int
) -> None:
    """At exit open collections are closed properly; after a crash the next process notices."""
    subprocess.run([sys.executable, "-c", CRASH, store.location, end], check=False, cwd=ROOT)

    assert store.open("toy").count() == 20
    assert len(probes) == n_probes


def test_a_collection_that_was_not_closed_keeps_its_content(built: Path, tmp_path: Path, probes: list[Path]) -> None:
    """A collection with a graph that was not closed gives the same answers after the test of its files."""
    copy_files(built, tmp_path / "store")
    (tmp_path / "store" / "toy" / "files.json").unlink()
    store = EdgeStore(tmp_path / "store")
    collection = store.open("toy")
    points, vectors, _ = many(700, dim=WIDE)

    assert nearest_names(collection, vectors[:50]) == [point.name for point in points[:50]]
    assert len(probes) == 1
    store.close()


def test_a_shard_that_a_process_has_open_is_not_called_damaged(
    store: EdgeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the child of a killed process still has the files, the error says so, after a short wait."""
    seal_of(store).unlink()
    monkeypatch.setattr(edge_lock, "WAIT_S", 0.0)
    shard = edge_shard.load_shard(shard_of(Path(store.location)), "toy")

    with pytest.raises(StoreLockedError, match="a writer that has not exited yet"):
        store.open("toy")
    shard.close()


def test_a_collection_opens_even_if_no_child_process_can_be_started(
    store: EdgeStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If Python is embedded, `sys.executable` may be another program or empty: that is not damage."""
    for executable in ("/bin/false", "/nonexistent/python"):
        collection = store.open("toy")
        collection.close()
        seal_of(store).unlink()
        with monkeypatch.context() as patch:
            patch.setattr(edge_process.sys, "executable", executable)
            collection = store.open("toy")
        assert collection.count() == 20
        collection.close()

    assert caplog.text.count("no process can be started to test its files first") == 2


# The worst that was found: lengths in files of Edge 0.9, by file, offset and byte

LETHAL = {
    "has_values/status.dat": (4, 0xFF),  # lengthens a file to 128 GB and reads it to its end
    "is_null/status.dat": (5, 0x01),
    "deleted/status.dat": (3, 0xFF),
    "mutable_id_tracker.mappings": (19, 0xFF),  # takes 3 GB
    "id_tracker.mappings": (6, 0x01),  # "memory allocation failed", and the process is gone
    "point_to_values.bin": (12, 0xFF),
    "segment.json": (0, 0x01),
    "version.info": (0, 0xFF),
}

OPEN = """
import json, resource, sys
from pathlib import Path
from pearl_qdrant.errors import StoreError
from pearl_qdrant.store.edge import checksums as edge_checksums
from pearl_qdrant.store.edge.store import EdgeStore
edge_checksums.CPU_S, edge_checksums.CPU_BYTES = 2, 1 << 40
said = []
for location in sys.argv[1:]:
    try:
        collection = EdgeStore(Path(location)).open("toy")
        said.append(f"opened {collection.count()}")
        collection.close()
    except StoreError as error:
        said.append(str(error))
# Not getrusage of this process: its highest counts what the process had from which it was forked.
status = Path("/proc/self/status").read_text()
highest = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
highest.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
print(json.dumps([said, [1024 * one for one in highest]]))
"""


def opened_apart(*locations: Path) -> list[str]:
    """Open stores in another process and return its output; it and its children have a bound on their memory."""
    ended = subprocess.run([sys.executable, "-c", OPEN, *locations], capture_output=True, check=False, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr.decode()
    said, sizes = json.loads(ended.stdout)
    assert max(sizes) < 2e9, (said, sizes)
    return list(said)


@pytest.fixture(scope="module")
def lethal(built: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What opening says of a store with one wrong byte, for each of `LETHAL`; one process opens them all."""
    places = [tmp_path_factory.mktemp("lethal") / "store" for _ in LETHAL]
    for place, (name, (offset, byte)) in zip(places, LETHAL.items(), strict=True):
        copy_files(built, place)
        (place / "toy" / "files.json").unlink()
        files = sorted(file for file in shard_of(place).rglob("*") if str(file).endswith("/" + name))
        assert files, name
        for file in files:
            with file.open("r+b") as opened:
                opened.seek(offset)
                opened.write(bytes([byte]))
    return dict(zip(LETHAL, opened_apart(*places), strict=True))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory")
@pytest.mark.parametrize("name", LETHAL)
def test_one_wrong_byte_neither_takes_all_memory_nor_crashes(lethal: dict[str, str], name: str) -> None:
    """After a crash, a wrong length in a file is a clear error or harmless."""
    said = lethal[name]

    assert any(text in said for text in ("look damaged", "memory ran out", "opened 720")), said
    assert said.startswith("Collection 'toy' cannot be opened") or "status.dat" in name


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory")
def test_random_bytes_in_any_file_are_clear_errors(built: Path, tmp_path: Path) -> None:
    """A random byte near the beginning of a file, where lengths are, in forty files one by one."""
    rng = random.Random(1)
    names = sorted(str(file.relative_to(built)) for file in shard_of(built).rglob("*") if file.is_file())
    for number, name in enumerate(rng.sample(names, 40)):
        place = tmp_path / str(number)
        copy_files(built, place)
        (place / "toy" / "files.json").unlink()
        size = (place / name).stat().st_size
        if size:
            flip(place / name, rng.randrange(min(size, 24)), rng.randrange(1, 256))
        (said,) = opened_apart(place)
        shutil.rmtree(place)

        assert said.startswith(("Collection 'toy' cannot be opened", "opened ")), (name, said)
