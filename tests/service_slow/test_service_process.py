"""The service as a process: stopped under load, with workers that are killed, with clients that hang up.
Schemathesis on the OpenAPI schema: no failure of the service, and nothing that the schema does not declare.
"""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from edge_cases import wait_until
from linker_base import ENTITIES, fill
from service_process import KEY, WAIT_S, Clients, Running, by_process, serving, workers_of

pytestmark = pytest.mark.slow


def clients_of(service: Running) -> Clients:
    """Clients that link, each request on a connection of its own."""
    return Clients(by_process(service), linking=8, accepting=0)


def test_a_stop_under_load_answers_what_was_accepted(base_store: Path, tmp_path: Path) -> None:
    """After SIGTERM every request that the service took is answered, rightly, and the process ends."""
    with serving(base_store, tmp_path) as service:
        load = clients_of(service)
        try:
            load.wait_for(accepted=0, answers=50)
            service.process.send_signal(signal.SIGTERM)
            service.process.wait(WAIT_S)
        finally:
            load.stop()
        answered = [line for line in service.lines() if line.get("path") == "/v1/link"]

    assert load.wrong == []
    assert Counter(line["status"] for line in answered) == {200: load.statuses[200]}


def linked(service: Running) -> float:
    """How many mentions all workers have linked, as /metrics of one says."""
    request = Request(f"http://127.0.0.1:{service.port}/metrics", headers={"X-API-Key": KEY})
    with urlopen(request, timeout=WAIT_S) as answer:
        found = re.search(r'answers_total{collection="base",reason="linked"} (\S+)', answer.read().decode())
    return float(found[1]) if found else 0.0


def test_a_worker_that_is_killed_is_replaced(base_store: Path, tmp_path: Path) -> None:
    """Two workers answer from one folder, and their counts are one sum; when one is killed, the other goes on, a new
    one takes its place, and what it counted stays.
    """
    with serving(base_store, tmp_path, "--workers", "2") as service:
        for _ in range(20):
            assert service.link("NYTimes") == "nyt"
        assert linked(service) == 20
        load = clients_of(service)
        try:
            load.wait_for(accepted=0, answers=20)
            workers = workers_of(service)
            assert len(workers) == 2
            workers[0].kill()
            load.wait_for(accepted=0, answers=50)
            wait_until(lambda: len(workers_of(service)) == 2)
        finally:
            load.stop()
        assert load.wrong == []
        assert load.statuses[0] < 20
        assert service.ask("GET", "/v1/collections")[0] == 200
        assert 0 <= linked(service) - 20 - load.statuses[200] <= load.statuses[0]


def test_clients_that_hang_up_leave_nothing_behind(base_store: Path, tmp_path: Path) -> None:
    """Clients that send half a request, or do not wait for the answer, do not disturb others."""
    body = b'{"mentions": ["NYTimes"], "threshold": 0}'
    head = b"POST /v1/link HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with serving(base_store, tmp_path) as service:
        for sent in (head % len(body) + body, head % 500 + body, b"POST /v1/link HT", b"\x00\xff\r\n\r\n"):
            for _ in range(5):
                with socket.create_connection(("127.0.0.1", service.port)) as client:
                    client.sendall(sent)
        assert service.link("Big Apple") == "nyc"
        errors = [line for line in service.lines() if line["level"] == "error"]

    assert errors == []


def test_a_port_in_use_and_bad_settings_are_errors(base_store: Path, tmp_path: Path) -> None:
    """What cannot start says why, with status 1, and shows no key."""
    keys = tmp_path / "keys.txt"
    keys.write_text("too-short")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-m", "pearl_qdrant", "serve", "--store", str(base_store)]
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


CONFIGURATION = """
[parameters]
collection = "base"

[checks]
positive_data_acceptance.enabled = false # no schema can say which types entities have, and where a text ends

[[operations]]
include-name = "GET /v1/search"
checks.negative_data_rejection.enabled = false # a number as a type is the same query as its text

[[operations]]
include-method = "POST"
include-path-regex = "^/reconcile"
checks.negative_data_rejection.enabled = false # an error of one query of a batch is its answer, with status 200
"""

EXAMPLES = 8
"""Examples of each operation in each phase."""

MAX_S = 45
"""Seconds after which fuzzing stops, on a busy machine."""


def test_the_schema_is_kept(tmp_path: Path, model: Path) -> None:
    """Bodies, parameters and headers within and outside of the schema get what it declares."""
    fill(tmp_path / "store", "base", str(model), ENTITIES, is_loaded=True)
    with serving(tmp_path / "store", tmp_path, "--allow-writing") as service:
        url = f"http://127.0.0.1:{service.port}/openapi.json"
        for made in ("/v1/search?q=n", "/v1/map", "/v1/map?size=2000"):  # before, they are a 503
            service.wait_for(made)
        command = [sys.executable, "-m", "schemathesis.cli", "run", url, "--seed", "1"]
        (tmp_path / "schemathesis.toml").write_text(CONFIGURATION)
        command += ["--max-examples", str(EXAMPLES), "--max-time", str(MAX_S)]
        command += ["--header", f"X-API-Key: {KEY}", "--no-color"]
        service.ask("GET", "/openapi.json")  # made now, since the program waits ten seconds for it at most
        found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        errors = [line for line in service.lines() if line["level"] == "error"]

    assert found.returncode == 0, found.stdout[-8000:]
    assert errors == []
