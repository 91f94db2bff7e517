"""Children of the embedded store that start in milliseconds, forked from a process that has imported their modules.

A child imports numpy, pydantic and Qdrant Edge, 0.4 s of processor time, and the tests start hundreds. So one process
for each of pytest's workers, the nursery, imports them once and forks. A child that is forked is a process of its own
with the same `main`, pipes, environment and signals; only its parent is another one, the guard, which waits for it.
Tests of the process itself, and those that run other processes, start real ones (`cold_children` in conftest.py).
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from pearl_qdrant.store.edge import child_process

_NUMBER = struct.Struct("!i")


class Nursery:
    """The process that forks children; it ends with this one."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        _, environment, folder = child_process.python_child(child_process.MODULE)
        environment["OPENBLAS_NUM_THREADS"] = "1"  # a process with several threads should not be forked
        environment["PYTHONPATH"] += os.pathsep + str(Path(__file__).parent)
        command = [sys.executable, "-m", "warm_children", str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(command, env=environment, cwd=folder, pass_fds=[theirs.fileno()])
        self._socket = ours

    def close(self) -> None:
        """End it; children that are left are killed."""
        self._socket.close()
        self._process.wait()

    def start(self, request: Mapping[str, Any], fds: Sequence[int]) -> None:
        """Ask for a child with these files as its input, output, standard error and the guard's report."""
        body = json.dumps(request).encode()
        socket.send_fds(self._socket, [_NUMBER.pack(len(body))], fds)
        self._socket.sendall(body)


class WarmChild:
    """A forked child, with the part of `subprocess.Popen` that `EdgeProcess` uses."""

    def __init__(self, nursery: Nursery, command: Sequence[str], *, stderr: IO[bytes], cwd: Path, env: dict[str, str]):
        reads, self.stdin = _pipe_to_child()
        self.stdout, writes = _pipe_from_child()
        self._report, reports = _pipe_from_child()
        self.returncode: int | None = None
        nursery.start(
            {"arguments": command[2:], "cwd": str(cwd), "env": env}, [reads, writes, stderr.fileno(), reports]
        )
        for fd in (reads, writes, reports):
            os.close(fd)
        self.pid = self._next_number()

    def _next_number(self) -> int:
        return int(_NUMBER.unpack(self._report.read(_NUMBER.size))[0])

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the status as `subprocess` counts it."""
        if self.returncode is None:
            if not select.select([self._report], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("child", timeout or 0)
            self.returncode = self._next_number()
            self._report.close()
        return self.returncode

    def poll(self) -> int | None:
        """The status, or None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, if it still runs."""
        self.send_signal(signal.SIGKILL)


class WarmSubprocess:
    """Stands in for the module `subprocess` in `child_process`."""

    PIPE = subprocess.PIPE
    TimeoutExpired = subprocess.TimeoutExpired

    def __init__(self, nursery: Callable[[], Nursery]) -> None:
        self._nursery = nursery

    def Popen(self, command: Sequence[str], **options: Any) -> WarmChild | subprocess.Popen[bytes]:  # noqa: N802
        """Fork a child of the embedded store; anything else is started as usual."""
        if list(command[:3]) != [sys.executable, "-m", child_process.MODULE]:
            return subprocess.Popen(command, **options)
        return WarmChild(self._nursery(), command, stderr=options["stderr"], cwd=options["cwd"], env=options["env"])


def _pipe_to_child() -> tuple[int, IO[bytes]]:
    reads, writes = os.pipe()
    return reads, os.fdopen(writes, "wb")


def _pipe_from_child() -> tuple[IO[bytes], int]:
    reads, writes = os.pipe()
    return os.fdopen(reads, "rb"), writes


def _serve(requests: socket.socket) -> None:
    """Fork a guard for each request, until the other side is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guards leave no zombies
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        header, fds, _, _ = socket.recv_fds(requests, _NUMBER.size, 4)
        if len(header) < _NUMBER.size:
            return
        body = requests.recv(_NUMBER.unpack(header)[0], socket.MSG_WAITALL)
        if os.fork() == 0:
            requests.close()
            _guard(json.loads(body), fds)
        for fd in fds:
            os.close(fd)


def _guard(request: Mapping[str, Any], fds: Sequence[int]) -> None:
    """Fork the child, report its process id and, in the end, its status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *files, report = fds
    child = os.fork()
    if child == 0:
        os.close(report)
        _become(request, files)
    for fd in files:
        os.close(fd)
    os.write(report, _NUMBER.pack(child))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        os.write(report, _NUMBER.pack(status))
    except BrokenPipeError:
        status = 0  # the tests have ended
    os._exit(0)


def _become(request: Mapping[str, Any], files: Sequence[int]) -> None:
    """Be the child: its files, folder, environment and command line; ends the process."""
    status = 1
    try:
        for number, fd in enumerate(files):
            os.dup2(fd, number)
            os.close(fd)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(cast(str, request["cwd"]))
        os.environ.clear()
        os.environ.update(request["env"])
        tempfile.tempdir = None
        sys.argv = list(request["arguments"])

        from pearl_qdrant.store.edge.child_main import main

        main()
        status = 0
    except SystemExit as stop:
        status = int(stop.code or 0)
    except BaseException:  # noqa: BLE001 - as the interpreter does with what nobody catches
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    import pearl_qdrant.store.edge.child_main  # noqa: F401 - what children need

    _serve(socket.socket(fileno=int(sys.argv[1])))
