"""The service as a process of its own, for slow tests."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import psutil
from edge_cases import wait_until

KEY = "0123456789abcdef"
"""The key of each service."""

WAIT_S = 300
"""Bounds a hang."""


@dataclass
class Running:
    """A running service: the process that was started (with workers, their parent), its port and its log."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON of a request on a connection of its own. Raises OSError or HTTPException without an
        answer.
        """
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)) as connection:
            packed = None if body is None else json.dumps(body)
            connection.request(method, path, packed, {"Content-Type": "application/json", "X-API-Key": KEY})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def link(self, mention: str) -> str | None:
        """The entity of a mention."""
        status, answer = self.ask("POST", "/v1/link", {"mentions": [mention], "threshold": 0})
        assert status == 200, answer
        found: str | None = answer["links"][0]["entity_id"]
        return found

    def lines(self) -> list[dict[str, Any]]:
        """The lines of its log."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def wait_for(self, path: str) -> None:
        """Wait until a path is answered with 200."""
        end = time.monotonic() + WAIT_S
        while True:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
            with suppress(OSError):
                if self.ask("GET", path)[0] == 200:
                    return
            time.sleep(0.1)


RIGHT = {"NYTimes": "nyt", "Big Apple": "nyc", "heart attack": "mi", "New York State": "nys"}


class Clients:
    """Clients that link and accept until they are told to stop; `ask` sends a body to a path."""

    def __init__(self, ask: Callable[[str, Any], tuple[int, Any]], linking: int = 3, accepting: int = 2) -> None:
        self.statuses: Counter[int] = Counter()
        self.wrong: list[str] = []
        self.accepted: set[str] = set()
        self.asked: set[str] = set()
        self._ask = ask
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._link, args=(i,)) for i in range(linking)]
        self._threads += [threading.Thread(target=self._accept, args=(i,)) for i in range(accepting)]
        for thread in self._threads:
            thread.start()

    def _try(self, path: str, body: Any) -> tuple[int, Any]:
        try:
            status, answer = self._ask(path, body)
        except (OSError, HTTPException):
            status, answer = 0, None
        self.statuses[status] += 1
        if status != 200:
            self._stop.wait(0.02)
        return status, answer

    def _link(self, number: int) -> None:
        mentions = list(RIGHT)
        while not self._stop.is_set():
            number += 1
            mention = mentions[number % len(mentions)]
            status, answer = self._try("/v1/link", {"mentions": [mention], "threshold": 0})
            if status == 200 and answer["links"][0]["entity_id"] != RIGHT[mention]:
                self.wrong.append(f"{mention}: {answer['links'][0]['entity_id']}")

    def _accept(self, number: int) -> None:
        n = 0
        while not self._stop.is_set():
            n += 1
            mention = f"Gotham {number} {n}"
            self.asked.add(mention)
            if self._try("/v1/accept", {"mention": mention, "entity_id": "nyc"})[0] == 200:
                self.accepted.add(mention)

    def wait_for(self, accepted: int, answers: int) -> None:
        """Wait until there are so many more."""
        wanted = len(self.accepted) + accepted, self.statuses[200] + answers
        wait_until(lambda: len(self.accepted) >= wanted[0] and self.statuses[200] >= wanted[1])

    def stop(self) -> None:
        """End the clients."""
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT_S)


def by_process(service: Running) -> Callable[[str, Any], tuple[int, Any]]:
    """Asks a service that is a process of its own."""
    return lambda path, body: service.ask("POST", path, body)


@contextmanager
def serving(store: Path | str, folder: Path, *options: str, cache: Path | None = None) -> Iterator[Running]:
    """Run a service over a store until the block ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "pearl_qdrant", "serve", "--store", str(store), "--port", str(port)]
    log = folder / "service.log"
    environment = {**os.environ, "PEARL_QDRANT_SERVICE_KEYS": KEY, "XDG_CACHE_HOME": str(cache or folder / "cache")}
    with log.open("wb") as written:
        process = subprocess.Popen([*command, *options], stderr=written, env=environment)
        running = Running(process, port, log)
        try:
            running.wait_for("/health/ready")
            yield running
        finally:
            process.terminate()
            process.wait(WAIT_S)


def workers_of(service: Running) -> list[psutil.Process]:
    """The processes that answer."""
    found = []
    for one in psutil.Process(service.process.pid).children():
        with suppress(psutil.Error):  # it ends
            if "spawn_main" in " ".join(one.cmdline()):
                found.append(one)
    return found
