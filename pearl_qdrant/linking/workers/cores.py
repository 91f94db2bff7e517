"""How many worker processes there are by default."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

MAX_DEFAULT = 16
"""More processes are started only on request: each takes about 100 MB, and one process reads the answers of all."""

_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container: microseconds of processor time, and of the period


def default_workers(quota: Path = _QUOTA) -> int:
    """The cores that this process may use, at most `MAX_DEFAULT`; a container may have fewer than it sees."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no container, another kind of it, or "max"
        allowed, period = map(int, quota.read_text("ascii").split())
        cores = min(cores, math.ceil(allowed / period))
    return max(1, min(cores, MAX_DEFAULT))
