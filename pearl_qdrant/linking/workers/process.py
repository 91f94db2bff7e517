"""The parent's side of one worker process.

A thread reads its answers, so that the worker never waits for a caller that takes the links slowly. The worker ends
when its standard input is closed: by `end`, or because this process is gone.
"""

from __future__ import annotations

import io
import os
import struct
import subprocess
import tempfile
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from typing import cast

from pearl_qdrant.errors import WorkerError
from pearl_qdrant.linking.workers.messages import MODULE, SETUP, UNUSABLE
from pearl_qdrant.store.edge.child_process import python_child, receive, why_ended

Answer = tuple[bytes, bytes]

_HEADER = struct.Struct("!cI")  # as `child_process.receive` reads it
_STDERR_CHARS = 2000
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
_LESS_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "131072"}  # of glibc: a worker keeps 5 to 8 MB less between two tasks


class WorkerProcess:
    """One worker. Safe to use from several threads.

    Raises:
        WorkerError: If it cannot be started.
    """

    def __init__(self) -> None:
        command, environment, folder = python_child(MODULE)
        try:
            self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [*command, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                cwd=folder,
                env={**_LESS_MEMORY, **environment, **_ONE_THREAD},
                bufsize=0,
            )
        except OSError as error:
            raise WorkerError(
                f"A worker process cannot start ({error}). Free some memory and space for temporary files, or link "
                f"with workers=1."
            ) from error
        self._lock = threading.Lock()
        self._pending: deque[Future[Answer]] = deque()
        self._setup: bytes | None = None
        self._is_alive = True
        threading.Thread(target=self._read, name="pearl-qdrant-worker", daemon=True).start()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it takes tasks."""
        return self._is_alive

    def submit(self, setup: bytes, kind: bytes, task: bytes) -> Future[Answer]:
        """Send a task, and before it the setup if that is another one than before.

        Args:
            setup: As `Setup.pack`.
            kind: Kind of the task.
            task: As `pack_task`.

        Returns:
            Its answer, kind and body; a `WorkerError` if the process ends before.
        """
        answer: Future[Answer] = Future()
        with self._lock:
            if not self._is_alive:
                answer.set_exception(self._ended())
                return answer
            self._pending.append(answer)
            try:
                if setup != self._setup:
                    self._write(SETUP, setup)
                    self._setup = setup
                self._write(kind, task)
            except OSError:
                pass  # it has ended: the thread that reads answers says so
            except BaseException:
                self._process.kill()  # half a frame was written, as after Ctrl-C
                raise
        return answer

    def _write(self, kind: bytes, body: bytes) -> None:
        assert self._process.stdin is not None
        for part in (_HEADER.pack(kind, len(body)), body):
            left = memoryview(part)
            while left:
                left = left[os.write(self._process.stdin.fileno(), left) :]

    def _read(self) -> None:
        """Give each answer to the task that waits for it, until the process ends."""
        assert self._process.stdout is not None
        with io.BufferedReader(cast("io.RawIOBase", self._process.stdout), 1 << 16) as answers:
            while frame := receive(answers):
                if frame[0] == UNUSABLE:
                    self._setup = None  # the next task tries again
                self._pending.popleft().set_result(frame)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)  # its output is closed
        self._process.kill()
        with self._lock:
            self._is_alive = False
            while self._pending:
                self._pending.popleft().set_exception(self._ended())

    def _ended(self) -> WorkerError:
        """Why it ended."""
        output = ""
        with suppress(OSError, ValueError):
            self._stderr.seek(0)
            output = self._stderr.read().decode("utf-8", "replace").strip()[-_STDERR_CHARS:]
        why = why_ended(self._process.wait())
        if why.endswith("SIGKILL"):
            why += ", perhaps because memory ran out"
        return WorkerError(
            f"A worker process did not answer: it {why}. Link with fewer workers, or with workers=1."
            + (f"\nIts last output: {output}" if output else "")
        )

    def close_input(self) -> None:
        """Let the worker end; it does so within moments, whatever it is doing."""
        if not self._lock.acquire(timeout=0.2):  # another thread waits for it to read
            self._process.kill()
            self._lock.acquire()
        try:
            if self._process.stdin is not None:
                self._process.stdin.close()
        finally:
            self._lock.release()

    def end(self, timeout_s: float) -> None:
        """Wait until it has ended after `close_input`; kill it if that takes longer."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()
