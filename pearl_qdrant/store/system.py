"""What stores need of the operating system: files replaced atomically, handles of one process, errors of resources."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from pearl_qdrant.errors import StoreError, StoreForkedError


def write_atomically(path: Path, text: str) -> None:
    """Replace a file: a reader sees the old content or the new one, also if this process or the machine crashes."""
    _replace(path, [text], errors="strict")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines of any length, which may hold lone surrogates, as `write_atomically` does."""
    _replace(path, (f"{line}\n" for line in lines), errors="surrogatepass")


def _replace(path: Path, texts: Iterable[str], *, errors: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    # It may be left from a process that died, or be somebody's link to another file.
    temporary.unlink(missing_ok=True)
    with temporary.open("x", encoding="utf-8", errors=errors, newline="") as file:
        file.writelines(texts)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make sure that files created, renamed or removed in a folder stay so after a crash of the machine."""
    if os.name == "posix":
        sync(path)


def sync(path: Path) -> None:
    """Make sure that what a file or folder holds stays after a crash of the machine."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def read_at_most(file: BinaryIO, limit: int) -> bytes:
    """The first bytes of an open file, without memory for `limit` where the file is shorter."""
    return file.read(min(limit, os.fstat(file.fileno()).st_size + 1))


def is_in_memory(path: Path) -> bool:
    """Whether the file system of a path is in memory (tmpfs), by what Linux says; False where that is not known."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}" if hasattr(os, "major") else ""
    with suppress(OSError), Path("/proc/self/mountinfo").open(encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            about, _, kind = line.partition(" - ")
            if about.split()[2] == wanted:
                return kind.split()[0] in ("tmpfs", "ramfs")
    return False


class ProcessGuard:
    """Remembers the process that opened something; `what` is the beginning of a sentence.

    A forked process has copies of all handles and must not use them: writing through a copy loses points, closing it
    unlocks what the first process still uses, and two processes on one connection read each other's answers.
    """

    __slots__ = ("pid", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self.pid = os.getpid()

    @property
    def is_owner(self) -> bool:
        return os.getpid() == self.pid

    def check(self) -> None:
        """Raise StoreForkedError if this process was forked from the owner."""
        if not self.is_owner:
            raise StoreForkedError(self.what, owner=self.pid, pid=os.getpid())


_FILES = ("too many open files", "os error 24", "errno 24", "os error 23", "errno 23")
_MEMORY = (
    "cannot allocate memory",
    "out of memory",
    "memory allocation of",
    "memory ran out",
    "os error 12",
    "errno 12",
)
_THREADS = ("failed to spawn", "can't start new thread", "thread pool: resource temporarily unavailable")
_CODES = {errno.EAGAIN: _THREADS[0], errno.EMFILE: _FILES[0], errno.ENFILE: _FILES[0], errno.ENOMEM: _MEMORY[0]}


def resource_error(problem: BaseException | str, what: str) -> StoreError | None:
    """Make the error for too few files or threads, or too little memory; None if it is another problem.

    The problem is an error, or the text of one by the engine or a process that ended; `what` failed, as in "Collection
    'umls' cannot be opened".
    """
    text = str(problem)
    known = "memory ran out" if isinstance(problem, MemoryError) else ""
    while isinstance(problem, BaseException) and not known:  # httpx and others wrap the system's error
        known = _CODES.get(problem.errno or 0, "") if isinstance(problem, OSError) else ""
        problem = problem.__cause__ or problem.__context__ or ""
    lower = (known or text).lower()
    if any(sign in lower for sign in _FILES):
        why = (
            f"this process has as many open files as it may have{_limit()} ({text}). Nothing is wrong with what is "
            f"stored. Allow more (ulimit -n 4096), or keep fewer collections open"
        )
    elif any(sign in lower for sign in _THREADS):
        why = (
            f"the system allows no further thread or process ({text}). Nothing is wrong with what is stored. Allow "
            f"more (ulimit -u and -v, or the limits of the container)"
        )
    elif any(sign in lower for sign in _MEMORY):
        why = (
            f"memory ran out ({text or 'MemoryError'}). That is no sign of damage: its files are as they were. End "
            f"other programs, or allow this one more memory"
        )
    else:
        return None
    return StoreError(f"{what}: {why}, and run the same command again.")


def _limit() -> str:
    with suppress(ImportError, OSError):  # Windows has no such limit
        import resource

        return f", {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}"
    return ""
