"""Lets the C library (glibc) give memory back to the system that it has freed; elsewhere nothing.

By itself it gives each thread a heap, and keeps ever larger blocks in them: under the heaviest requests the service
grew by a third, and went on growing. What lies between blocks that are in use it keeps in any case, until it is asked.
"""

from __future__ import annotations

import ctypes
import sys

_MALLOC = {-8: 2, -1: 1 << 17}
"""M_ARENA_MAX: heaps; M_TRIM_THRESHOLD: free bytes at the end of one, which also holds the size from which a block is
given back at once at 128 KB. The numbers are those of malloc.h."""


def keep_little_memory() -> None:
    """Let each heap keep little at its end."""
    if (libc := _glibc()) is not None:
        for parameter, value in _MALLOC.items():
            libc.mallopt(parameter, value)


def give_memory_back() -> None:
    """Give back every free page, also between blocks that are in use; some milliseconds, without the interpreter."""
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    return libc if libc is not None and hasattr(libc, "malloc_trim") else None
