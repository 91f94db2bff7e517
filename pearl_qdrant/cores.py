"""How many processes and threads work at once: the one place that decides it."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

MAX_DEFAULT = 16
"""More processes are started only on request: each takes about 100 MB, and one process reads the answers of all."""

MAX_A_CORE = 4
"""Processes for each core, at most, whatever is requested: more only wait for each other."""

_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container: microseconds of processor time, and of the period


def usable_cores(quota: Path = _QUOTA) -> int:
    """The cores that this process may use; a container may have fewer than it sees."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no container, another kind of it, or "max"
        allowed, period = map(int, quota.read_text("ascii").split())
        cores = min(cores, math.ceil(allowed / period))
    return max(1, cores)


def count_workers(wanted: int | None = None, quota: Path = _QUOTA) -> int:
    """How many processes to use: by default one a core, at most `MAX_DEFAULT`; at most `MAX_A_CORE` a core."""
    cores = usable_cores(quota)
    return min(cores, MAX_DEFAULT) if wanted is None else min(wanted, cores * MAX_A_CORE)
