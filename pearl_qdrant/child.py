"""A process of ours beside this one: for what holds the interpreter or takes memory that only a process returns, and
for files that a library reads which trusts them.

Parent and child exchange frames over the child's standard input and output. The child may limit itself, and the system
holds it to that: on Linux no trick in a file gets more memory, or more of a processor.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

_EXIT_S = 60.0  # a child finishes what it does before it exits
_STDERR_CHARS = 2000  # characters of a dead child's standard error that an error message shows


def send(stream: IO[bytes], kind: bytes, body: object = b"") -> None:
    """Send a request or an answer: its kind, and a body that can be pickled."""
    pickle.dump((kind, body), stream, protocol=pickle.HIGHEST_PROTOCOL)
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[bytes, Any] | None:
    """Read the next request or answer; None if the other side has closed the pipe, even within one."""
    try:
        kind, body = pickle.load(stream)  # noqa: S301 - our own parent or child sent it
    except (EOFError, pickle.UnpicklingError):
        return None
    return kind, body


def why_ended(code: int) -> str:
    """Describe how a process ended, as in "was killed by SIGKILL"."""
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


class ChildProcess:
    """One child: ``python -m MODULE ARGUMENTS`` with our own interpreter and search path."""

    def __init__(self, module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        """Start it; raises OSError, also where no temporary file can be made."""
        root = Path(__file__).resolve().parents[1]
        search = [str(root), *(str(Path(entry).resolve()) for entry in sys.path if entry)]
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                cwd=root,  # which `-m` puts first in the child's search path
                env={**os.environ, **(environment or {}), "PYTHONPATH": os.pathsep.join(search)},
            )
        except OSError:
            self._stderr.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, kind: bytes, body: object = b"") -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # the child has exited; it may have sent an error before
            send(self._process.stdin, kind, body)

    def receive(self) -> tuple[bytes, Any] | None:
        """Wait for the next answer; None if the child died."""
        assert self._process.stdout is not None
        return receive(self._process.stdout)

    def end(self) -> None:
        """Close the pipes and wait: the child then exits. If it does not, it is killed."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # data that a dead child did not read
                    pipe.close()
        self._wait()
        self._stderr.close()

    def kill(self) -> None:
        """Kill the child."""
        self._process.kill()
        self._process.wait()

    def ended(self) -> tuple[int, str]:
        """Wait for the end of a child that closed its pipe: its status, negative for a signal, and its last output."""
        code = self._wait()
        self._stderr.seek(0)
        return code, self._stderr.read().decode("utf-8", "replace").strip()[-_STDERR_CHARS:]

    def _wait(self) -> int:
        try:
            return self._process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.returncode


def begin() -> tuple[IO[bytes], IO[bytes]]:
    """In the child: the streams of requests and of answers. Ctrl-C in a terminal reaches the child too, and the parent
    decides; output of libraries does not mix with the frames.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return sys.stdin.buffer, answers


def memory_used() -> int:
    """In the child: the bytes that `limit_memory` counts; 0 where that limits nothing."""
    if sys.platform != "linux":
        return 0
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmData:"))


def limit_memory(n_bytes: int) -> None:
    """In the child: allow so many bytes. Linux alone holds a process to it.

    Mapped files do not count (`RLIMIT_DATA`), which need no memory, nor address space that is only reserved.
    """
    if sys.platform == "linux":
        import resource

        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        wanted = n_bytes if hard == resource.RLIM_INFINITY else min(n_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


def limit_processor(seconds: int) -> None:
    """In the child: allow so many seconds of the processor from now on, then the system ends it (SIGXCPU)."""
    if sys.platform == "win32":
        return
    import resource

    usage = resource.getrusage(resource.RUSAGE_SELF)
    wanted, hard = int(usage.ru_utime + usage.ru_stime) + 1 + seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
