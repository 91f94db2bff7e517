"""A completely full disk, during a load and before a search."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_disk import small_disk
from soak_chains import COLLECTION, Chain, EdgePlace, Ended, Lab, Run

from pearl_qdrant.errors import StoreError, StoreFullError, StoreLockedError
from pearl_qdrant.store import open_store
from pearl_qdrant.store.edge import child_process as edge_process
from pearl_qdrant.store.edge.folder import CollectionLock
from pearl_qdrant.store.schema import Manifest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs")

N_ENTITIES = 220


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system."""
    with small_disk(tmp_path / "disk", "320m") as folder:
        yield folder


@pytest.fixture
def chain(tmp_path: Path, disk: Path, model: Path) -> Chain:
    """A load to that disk that has not started."""
    place = EdgePlace(disk)
    lab = Lab.make(tmp_path / "lab", model, N_ENTITIES)
    lab.prepare(place)
    return Chain(lab, place, tmp_path, random.Random(1))


def fill(disk: Path) -> Path:
    """Make a file that takes all free space."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for n_bytes in (1 << 20, 1 << 12):
            with suppress(OSError):
                while True:
                    file.write(bytes(n_bytes))
    return ballast


def assert_reports_full_disk(ended: Ended) -> None:
    """Check that it failed with a message about the disk."""
    assert (ended.status, "Traceback" in ended.err) == (1, False), ended.err
    assert "No space left for collection 'base'" in ended.err
    assert "free some space and run the same command again" in ended.err


@pytest.mark.slow
def test_a_disk_that_something_else_fills_stops_a_load_and_loses_nothing(chain: Chain, disk: Path) -> None:
    """Without free space ingest fails with a message, and link reads; with space again the load completes."""
    chain.place.reset()
    run = chain.begin("checkpoint", nth=1)
    run.signal_group(signal.SIGSTOP)  # or it may be done before the disk is full
    ballast = fill(disk)
    run.signal_group(signal.SIGCONT)
    assert_reports_full_disk(run.wait())
    assert_reports_full_disk(Run(chain.folder, chain.words()).wait())
    words = ["link", "a name", "--collection", COLLECTION, "--store", chain.place.location]
    linked = Run(chain.folder, [*words, "--model", str(chain.lab.model)]).wait()
    # A reader has its files elsewhere, and needs no space on that disk.
    assert linked.status == 0, linked.err
    assert "Collection 'base' is incomplete" in linked.err

    ballast.unlink()
    ended = chain.resume()

    assert ended.counts()["resumed_at"], "it did not begin anew"
    chain.check(verify=False)


def test_a_collection_is_locked_on_a_full_disk_too(disk: Path) -> None:
    """A lock file works even if there is no space for its owner's name."""
    fill(disk)
    lock = CollectionLock.acquire(disk / "lock", "base")

    assert (disk / "lock").read_bytes() == b""
    with pytest.raises(StoreLockedError, match="unknown"):
        CollectionLock.acquire(disk / "lock", "base", wait_s=0)
    lock.release()


@pytest.mark.parametrize(
    "number, free, expected, message",
    [
        (signal.SIGBUS, 5_000_000, StoreFullError, r"5 MB free.*SIGBUS.*free some space"),
        (signal.SIGBUS, 10**12, StoreError, r"SIGBUS.*1,000,000 MB are free now.*is kept"),
        (signal.SIGKILL, 10**12, StoreError, r"SIGKILL.*memory.*is kept"),
        (signal.SIGKILL, 0, StoreFullError, r"0 MB free.*SIGKILL.*free some space"),
    ],
)
def test_the_error_for_a_killed_writer_names_the_free_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, free: int, expected: type[StoreError], message: str
) -> None:
    """The error names the signal; it blames the disk only if there is no space left."""
    manifest = Manifest(collection="toy", kb="toy", model="m", weights_hash="sha256:0", dim=8, has_head=False)
    store = open_store(tmp_path)
    folder = store.create(manifest)._folder
    with folder.hand_over("being loaded"):
        child = edge_process.EdgeProcess(folder.job("load"))
        child.receive_answer()
        os.kill(child.pid, number)
        monkeypatch.setattr(edge_process, "shutil", SimpleNamespace(disk_usage=lambda path: SimpleNamespace(free=free)))

        with pytest.raises(StoreError, match=message) as told:
            child.request(edge_process.FLUSH)
        child.end()
    store.close()

    assert type(told.value) is expected
