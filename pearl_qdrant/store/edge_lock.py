"""The lock of an embedded collection: one process at a time, and which one it is."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

import portalocker

from pearl_qdrant.errors import StoreLockedError

WAIT_S = 2.0
"""How long a second process waits: enough for one that is just closing."""

POLL_S = 0.05


class CollectionLock:
    """A lock file that is held until `release`, and dies with the process; it holds the owner's pid and command."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

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
        """
        deadline = time.monotonic() + (WAIT_S if wait_s is None else wait_s)
        file = path.open("a+", encoding="utf-8")
        try:
            while True:
                try:
                    portalocker.lock(file, portalocker.LOCK_EX | portalocker.LOCK_NB)
                    break
                except portalocker.LockException as error:
                    if time.monotonic() >= deadline:
                        raise StoreLockedError(collection, _owner(path)) from error
                time.sleep(POLL_S)
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
        """Unlock; the file stays, empty."""
        self._file.truncate(0)
        portalocker.unlock(self._file)
        self._file.close()


def _owner(path: Path) -> str:
    """Who holds the lock, as it says itself."""
    try:
        return path.read_text(encoding="utf-8", errors="replace") or "unknown"
    except OSError:  # where locks are mandatory, nobody else may read
        return "unknown"


def _command() -> str:
    """This process's command without its arguments' values: "pearl-qdrant ingest"."""
    name = Path(sys.argv[0] or sys.executable).name
    return " ".join([name, *sys.argv[1:2]])[:80]
