"""The lock of an embedded collection: one process at a time, and which one it is."""

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
from pearl_qdrant.store.ownership import Owner

WAIT_S = 2.0
"""How long a second process waits: enough for one that is just closing."""

POLL_S = 0.05

_OWNER_CHARS = 100  # of what a lock file says
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class CollectionLock:
    """A lock file that is held until `release`, and dies with the process; it holds the owner's pid and command."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._owner = Owner("The lock of a collection")

    @classmethod
    def acquire(cls, path: Path, collection: str, *, wait_s: float | None = None) -> CollectionLock:
        """Lock a collection.

        Args:
            path: The lock file; its folder must exist.
            collection: Name, for the error.
            wait_s: How long to wait for another owner, in seconds; None is `WAIT_S`.

        Raises:
            StoreLockedError: If another process keeps it.
            FileNotFoundError: If the folder is gone, or was deleted meanwhile.
            StoreError: If the file cannot be written, or the file system takes no locks.
        """
        deadline = time.monotonic() + (WAIT_S if wait_s is None else wait_s)
        try:
            file = os.fdopen(os.open(path, _FLAGS, 0o666), "r+", encoding="utf-8")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise edge_shard.cannot_write(collection, str(path.parent), str(error)) from error
        try:
            _wait_for(file, path, collection, deadline)
            if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
                raise FileNotFoundError(str(path))
            file.truncate(0)
            with suppress(OSError):  # a full disk: then the lock does not say whose it is
                os.write(file.fileno(), f"process {os.getpid()}: {_command()}".encode(errors="replace"))
        except BaseException:
            file.close()
            raise
        return cls(file)

    def release(self) -> None:
        """Unlock; the file stays, empty. In a process that was forked from the owner, only its copy is given up."""
        if self._owner.is_here and not self._file.closed:
            self._file.truncate(0)
            portalocker.unlock(self._file)
        self._file.close()


def _wait_for(file: IO[str], path: Path, collection: str, deadline: float) -> None:
    """Lock, waiting for another owner. Raises as `CollectionLock.acquire`."""
    while True:
        try:
            portalocker.lock(file, portalocker.LOCK_EX | portalocker.LOCK_NB)
        except portalocker.AlreadyLocked as error:
            if time.monotonic() >= deadline:
                raise StoreLockedError(collection, _owner(path)) from error
        except portalocker.LockException as error:
            raise StoreError(
                f"Collection '{collection}' cannot be locked ({error}): the file system takes no locks. Keep the store "
                f"on a local disk, or use a Qdrant server (--store http://localhost:6333)."
            ) from error
        else:
            return
        time.sleep(POLL_S)


def _owner(path: Path) -> str:
    """Who holds the lock, as it says itself: a stranger may have written it."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            said = file.read(_OWNER_CHARS)
    except OSError:  # where locks are mandatory, nobody else may read
        return "unknown"
    return "".join(char if char.isprintable() else "?" for char in said) or "unknown"


def _command() -> str:
    """This process's command without its arguments' values: "pearl-qdrant ingest"."""
    name = Path(sys.argv[0] or sys.executable).name
    return " ".join([name, *sys.argv[1:2]])[:80]
