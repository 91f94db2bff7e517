"""Errors of resources: too few files, threads or processes, too little memory. They say nothing of what is stored."""

from __future__ import annotations

import errno
from contextlib import suppress

from pearl_qdrant.errors import StoreError

_FILES = ("too many open files", "os error 24", "errno 24", "os error 23", "errno 23")
_MEMORY = (
    "cannot allocate memory",
    "out of memory",
    "memory allocation of",
    "memory ran out",
    "os error 12",
    "errno 12",
)
_THREADS = ("failed to spawn", "can't start new thread")
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
        return StoreError(
            f"{what}: this process has as many open files as it may have{_limit()} ({text}). Nothing is wrong with "
            f"what is stored. Allow more (ulimit -n 4096), or keep fewer collections open, and run the same command "
            f"again."
        )
    if any(sign in lower for sign in _THREADS):
        return StoreError(
            f"{what}: the system allows no further thread or process ({text}). Nothing is wrong with what is stored. "
            f"Allow more (ulimit -u, or the limit of the container), and run the same command again."
        )
    if any(sign in lower for sign in _MEMORY):
        return StoreError(
            f"{what}: memory ran out ({text or 'MemoryError'}). That is no sign of damage: its files are as they were. "
            f"End other programs, or allow this one more memory, and run the same command again."
        )
    return None


def _limit() -> str:
    with suppress(ImportError, OSError):  # Windows has no such limit
        import resource

        return f", {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}"
    return ""
