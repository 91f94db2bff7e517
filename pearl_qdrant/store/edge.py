"""The embedded store: collections in a folder, through Qdrant Edge, Qdrant's own engine in this process.

It serves one process at a time. Searching happens here; a bulk load and the building of the graph happen in a child
process (`edge_writer.py`), because of the engine's memory and because it holds the interpreter lock.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from pearl_qdrant.errors import (
    CollectionExistsError,
    CollectionNotFoundError,
    StoreError,
    StoreLockedError,
    StoreRejectedError,
)
from pearl_qdrant.store import edge_shard
from pearl_qdrant.store.edge_collection import EdgeCollection
from pearl_qdrant.store.edge_folder import (
    LOCK_FILE,
    MANIFEST_FILE,
    SHARD_FOLDER,
    CollectionFolder,
    write_atomically,
)
from pearl_qdrant.store.edge_lock import CollectionLock
from pearl_qdrant.store.schema import Manifest

MAX_NAME_BYTES = 200
"""Of a collection's name in UTF-8: file systems stop at 255, and a folder in the making has a longer one."""

_FORBIDDEN = set('/\\:*?"<>|')  # what one file system or another does not take
_STALE_S = 3600.0  # a folder in the making, or being deleted, that is older was left by a process that died


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a collection.

    Raises:
        StoreRejectedError: If no folder may have that name.
    """
    reason = None
    if not name or name.startswith(".") or name[-1] in ". ":
        reason = "it must not be empty, begin with a dot, or end with a dot or space"
    elif _FORBIDDEN & set(name) or not name.isprintable():
        reason = f"it must not hold control characters or any of {' '.join(sorted(_FORBIDDEN))}"
    elif len(name.encode()) > MAX_NAME_BYTES:
        reason = f"it has {len(name.encode())} bytes, {MAX_NAME_BYTES} are allowed"
    if reason:
        raise StoreRejectedError(f"{name!a} cannot be the name of a collection: {reason}.")


class EdgeStore:
    """The collections in one folder; the folder is made with the first of them."""

    def __init__(self, path: Path) -> None:
        self._path = Path(os.path.realpath(path))
        self._opened: list[EdgeCollection] = []

    def __repr__(self) -> str:
        return f"EdgeStore({self.location!r})"

    @property
    def location(self) -> str:
        """The folder."""
        return str(self._path)

    def collections(self) -> list[str]:
        """Names of the folders that hold a collection, usable or not; sorted."""
        try:
            return sorted(path.name for path in self._path.iterdir() if _is_collection(path))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(
                f"The store {self.location} cannot be read: {error}. Name a folder with --store."
            ) from error

    def create(self, manifest: Manifest) -> EdgeCollection:
        """Create a collection; as in `protocol.Store.create`. It appears whole or not at all."""
        name = manifest.collection
        path = self._folder(name)
        if path.exists():
            raise CollectionExistsError(name)
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            self._sweep()
            making = Path(tempfile.mkdtemp(prefix=".new-", dir=self._path))
        except OSError as error:
            raise StoreError(f"The store {self.location} cannot be written: {error}.") from error
        try:
            edge_shard.check_space(making, name)
            with edge_shard.edge_errors(name, "creating it"):
                edge_shard.create_shard(making / SHARD_FOLDER, manifest.dim)
            write_atomically(making / MANIFEST_FILE, manifest.as_created().model_dump_json(indent=2) + "\n")
            making.chmod(0o777 & ~_umask())  # mkdtemp's folders are their owner's alone
            making.rename(path)
        except OSError as error:
            if path.exists():  # somebody else was faster
                raise CollectionExistsError(name) from error
            raise StoreError(f"Collection '{name}' cannot be created in {self.location}: {error}.") from error
        finally:
            shutil.rmtree(making, ignore_errors=True)
        return self.open(name)

    def open(self, name: str) -> EdgeCollection:
        """Open a collection; as in `protocol.Store.open`. Opened twice in a process, it is shared."""
        path = self._folder(name)
        if not _is_collection(path):
            raise CollectionNotFoundError(name, self.collections())
        collection = EdgeCollection(CollectionFolder.acquire(path, name))
        self._opened.append(collection)
        return collection

    def delete(self, name: str) -> None:
        """Delete a collection; as in `protocol.Store.delete`.

        Raises:
            CollectionNotFoundError: If there is none of that name.
            StoreLockedError: If it is open, here or in another process.
        """
        path = self._folder(name)
        if not _is_collection(path):
            raise CollectionNotFoundError(name, self.collections())
        if CollectionFolder.is_open(path):
            raise StoreLockedError(name, f"this one, {os.getpid()}: close it first")
        try:
            lock = CollectionLock.acquire(path / LOCK_FILE, name)
            if os.name == "nt":  # an open file cannot be renamed there
                lock.release()
            doomed = Path(tempfile.mkdtemp(prefix=".deleted-", dir=self._path))
            path.rename(doomed / "collection")
            if os.name != "nt":
                lock.release()
            shutil.rmtree(doomed)
        except FileNotFoundError as error:
            raise CollectionNotFoundError(name, self.collections()) from error
        except OSError as error:
            raise StoreError(f"Collection '{name}' cannot be deleted: {error}.") from error

    def close(self) -> None:
        """Close the collections that were opened here."""
        while self._opened:
            self._opened.pop().close()

    def _folder(self, name: str) -> Path:
        """Where a collection of that name lies. Raises as `check_name`."""
        check_name(name)
        return self._path / name

    def _sweep(self) -> None:
        """Remove what processes that died left half-made or half-deleted."""
        for path in [*self._path.glob(".new-*"), *self._path.glob(".deleted-*")]:
            if time.time() - path.stat().st_mtime > _STALE_S:
                shutil.rmtree(path, ignore_errors=True)


def _is_collection(path: Path) -> bool:
    """Whether a folder holds a collection, or what is left of one."""
    return not path.name.startswith(".") and ((path / MANIFEST_FILE).is_file() or (path / SHARD_FOLDER).is_dir())


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
