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


def _resident(pid: int) -> tuple[float, float]:
    """RssAnon and RssFile of a process, in MB; 0 if it has ended."""
    try:
        with Path(f"/proc/{pid}/status").open(encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file if line.startswith("Rss"))
    except OSError:
        return 0.0, 0.0
    return tuple(int(fields.get(key, "0 kB").split()[0]) * 1024 / 1e6 for key in ("RssAnon", "RssFile"))  # type: ignore[return-value]


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
            sums = [sum(values) for values in zip(*map(_resident, pids), strict=True)]
            peak.anonymous, peak.file_backed = max(peak.anonymous, sums[0]), max(peak.file_backed, sums[1])

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        stopped.set()
        thread.join()
