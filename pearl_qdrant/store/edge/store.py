"""The embedded store: collections in a folder, through Qdrant Edge, Qdrant's own engine in this process.

It serves one process at a time. Searching happens here; a bulk load and the building of the graph happen in a child
process (`edge_writer.py`), because of the engine's memory and because it holds the interpreter lock.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from pearl_qdrant.errors import (
    CollectionExistsError,
    CollectionNotFoundError,
    SettingsError,
    StoreError,
    StoreLockedError,
    StoreRejectedError,
)
from pearl_qdrant.store.atomic import write_atomically
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.collection import EdgeCollection
from pearl_qdrant.store.edge.folder import LOCK_FILE, MANIFEST_FILE, SHARD_FOLDER, CollectionFolder
from pearl_qdrant.store.edge.lock import CollectionLock
from pearl_qdrant.store.edge.seal import lay_seal
from pearl_qdrant.store.ownership import Owner
from pearl_qdrant.store.protocol import Placement
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
        self._owner = Owner(f"The store {self.location}")

    def __repr__(self) -> str:
        return f"EdgeStore({self.location!r})"

    @property
    def location(self) -> str:
        """The folder."""
        return str(self._path)

    def collections(self) -> list[str]:
        """Names of the folders that hold a collection, usable or not; sorted."""
        self._owner.check()
        try:
            return sorted(path.name for path in self._path.iterdir() if _is_collection(path))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(
                f"The store {self.location} cannot be read: {error}. Name a folder with --store."
            ) from error

    def create(self, manifest: Manifest, placement: Placement | None = None) -> EdgeCollection:
        """Create a collection; as in `protocol.Store.create`. It appears whole or not at all."""
        if placement not in (None, Placement()):
            raise SettingsError(
                f"The embedded store at {self.location} has no shards or replicas. Name a Qdrant server with --store."
            )
        name = manifest.collection
        path = self._folder(name)
        try:
            if path.exists():
                raise CollectionExistsError(name)
            self._path.mkdir(parents=True, exist_ok=True)
            self._sweep()
            making = Path(tempfile.mkdtemp(prefix=".new-", dir=self._path))
        except OSError as error:
            raise self._not_created(name, error) from error
        try:
            edge_shard.check_space(making, name, doing="creating it")
            with edge_shard.edge_errors(name, "creating it"):
                edge_shard.create_shard(making / SHARD_FOLDER, manifest.dim)
            lay_seal(making / SHARD_FOLDER)
            write_atomically(making / MANIFEST_FILE, manifest.as_created().model_dump_json(indent=2) + "\n")
            making.chmod(0o777 & ~_umask())  # mkdtemp's folders are their owner's alone
            making.rename(path)
        except OSError as error:
            if path.exists():  # somebody else was faster
                raise CollectionExistsError(name) from error
            raise self._not_created(name, error) from error
        finally:
            shutil.rmtree(making, ignore_errors=True)
        return self.open(name)

    def open(self, name: str) -> EdgeCollection:
        """Open a collection; as in `protocol.Store.open`. Opened twice in a process, it is shared."""
        path = self._folder(name)
        self._check_is_there(path)
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
        self._check_is_there(path)
        if CollectionFolder.is_open(path):
            raise StoreLockedError(name, f"this one, {os.getpid()}: close it first")
        try:
            doomed = self._set_aside(path)
        except FileNotFoundError as error:  # somebody else was faster
            raise CollectionNotFoundError(name, self.collections()) from error
        except OSError as error:
            raise StoreError(f"Collection '{name}' cannot be deleted: {error}.") from error
        try:
            shutil.rmtree(doomed)
        except FileNotFoundError:  # swept up by another process
            pass
        except OSError as error:
            raise StoreError(
                f"Collection '{name}' is deleted, but not all of its files are ({error}): remove {doomed} by hand."
            ) from error

    def _set_aside(self, path: Path) -> Path:
        """Take a collection away from under its name; returns where it is now.

        Raises:
            StoreLockedError: If another process has it open.
            OSError: If it cannot be moved.
        """
        lock = CollectionLock.acquire(path / LOCK_FILE, path.name)
        try:
            if os.name == "nt":  # an open file cannot be renamed there
                lock.release()
            doomed = Path(tempfile.mkdtemp(prefix=".deleted-", dir=self._path))
            try:
                path.rename(doomed / "collection")
            except OSError:
                doomed.rmdir()
                raise
            return doomed
        finally:
            lock.release()

    def close(self) -> None:
        """Close the collections that were opened here; in a process that was forked since, nothing is closed."""
        while self._opened:
            self._opened.pop().close()

    def _folder(self, name: str) -> Path:
        """Where a collection of that name lies.

        Raises:
            StoreForkedError: If another process opened this store.
            StoreRejectedError: As `check_name`.
        """
        self._owner.check()
        check_name(name)
        return self._path / name

    def _check_is_there(self, path: Path) -> None:
        """Refuse to go on without a collection.

        Raises:
            CollectionNotFoundError: If there is none at `path`.
            StoreError: If nobody can tell.
        """
        try:
            is_there = _is_collection(path)
        except OSError as error:
            raise StoreError(
                f"Collection '{path.name}' cannot be looked for in {self.location}: {error}. Name a folder that can be "
                f"read with --store."
            ) from error
        if not is_there:
            raise CollectionNotFoundError(path.name, self.collections())

    def _not_created(self, name: str, error: OSError) -> StoreError:
        """Why there is no collection of that name now."""
        if error.errno == errno.ENOSPC:
            return edge_shard.full_error(name, str(error), doing="creating it")
        return StoreError(
            f"Collection '{name}' cannot be created in {self.location}: {error}. Name a folder that can be written "
            f"with --store."
        )

    def _sweep(self) -> None:
        """Remove what processes that died left half-made or half-deleted; others may do so at the same time."""
        for path in [*self._path.glob(".new-*"), *self._path.glob(".deleted-*")]:
            with suppress(OSError):
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
