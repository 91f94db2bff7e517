"""Keeps the index of a collection's names: builds it once, in a child process if it is large, and maps it."""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

import portalocker

from pearl_qdrant.errors import StoreError
from pearl_qdrant.service.names.build import build_files
from pearl_qdrant.service.names.files import NameFiles
from pearl_qdrant.service.names.find import NameIndex
from pearl_qdrant.settings import ServerAccess
from pearl_qdrant.store.open import open_store
from pearl_qdrant.store.protocol import Collection

log = logging.getLogger(__name__)

IN_PROCESS_NAMES = 20_000
"""Up to this many names an index is built here: it takes less time than a child process takes to start."""

_KEPT = 2
"""Indexes of former states of a collection that stay, for workers that still map them."""


def usable_cache(environment: Mapping[str, str] = os.environ) -> Path:
    """A folder for indexes: the platform's place for files that can be made again, else one for temporary files."""
    try:
        home = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
        folder = Path(environment.get("XDG_CACHE_HOME") or home) / "pearl-qdrant"
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError):  # a read-only file system; a user without a home
        pass
    return Path(tempfile.gettempdir()) / "pearl-qdrant"


class NameKeeper:
    """Keeps the index of one collection.

    Args:
        folder: Where indexes are kept; one folder a collection is made in it.
        location: Of the store.
        access: How to reach a server.
    """

    def __init__(self, folder: Path, location: str, name: str, access: ServerAccess) -> None:
        whose = hashlib.blake2b(f"{os.path.realpath(location)}\0{location}\0{name}".encode(), digest_size=8).hexdigest()
        self._folder = folder / "names" / f"{name[:40]}-{whose}"
        self._location = location
        self._name = name
        self._access = access
        self._building = threading.Lock()
        self._state: str | None = None
        self._child: BaseProcess | None = None
        self._is_closed = False
        self.index: NameIndex | None = None

    def update(self, collection: Collection) -> None:
        """Map the index of the collection's state, built before if there is none; the former one answers meanwhile.

        A failure is logged.

        Args:
            collection: Open; an index of few names is built from it.
        """
        if not self._building.acquire(blocking=False):
            return
        try:
            state = state_of(collection)
            if state == self._state:
                return
            index = self._mapped(state)
            if index is None:
                self._build(collection, state)
                index = self._mapped(state)
            if index is not None:
                self.index, self._state = index, state
        except (OSError, StoreError, portalocker.LockException):
            log.exception("the index of the names of %s cannot be built", self._name)
        finally:
            self._building.release()

    def close(self) -> None:
        """End a build."""
        self._is_closed = True
        if self._child is not None and self._child.is_alive():
            self._child.terminate()

    def _mapped(self, state: str) -> NameIndex | None:
        files = NameFiles.read(self._folder / state)
        return None if files is None else NameIndex(files)

    def _build(self, collection: Collection, state: str) -> None:
        """Build an index, unless another worker does; that one is mapped with the next update."""
        self._folder.mkdir(parents=True, exist_ok=True)
        lock = portalocker.Lock(self._folder / "lock", timeout=0, flags=portalocker.LOCK_EX | portalocker.LOCK_NB)
        try:
            lock.acquire()
        except portalocker.AlreadyLocked:
            return
        try:
            if (self._folder / state).exists():
                return
            self._remove_old()
            if collection.count() <= IN_PROCESS_NAMES:
                build_files(collection.scroll()).write(self._folder / state)
                return
            log.info("building the index of the names of %s", self._name)
            child = multiprocessing.get_context("spawn").Process(
                target=build_in_child,
                args=(self._location, self._access, self._name, self._folder / state),
                daemon=True,
            )
            child.start()
            self._child = child
            child.join()
            if child.exitcode and not self._is_closed:
                raise OSError(f"the process that builds the index of names ended with status {child.exitcode}")
        finally:
            lock.release()

    def _remove_old(self) -> None:
        """Remove what builds left behind that were killed, and all but the newest indexes."""
        for left in self._folder.glob(".*"):
            shutil.rmtree(left, ignore_errors=True)
        made = sorted((one for one in self._folder.iterdir() if one.is_dir()), key=lambda one: one.stat().st_mtime)
        for old in made[:-_KEPT]:
            shutil.rmtree(old, ignore_errors=True)


def build_in_child(location: str, access: ServerAccess, name: str, folder: Path) -> None:
    """Build the index of a collection, in a process of its own, so that its memory is free afterwards."""
    os.nice(5)
    store = open_store(location, access=access)
    try:
        build_files(store.open(name, read_only=True).scroll()).write(folder)
    finally:
        store.close()


def state_of(collection: Collection) -> str:
    """What names the state of a collection's names, as a name of a folder.

    On a server, where no state has a name, it is what the manifest says, and the number of names.
    """
    token = collection.state_token
    said = collection.manifest.model_dump_json(exclude={"calibration", "ngram_rarity", "checkpoints"})
    content = f"{said}\0{collection.count()}" if token is None else f"{said}\0{token}"
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
