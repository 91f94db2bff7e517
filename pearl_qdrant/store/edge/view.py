"""A view: a collection as it was when it was opened, for one process that only reads it.

    STORE/.view-RANDOM/                    its folder, where hard links to the collection's files can be made
    TMPDIR/pearl-qdrant-view-RANDOM/       where the store cannot be written

The folder has links to the large files that are current and copies of the small ones (`content.py`). So a view takes no
lock of the collection, writes nothing into its folder, and sees nothing of what is written later. The file `.lock` in
it is locked by its process. A process that dies unlocks it, and the next opening of a view removes the folder.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, NoReturn

import portalocker
from qdrant_edge import EdgeShard

from pearl_qdrant.errors import CollectionNotFoundError, ReadOnlyError, StoreError, StoreFullError
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.content import (
    LEDGER_FILE,
    MANIFEST_FILE,
    SHARD_FOLDER,
    Content,
    copy_file,
    read_content,
    take_files,
)
from pearl_qdrant.store.edge.folder import OpenedCollection, keep_from_flushing
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.store.system import ProcessGuard, resource_error

_LOCK_FILE = ".lock"
_PREFIXES = (".view-", "pearl-qdrant-view-")  # in the store, in the folder for temporary files
_STALE_S = 60.0  # an older folder without a lock was left by a process that died before it made one

_TRY_ELSEWHERE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}


class CollectionView(OpenedCollection):
    """A collection that this process has open for reading; `path` is the folder of the view."""

    def __init__(self, source: Path, name: str, view: _Place, seen: object, current: tuple[Manifest, Content]) -> None:
        """Make the view of what is current in a folder; see `open`."""
        manifest, content = current
        super().__init__(view.path, name, manifest, content)
        self._source, self._seen = source, seen
        with suppress(FileNotFoundError):
            copy_file(source / LEDGER_FILE, view.path / LEDGER_FILE, self._content.ledger_bytes)
        shard = view.path / SHARD_FOLDER
        take_files(source, name, self._content.files, shard)
        self._shard = edge_shard.load_shard(shard, name)
        self._end = weakref.finalize(self, _close, self._shard, view, self.guard)

    @classmethod
    def open(cls, path: Path, name: str) -> CollectionView:
        """Open the state of a collection that was committed last, by its folder.

        Raises:
            CollectionNotFoundError, ManifestError: If it has just been deleted, or has no usable manifest.
            StoreError: If its files are damaged, or no view can be made.
        """
        while True:
            if not path.is_dir():
                raise CollectionNotFoundError(name)
            seen, current = _stat(path), read_content(path, name)
            failed: OSError | StoreFullError | None = None
            for view in _make_places(path.parent, name):
                try:
                    return cls(path, name, view, seen, current)
                except BaseException as error:
                    view.remove()
                    if not isinstance(error, (OSError, StoreError)):
                        raise
                    if _is_other(path, name, current[1]):  # its files were removed meanwhile
                        failed = None
                        break
                    if isinstance(error, StoreError) and not isinstance(error, StoreFullError):
                        raise
                    failed = error
                    if isinstance(error, OSError) and error.errno not in _TRY_ELSEWHERE:
                        break
            if isinstance(failed, StoreFullError):
                raise failed
            if failed is not None:
                raise edge_shard.os_error(failed, name, "opening it") from failed

    @property
    def is_outdated(self) -> bool:
        """Whether another state was committed since this view was opened; it takes a look at a file."""
        seen = _stat(self._source)
        if seen == self._seen:
            return False
        if _is_other(self._source, self.name, self._content):
            return True
        self._seen = seen
        return False

    def refuse(self, doing: str) -> NoReturn:
        """Raise `ReadOnlyError`."""
        raise ReadOnlyError([self.name], doing)

    def release(self) -> None:
        """Close the view and remove its folder. In a forked process this does nothing."""
        if self.guard.is_owner:
            with self._mutex:
                self._shard = None
                self._end()


def _is_other(path: Path, name: str, content: Content) -> bool:
    """Whether another state is current by now, or none."""
    try:
        return read_content(path, name)[1].token != content.token
    except StoreError:
        return True


def _close(shard: EdgeShard, view: _Place, guard: ProcessGuard) -> None:
    """Close a view; also called when it is no longer used, and at exit."""
    if not guard.is_owner:
        keep_from_flushing(shard)
        view.remove()
        return
    # In this order, Edge finds no files that it could drop from the page cache, where other readers need them.
    view.remove()
    with suppress(Exception):
        shard.close()


def _stat(path: Path) -> object:
    """What changes if another state is committed."""
    try:
        status = (path / MANIFEST_FILE).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


class _Place:
    """A folder of its own for one view, until `remove`."""

    def __init__(self, parent: Path, prefix: str) -> None:
        """Make it; raises OSError."""
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self._pid = os.getpid()
        try:
            made = self.path / f"{_LOCK_FILE}.new"
            self._lock: IO[bytes] = made.open("xb")
            portalocker.lock(self._lock, portalocker.LOCK_EX | portalocker.LOCK_NB)
            # Only now does it have its name: who finds it unlocked takes the folder for one that was left.
            made.rename(self.path / _LOCK_FILE)
        except BaseException:
            shutil.rmtree(self.path, ignore_errors=True)
            raise

    def remove(self) -> None:
        """Remove it; in a forked process only forget it."""
        if os.getpid() == self._pid:
            _remove(self.path)
        self._lock.close()


def _make_places(store: Path, collection: str) -> Iterator[_Place]:
    """Make a folder for a view in the store, then one for temporary files; raises StoreError if the last fails."""
    problem: OSError | None = None
    for parent, prefix in ((store, _PREFIXES[0]), (None, _PREFIXES[1])):
        try:
            folder = parent or Path(tempfile.gettempdir())
            _remove_stale(folder, prefix)
            made = _Place(folder, prefix)
        except (OSError, portalocker.LockException) as error:
            problem = error if isinstance(error, OSError) else OSError(str(error))
            continue
        yield made
    if problem is None:
        return  # the caller has the error of each place
    raise resource_error(problem, f"Collection '{collection}' cannot be read") or StoreError(
        f"Collection '{collection}' cannot be read ({problem}): its view takes a folder with a few files, in the store "
        f"or in the folder for temporary files. Free some space, or point TMPDIR to a folder that can be written."
    ) from problem


def _remove_stale(parent: Path, prefix: str) -> None:
    """Remove the folders of processes that died."""
    for folder in parent.glob(f"{prefix}*"):
        with suppress(OSError, portalocker.LockException):
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or (hasattr(os, "geteuid") and status.st_uid != os.geteuid()):
                continue
            try:
                lock = (folder / _LOCK_FILE).open("r+b")
            except FileNotFoundError:
                if time.time() - status.st_mtime > _STALE_S:
                    shutil.rmtree(folder, ignore_errors=True)
                continue
            with lock:
                portalocker.lock(lock, portalocker.LOCK_EX | portalocker.LOCK_NB)
                _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder, its lock last: if this process is killed meanwhile, the next one sees that it is nobody's."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != _LOCK_FILE:
                path.unlink()
    shutil.rmtree(folder, ignore_errors=True)
