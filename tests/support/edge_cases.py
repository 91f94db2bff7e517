"""What the tests of the embedded store share: points, and child processes that are really killed."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from store_cases import many

from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.store import Collection, Store
from pearl_qdrant.store.edge import child_process as edge_process
from pearl_qdrant.store.edge.content import FILES_FOLDER, copy_file, list_files, read_content, take_files

WIDE = 64
"""So wide that with `low_threshold` 640 vectors are enough for a graph."""

ROOT = Path(__file__).resolve().parents[2]


def stored_files(location: str | Path, name: str = "toy") -> dict[str, Path]:
    """Which file has each current file of a collection, by its path in the shard; small ones share one."""
    path = Path(location) / name
    return {one: path / FILES_FOLDER / file.token for one, file in read_content(path, name)[1].files.items()}


def stored_bytes(location: str | Path, name: str = "toy") -> dict[str, tuple[Path, int, int]]:
    """Where in it the bytes of each current file are that are not zero: file, start and end; for those with any."""
    files, found = read_content(Path(location) / name, name)[1].files, {}
    for one, file in stored_files(location, name).items():
        n = files[one].size if files[one].spans is None else sum(n for _, n in files[one].spans)
        if n:
            found[one] = (file, files[one].start, files[one].start + n)
    return found


def taken_files(location: str | Path, target: Path, name: str = "toy") -> Path:
    """Make a shard of the current files of a collection; returns `target`."""
    path = Path(location) / name
    take_files(path, name, read_content(path, name)[1].files, target)
    return target


def copy_files(source: Path, target: Path) -> Path:
    """Copy a folder; holes stay holes, which `shutil.copytree` fills. Returns `target`."""
    for name, _ in list_files(source):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        copy_file(source / name, target / name)
    return target


def digest(file: Path) -> str:
    """Digest of a file. Holes and blocks of zeros are left out: a small collection has 200 MB of them."""
    buffer, zeros = bytearray(1 << 16), bytes(1 << 16)
    found, start = hashlib.sha256(str(file.stat().st_size).encode()), 0
    with file.open("rb", buffering=0) as opened:
        while True:
            try:
                start = opened.seek(opened.seek(start, os.SEEK_DATA) // len(buffer) * len(buffer))
            except OSError:  # there is only a hole
                return found.hexdigest()
            n_read = opened.readinto(buffer)
            if buffer[:n_read] != zeros[:n_read]:
                found.update(b"%d %b" % (start, buffer[:n_read]))
            start += len(buffer)


def check_files(location: str | Path, name: str = "toy") -> None:
    """A closed collection has what is current and nothing else."""
    folder = Path(location) / name
    assert {path.name for path in folder.iterdir()} <= {".lock", "manifest.json", "files", "learned.jsonl"}
    assert {*(folder / FILES_FOLDER).iterdir()} == {*stored_files(location, name).values()}


def add(collection: Collection, start: int, n: int = 10) -> None:
    """Write more names."""
    collection.upsert(*many(n, start=start))


def left(store: Store) -> list[str]:
    """The folders of views in a store."""
    return sorted(path.name for path in Path(store.location).glob(".view-*"))


def nearest_names(collection: Collection, vectors: FloatArray) -> list[str]:
    """Name of the nearest point of each vector."""
    return [hits[0].point.name for hits in collection.search(vectors, limit=1)]


def kill(child: edge_process.EdgeProcess, number: int = signal.SIGKILL) -> None:
    """Send a signal to a child process."""
    os.kill(child.pid, number)


def is_running(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: Any, *, seconds: float = 300.0) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.001)


def python(script: str, *arguments: str) -> subprocess.Popen[str]:
    """Run a script in another process."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
