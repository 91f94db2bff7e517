"""The service as a process of its own, and what it takes of the machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

START_S = 600


@dataclass
class Service:
    """A running service."""

    process: subprocess.Popen[bytes]
    port: int

    def _all(self) -> list[psutil.Process]:
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]

    def cpu_s(self) -> float:
        """Processor time so far, of all its processes, in seconds."""
        return sum(sum(one.cpu_times()[:2]) for one in self._all())

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a GET; (0, b"") if nothing answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError:
            return 0, b""

    def wait(self, path: str) -> None:
        """Wait until a GET is answered with 200."""
        end = time.monotonic() + START_S
        while self.get(path)[0] != 200:
            if time.monotonic() > end or self.process.poll() is not None:
                raise SystemExit(f"the service does not answer {path}")
            time.sleep(0.2)


@contextmanager
def running(store: str, *options: str, log: Path | None = None) -> Iterator[Service]:
    """Run a service on a free port until the block ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "pearl_qdrant", "serve", "--store", store, "--port", str(port), *options]
    with Path(log or os.devnull).open("wb") as written:
        process = subprocess.Popen(command, stderr=written, stdout=written)
        service = Service(process, port)
        try:
            service.wait("/health/ready")
            yield service
        finally:
            process.terminate()
            process.wait(60)
