"""The worker processes of a linker: started when they are first needed, and ended with the linker."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from pearl_qdrant.errors import WorkerError

if TYPE_CHECKING:
    from pearl_qdrant.linking.workers.process import Answer, WorkerProcess

_END_S = 0.8
"""How long workers may take to end; a worker that was killed leaves a folder, which the next opening removes."""


class WorkerPool:
    """Worker processes by number. Safe to use from several threads. Nothing starts before the first task."""

    def __init__(self) -> None:
        self._processes: dict[int, WorkerProcess] = {}
        self._lock = threading.Lock()
        self._is_closed = False
        self._pid = os.getpid()
        self._end = weakref.finalize(self, _end, self._processes, self._pid)

    @property
    def n_running(self) -> int:
        """How many processes are there."""
        return len(self._processes)

    @property
    def is_usable(self) -> bool:
        """Whether this process may use them: not after `close`, and not in a forked process."""
        return not self._is_closed and os.getpid() == self._pid

    def pids(self) -> list[int]:
        """Their process ids."""
        return [process.pid for process in self._processes.values()]

    def start(self, numbers: Iterable[int]) -> None:
        """Start workers where they are not there, so that they start at the same time.

        Raises:
            WorkerError: If one cannot be started, or the pool is closed.
        """
        with self._lock:
            for number in numbers:
                self._worker(number)

    def submit(self, number: int, setup: bytes, kind: bytes, task: bytes) -> Future[Answer]:
        """Send a task to a worker, which is started if it is not there; see `WorkerProcess.submit`.

        Raises:
            WorkerError: If it cannot be started, or the pool is closed.
        """
        with self._lock:
            worker = self._worker(number)
        return worker.submit(setup, kind, task)

    def _worker(self, number: int) -> WorkerProcess:
        """The worker of a number. The caller holds the lock."""
        from pearl_qdrant.linking.workers.process import WorkerProcess

        if not self.is_usable:
            raise WorkerError("The worker processes have ended with their linker.")
        worker = self._processes.get(number)
        if worker is not None and not worker.is_alive:
            _end({number: self._processes.pop(number)}, self._pid)
            worker = None
        if worker is None:
            worker = self._processes[number] = WorkerProcess()
        return worker

    def close(self) -> None:
        """End all workers, whatever they are doing; takes a second at most."""
        self._is_closed = True
        with self._lock:
            self._end()


def _end(processes: dict[int, WorkerProcess], pid: int) -> None:
    """End workers; also called at exit, and when the pool is no longer used."""
    if os.getpid() != pid:
        return
    ending = list(processes.values())
    processes.clear()
    for process in ending:
        process.close_input()
    deadline = time.monotonic() + _END_S
    for process in ending:
        process.end(max(0.0, deadline - time.monotonic()))
