"""The ledger file of an embedded collection: torn lines, full disks, moved folders."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_cases import manifest_of

from pearl_qdrant.errors import StoreError, StoreFullError
from pearl_qdrant.store import open_store
from pearl_qdrant.store.edge import content as ledger
from pearl_qdrant.store.protocol import Collection


@pytest.fixture
def collection(tmp_path: Path) -> Iterator[Collection]:
    """An open collection in the folder `base`."""
    store = open_store(tmp_path)
    yield store.create(manifest_of("base"))
    store.close()


def test_a_torn_last_line_is_ended(tmp_path: Path, collection: Collection) -> None:
    """After a process died while it wrote, new lines do not run into the torn one."""
    (tmp_path / "base" / ledger.LEDGER_FILE).write_bytes(b"whole\nto")
    collection.append_ledger([b"next"])

    assert list(collection.read_ledger()) == [b"whole", b"to", b"next"]


def test_a_full_disk_leaves_the_ledger_as_it_was(
    tmp_path: Path, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there is no space, the error says so and nothing is left of the lines."""
    collection.append_ledger([b"whole"])

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(ledger.os, "fsync", full)
    with pytest.raises(StoreFullError, match="No space left"):
        collection.append_ledger([b"lost"])

    assert list(collection.read_ledger()) == [b"whole"]


def test_a_ledger_that_cannot_be_written_is_an_error(tmp_path: Path, collection: Collection) -> None:
    """A ledger that is not a file of this user is reported, with the collection."""
    (tmp_path / "base" / ledger.LEDGER_FILE).mkdir()
    with pytest.raises(StoreError, match="base"):
        collection.append_ledger([b"lost"])


def test_a_kept_ledger_is_adopted_after_a_crash(tmp_path: Path, collection: Collection) -> None:
    """If a process dies between keeping a ledger and deleting its collection, opening it puts the ledger back."""
    collection.append_ledger([b"whole"])
    collection.close()
    ledger.retire_ledger(tmp_path, "base", keep=True)
    store = open_store(tmp_path)
    with pytest.raises(FileNotFoundError):
        (tmp_path / "base" / ledger.LEDGER_FILE).stat()
    assert list(store.open("base").read_ledger()) == [b"whole"]
    store.close()
