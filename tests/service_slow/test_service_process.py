"""The service as a process: stopped under load, with workers that are killed, with clients that hang up."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from http.client import HTTPException
from pathlib import Path

import pytest
from linker_base import ENTITIES, fill
from service_process import WAIT_S, Running, serving, workers_of

RIGHT = {"NYTimes": "nyt", "Big Apple": "nyc", "heart attack": "mi", "New York State": "nys"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """An embedded store with the collection `base`."""
    path = tmp_path_factory.mktemp("store")
    fill(path, "base", str(model), ENTITIES, is_loaded=True)
    return path


class Load:
    """Clients that link until they are told to stop, each request on a connection of its own."""

    def __init__(self, service: Running, clients: int = 8) -> None:
        self.answers: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._service = service
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(clients)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        mentions = list(RIGHT)
        while not self._stop.is_set():
            mention = mentions[number % len(mentions)]
            number += 1
            try:
                found = self._service.link(mention)
            except (OSError, HTTPException):
                self.answers["none"] += 1
                time.sleep(0.05)
                continue
            self.answers["ok"] += 1
            if found != RIGHT[mention]:
                self.wrong.append(f"{mention}: {found}")

    def wait_for(self, answers: int) -> None:
        """Wait until there are this many more answers."""
        wanted, end = self.answers["ok"] + answers, time.monotonic() + WAIT_S
        while self.answers["ok"] < wanted:
            assert time.monotonic() < end
            time.sleep(0.02)

    def stop(self) -> None:
        """End the clients."""
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT_S)


def test_a_stop_under_load_answers_what_was_accepted(store: Path, tmp_path: Path) -> None:
    """After SIGTERM every request that the service took is answered, rightly, and the process ends."""
    with serving(store, tmp_path) as service:
        load = Load(service)
        try:
            load.wait_for(50)
            service.process.send_signal(signal.SIGTERM)
            service.process.wait(WAIT_S)
        finally:
            load.stop()
        answered = [line for line in service.lines() if line.get("path") == "/v1/link"]

    assert load.wrong == []
    assert Counter(line["status"] for line in answered) == {200: load.answers["ok"]}


def test_a_worker_that_is_killed_is_replaced(store: Path, tmp_path: Path) -> None:
    """Two workers answer from one folder; when one is killed, the other goes on, and a new one takes its place."""
    with serving(store, tmp_path, "--workers", "2") as service:
        load = Load(service)
        try:
            load.wait_for(20)
            workers = workers_of(service)
            assert len(workers) == 2
            workers[0].kill()
            load.wait_for(50)
            end = time.monotonic() + WAIT_S
            while len(workers_of(service)) < 2:
                assert time.monotonic() < end
                time.sleep(0.1)
        finally:
            load.stop()
        assert load.wrong == []
        assert load.answers["none"] < 20
        assert service.ask("GET", "/v1/collections")[0] == 200


def test_clients_that_hang_up_leave_nothing_behind(store: Path, tmp_path: Path) -> None:
    """Clients that send half a request, or do not wait for the answer, do not disturb others."""
    body = b'{"mentions": ["NYTimes"], "threshold": 0}'
    head = b"POST /v1/link HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with serving(store, tmp_path) as service:
        for sent in (head % len(body) + body, head % 500 + body, b"POST /v1/link HT", b"\x00\xff\r\n\r\n"):
            for _ in range(5):
                with socket.create_connection(("127.0.0.1", service.port)) as client:
                    client.sendall(sent)
        assert service.link("Big Apple") == "nyc"
        errors = [line for line in service.lines() if line["level"] == "error"]

    assert errors == []


def test_a_port_in_use_and_bad_settings_are_errors(store: Path, tmp_path: Path) -> None:
    """What cannot start says why, with status 1, and shows no key."""
    keys = tmp_path / "keys.txt"
    keys.write_text("too-short")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-m", "pearl_qdrant", "serve", "--store", str(store)]
        port = ["--port", str(taken.getsockname()[1])]
        outcomes = [
            subprocess.run([*command, *options], capture_output=True, text=True, timeout=WAIT_S, check=False)
            for options in (port, ["--set", "max_mentions=x"], ["--set", "nothing=1"], ["--api-keys", str(keys)])
        ]

    assert [outcome.returncode for outcome in outcomes] == [1, 1, 1, 1]
    assert "could not start" in outcomes[0].stderr or "ended with status" in outcomes[0].stderr
    assert "max_mentions" in outcomes[1].stderr
    assert "is no setting" in outcomes[2].stderr
    assert "API key 1" in outcomes[3].stderr
    assert "too-short" not in outcomes[3].stderr
