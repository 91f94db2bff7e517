"""The service as a process: stopped under load, with workers that are killed, with clients that hang up, faults of its
store, its memory, and the files that it leaves. Schemathesis on the OpenAPI schema: no failure, nothing that is not
declared.
"""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import service_client
from edge_cases import wait_until
from linker_base import ENTITIES, fill, fill_server
from qdrant_double import QdrantDouble
from service_process import KEY, WAIT_S, Clients, Running, by_process, serving, workers_of

from pearl_qdrant.linking.learned.learning import learned_pairs
from pearl_qdrant.service import ServiceSettings
from pearl_qdrant.store.open import open_store

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
    """What cannot start says why, with status 1, or 2 for a wrong setting, and shows no key."""
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

    assert [outcome.returncode for outcome in outcomes] == [1, 2, 2, 1]
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
    with serving(tmp_path / "store", tmp_path, "--set", "allow_writing=yes") as service:
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


@pytest.fixture
def server(model: Path) -> Iterator[QdrantDouble]:
    """A server with the collection `base`."""
    with QdrantDouble() as double:
        fill_server(double.url, "base", str(model), ENTITIES)
        yield double


def accepted_in(store: str) -> set[str]:
    """The mentions that a collection has learned."""
    with closing(open_store(store)) as opened, closing(opened.open("base", read_only=True)) as collection:
        return {mention for mention, _ in learned_pairs(collection)}


def test_a_store_that_fails_again_and_again_never_makes_a_wrong_answer(server: QdrantDouble, tmp_path: Path) -> None:
    """With every seventh request to the server lost, before or after it counted, all answers are right, and all that
    is accepted is kept.
    """
    settings = ServiceSettings(
        store=server.url, cache=str(tmp_path), allow_writing=True, api_keys=service_client.KEYS,
        reload_s=0.05, server_reload_s=0.05, store_wait_s=0.1,
    )  # fmt: skip
    with service_client.serving(settings, base_url="http://localhost") as client:

        def ask(path: str, body: Any) -> tuple[int, Any]:
            answer = client.post(path, json=body)
            return answer.status_code, answer.json()

        server.drop_every = 7
        clients = Clients(ask)
        try:
            clients.wait_for(accepted=10, answers=60)
        finally:
            clients.stop()
            server.drop_every = 0

    assert clients.wrong == []
    assert set(clients.statuses) <= {200, 503}
    assert clients.accepted <= accepted_in(server.url) <= clients.asked


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_what_was_accepted_outlives_the_process(how: signal.Signals, tmp_path: Path, model: Path) -> None:
    """After a stop or a kill under load, each link that was accepted with 200 is in the ledger, and nothing else; a
    new process serves it.
    """
    store = tmp_path / "store"
    fill(store, "base", str(model), ENTITIES, is_loaded=True)
    with serving(store, tmp_path, "--set", "allow_writing=yes") as service:
        clients = Clients(by_process(service))
        try:
            clients.wait_for(accepted=10, answers=40)
            service.process.send_signal(how)
            service.process.wait(WAIT_S)
        finally:
            clients.stop()

    assert clients.wrong == []
    assert set(clients.statuses) <= {200, 0}
    assert clients.accepted <= accepted_in(str(store)) <= clients.asked
    with serving(store, tmp_path, "--set", "allow_writing=yes") as service:
        assert [service.link(mention) for mention in sorted(clients.accepted)[:3]] == ["nyc"] * 3


START_MB, PEAK_MB = 450, 600
"""A service whose encoder and judge each open the model starts with 540, and had 960 when links waited as objects."""


def peak_mb(service: Running) -> int:
    """The most memory that the process ever had."""
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) // 1024


def test_a_service_stays_small_under_large_bodies(tmp_path: Path) -> None:
    """It starts with less than 450 MB, and four bodies of a thousand mentions with 20 candidates each add 150."""
    store = tmp_path / "store"
    demo = [sys.executable, "-m", "pearl_qdrant", "demo", "--store", str(store)]
    subprocess.run(demo, check=True, stdin=subprocess.DEVNULL, timeout=WAIT_S)
    names = ("New York Times", "heart attack", "Paper Mills", "Victoria")
    bodies = [{"mentions": [f"{name} {i}" for i in range(1000)], "limit": 20} for name in names]
    roomy = ("--set", "max_queued_mentions=4000", "--set", f"timeout_s={WAIT_S}")
    with serving(store, tmp_path, *roomy) as service, ThreadPoolExecutor(len(bodies)) as clients:
        assert service.link("NYTimes") == "the-new-york-times"
        at_start = peak_mb(service)
        answers = list(clients.map(lambda body: service.ask("POST", "/v1/link", body), bodies))
        at_most = peak_mb(service)

    assert [(status, len(answer["links"])) for status, answer in answers] == [(200, 1000)] * len(bodies)
    assert at_start < START_MB
    assert at_most < PEAK_MB


ROOT = Path(__file__).resolve().parents[2]


def test_nothing_is_left_outside_the_folders_that_the_docs_name(
    tmp_path: Path, bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`docs/configuration.md` says where everything lies."""
    home, temp, work = (tmp_path / name for name in ("home", "temp", "work"))
    work.mkdir()
    for name, folder in {"HOME": home, "TMPDIR": temp}.items():
        folder.mkdir()
        monkeypatch.setenv(name, str(folder))
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "PEARL_QDRANT_STORE", "QDRANT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(*command: str) -> None:
        subprocess.run([sys.executable, "-m", "pearl_qdrant", *command], cwd=work, check=True, timeout=WAIT_S)

    store, cache = home / ".local/share/pearl-qdrant", home / ".cache/pearl-qdrant"
    run("demo")
    with serving(store, work, cache=cache.parent) as service:
        assert service.link("Paris") is not None
    fitted = ["--out", str(work / "fitted"), "--steps", "1", "--set", "batch_size=8"]
    run("train", "fit", "--base-model", str(bert), "--aliases", str(ROOT / "examples/sample_base.tsv"), *fitted)

    files = [path for folder in (home, temp, work) for path in folder.rglob("*") if path.is_file()]
    allowed = (store, cache, work / "fitted")
    left = [str(path.relative_to(tmp_path)) for path in files if not any(path.is_relative_to(one) for one in allowed)]
    assert left == ["work/service.log"]
    assert any(path.is_relative_to(store) for path in files)
