"""Samples anonymous and file-backed memory of a process and its children while it works. Linux only."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

_EVERY_S = 0.1


@dataclass
class Peak:
    """Highest sums over the process tree, in MB (10^6 bytes)."""

    anonymous: float = 0.0
    file_backed: float = 0.0


def status_mb(key: str, pid: int | str = "self") -> float:
    """A line of /proc/PID/status, in MB; 0 if the process has ended, or has no such line."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(f"{key}:")), 0.0)


@contextmanager
def peak_memory(pid: int | None = None) -> Iterator[Peak]:
    """Sample a process, by default this one, and all its descendants until the block ends."""
    peak, stopped = Peak(), threading.Event()
    top = psutil.Process(pid)

    def sample() -> None:
        while not stopped.wait(_EVERY_S):
            try:
                pids = [top.pid, *(child.pid for child in top.children(recursive=True))]
            except psutil.NoSuchProcess:
                return
            peak.anonymous = max(peak.anonymous, sum(status_mb("RssAnon", one) for one in pids))
            peak.file_backed = max(peak.file_backed, sum(status_mb("RssFile", one) for one in pids))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        stopped.set()
        thread.join()
