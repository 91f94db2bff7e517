"""The lock of an embedded collection: one process at a time may open it, and the lock file names that process."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

import portalocker

from pearl_qdrant.errors import StoreError, StoreLockedError
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.ownership import ProcessGuard
from pearl_qdrant.store.resources import resource_error

WAIT_S = 2.0
"""How long a second process waits: long enough if the first one is just closing."""

POLL_S = 0.05

_OWNER_CHARS = 100  # of the content of a lock file
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class CollectionLock:
    """A file locked by the operating system until `release` or the end of the process; it names the owner."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._guard = ProcessGuard("The lock of a collection")

    @classmethod
    def acquire(cls, path: Path, collection: str, *, wait_s: float | None = None) -> CollectionLock:
        """Lock a collection by its lock file.

        Raises StoreLockedError if another process has it for `wait_s` more, FileNotFoundError if its folder does not
        exist, StoreError if the file cannot be written, or the file system has no locks.
        """
        deadline = time.monotonic() + (WAIT_S if wait_s is None else wait_s)
        try:
            file = os.fdopen(os.open(path, _FLAGS, 0o666), "r+", encoding="utf-8")
        except FileNotFoundError:
            raise
        except OSError as error:
            what = f"Collection '{collection}' cannot be opened for writing"
            raise (
                resource_error(error, what) or edge_shard.unwritable_error(collection, str(path.parent), str(error))
            ) from error
        try:
            _wait_for(file, path, collection, deadline)
            # Another process may have deleted the collection, and made one of that name, before we had the lock: then
            # we have locked a file that is no longer in the folder.
            if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
                raise FileNotFoundError(str(path))
            file.truncate(0)
            with suppress(OSError):  # on a full disk the lock names no owner
                os.write(file.fileno(), f"process {os.getpid()}: {_command()}".encode(errors="replace"))
        except BaseException:
            file.close()
            raise
        return cls(file)

    def release(self) -> None:
        """Unlock; the file stays, empty. In a forked process this only closes the copy: unlocking would unlock both."""
        if self._guard.is_owner and not self._file.closed:
            self._file.truncate(0)
            portalocker.unlock(self._file)
        self._file.close()


def _wait_for(file: IO[str], path: Path, collection: str, deadline: float) -> None:
    """Lock the file; wait for another owner. Raises as `CollectionLock.acquire`."""
    while True:
        try:
            portalocker.lock(file, portalocker.LOCK_EX | portalocker.LOCK_NB)
        except portalocker.AlreadyLocked as error:
            if time.monotonic() >= deadline:
                raise StoreLockedError(collection, read_owner(path)) from error
        except portalocker.LockException as error:
            if (lack := resource_error(error, f"Collection '{collection}' cannot be locked")) is not None:
                raise lack from error
            raise StoreError(
                f"Collection '{collection}' cannot be locked ({error}): the file system does not support locks. Keep "
                f"the store on a local disk, or use a Qdrant server as the store, as in http://localhost:6333.",
                option="store",
            ) from error
        else:
            return
        time.sleep(POLL_S)


def find_owner(path: Path) -> str | None:
    """Find which process has the lock; None if nobody has, or the file cannot be read. It waits for nobody."""
    try:
        with path.open("rb") as file:
            try:
                portalocker.lock(file, portalocker.LOCK_SH | portalocker.LOCK_NB)
            except portalocker.AlreadyLocked:
                return read_owner(path)
            portalocker.unlock(file)
    except (OSError, portalocker.LockException):  # or a file system without locks
        pass
    return None


def read_owner(path: Path) -> str:
    """Read which process has the lock. Anybody may have written the file, so the text is made printable."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            owner = file.read(_OWNER_CHARS)
    except OSError:  # on Windows nobody else may read a locked file
        return "unknown"
    return "".join(char if char.isprintable() else "?" for char in owner) or "unknown"


def _command() -> str:
    """Return this process's command with its first argument only, as in "pearl-qdrant ingest"."""
    name = Path(sys.argv[0] or sys.executable).name
    return " ".join([name, *sys.argv[1:2]])[:80]
