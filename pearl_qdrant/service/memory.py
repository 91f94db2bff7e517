"""Memory of the process that the C library keeps: a service that rests gives it back."""

from __future__ import annotations

import ctypes
import sys

_MALLOC = {-8: 2, -1: 1 << 17}
"""M_ARENA_MAX: heaps; M_TRIM_THRESHOLD: free bytes at the end of one, which also holds the size from which a block is
given back at once at 128 KB. The numbers are those of malloc.h."""


def keep_little_memory() -> None:
    """Let each heap of the C library (glibc) keep little at its end: by itself it keeps ever larger blocks a thread."""
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
