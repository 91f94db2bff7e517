"""Where the folder of a view is, who uses it, and its removal.

    STORE/.view-RANDOM/                    beside the collections, where hard links to their files can be made
    TMPDIR/pearl-qdrant-view-RANDOM/       where the store cannot be written

The file `.lock` in it is locked by its process. A process that dies unlocks it, so that the next opening of a view
finds the folder and removes it.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import portalocker

from pearl_qdrant.errors import StoreError
from pearl_qdrant.store.resources import resource_error

_LOCK_FILE = ".lock"
_PREFIXES = (".view-", "pearl-qdrant-view-")  # in the store, in the folder for temporary files
_STALE_S = 60.0  # an older folder without a lock was left by a process that died before it made one

_TRY_ELSEWHERE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}


class ViewPlace:
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


def make_places(store: Path, collection: str) -> Iterator[ViewPlace]:
    """Make a folder for a view: first in the store, and if that is not accepted, in the folder for temporary files.

    Raises:
        StoreError: If one of them cannot be made, after the other.
    """
    problem: OSError | None = None
    for parent, prefix in ((store, _PREFIXES[0]), (None, _PREFIXES[1])):
        try:
            folder = parent or Path(tempfile.gettempdir())
            _remove_stale(folder, prefix)
            made = ViewPlace(folder, prefix)
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


def may_work_elsewhere(error: OSError) -> bool:
    """Whether another place may do: this one cannot be written, or is full."""
    return error.errno in _TRY_ELSEWHERE


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
