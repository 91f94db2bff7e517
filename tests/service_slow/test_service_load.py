"""The heaviest that the limits allow, of many clients at once: the service answers, and keeps its memory."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
from linker_base import ENTITIES, fill
from service_process import KEY, WAIT_S, Running, serving

from pearl_qdrant import Entity

pytestmark = pytest.mark.slow

CLIENTS = 64
MEMORY = 1.2
"""Memory after it all, in terms of that before."""

ALLOWED = frozenset((200, 404, 408, 413, 422, 429, 503, 504))

LONG = "A name that goes on and on " * 36
WORDS = " ".join(f"Anna{i} Smith{i} of Rome{i}" for i in range(900))[:20_000]
PHRASE = "\ufdfa " * 1000  # counts as 19,000 characters
COLUMNS = {f"column {i}": "|".join(f"value {i} {j}" for j in range(60)) for i in range(50)}


def match(queries: int, properties: int, values: int, characters: int) -> dict[str, Any]:
    """A batch of the 1.0 draft."""
    value = ("value 1 1 " + "x" * characters)[:characters]
    conditions: list[dict[str, Any]] = [{"matchType": "name", "v": ["New York"]}]
    conditions += [
        {"matchType": "property", "pid": f"column {i}", "v": [f"{value}{j}" for j in range(values)]}
        for i in range(properties)
    ]
    return {"queries": [{"conditions": conditions, "limit": 100}] * queries}


def bodies() -> Iterator[tuple[str, Any]]:
    """Paths with bodies; None: a GET."""
    for typed in ("\u03bf" * 1000, "\ufdfa" * 55, LONG[:900], LONG[:40] + "?", "a"):
        types = "".join(f"&type=ORG{i}" for i in range(32))
        yield f"/v1/search?q={quote(typed)}&limit=100", None
        yield f"/v1/search?q={quote(typed)}&limit=100{types}", None
        yield f"/reconcile/base/suggest/entity?prefix={quote(typed)}&cursor=1000", None
    yield "/v1/link", {"mentions": [f"New York {i}" for i in range(1000)], "limit": 20, "explain": True}
    yield "/v1/link", {"mentions": [f"{i} {LONG}"[:900] for i in range(1000)], "context": WORDS}
    yield "/v1/link", {"mentions": ["\ufdfa" * 55] * 1000}
    yield "/v1/link", {"mentions": [1] * 500_000}
    yield "/v1/link", {f"x{i}": 1 for i in range(80_000)}
    for text in (WORDS, PHRASE, "x" * 20_000, "\u0301" * 20_000, "(A) " * 5000):
        options = {"nested": True, "include_nil": True, "document": True}
        yield "/v1/annotate", {"text": text, **options}
        yield "/v1/annotate", {"text": text, "context": text, **options, "document": False}
    spans = [{"start": 20 * i, "end": 20 * i + 19} for i in range(999)]
    yield "/v1/documents", {"text": WORDS, "spans": spans, "limit": 20}
    yield "/reconcile/base/match", match(1, 50, 40, 400)
    yield "/reconcile/base/match", match(40, 50, 1, 400)
    yield "/reconcile/base/match", match(7, 50, 50, 40)
    yield "/reconcile/base", {"queries": {f"q{i}": {"query": LONG[: 900 + i]} for i in range(100)}}
    columns = [{"id": name} for name in COLUMNS]
    yield "/reconcile/base", {"extend": {"ids": ["wide"] * 500 + ["nyc"] * 500, "properties": columns}}
    yield "/reconcile/base/extend", {"ids": [f"id {i}" for i in range(1000)], "properties": columns}
    for path in (
        "suggest/type?prefix=",
        "suggest/property?prefix=",
        "preview?id=wide",
        "view?id=wide",
        "extend/propose",
    ):
        yield f"/reconcile/base/{path}", None
    for path in ("/v1/map?size=2000", "/v1/types", "/v1/collections", "/metrics", "/openapi.json", "/docs", "/"):
        yield path, None


def packed(body: Any) -> bytes:
    """A body in as few bytes as there can be."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def ask(service: Running, path: str, body: Any) -> int:
    """The status of a request."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=WAIT_S)
    try:
        headers = {"Content-Type": "application/json", "X-API-Key": KEY}
        connection.request("GET" if body is None else "POST", path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


@dataclass
class Pulse:
    """Asks whether the service is live, again and again."""

    service: Running
    answers: Counter[int] = field(default_factory=Counter)
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Ask until `stop`."""
        while not self._stop.wait(0.05):
            self.answers[ask(self.service, "/health/live", None)] += 1

    def stop(self) -> None:
        """End."""
        self._stop.set()


def memory(service: Running) -> int:
    """Bytes that the service has for itself."""
    return int(psutil.Process(service.process.pid).memory_full_info().uss)


def memory_at_rest(service: Running, wanted: float) -> int:
    """The same when what was answered with 504 is given up, and memory given back; `wanted` ends the wait."""
    for _ in range(120):
        if (found := memory(service)) <= wanted:
            break
        time.sleep(0.5)
    return found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """An embedded store with the collection `base`, which has a long name and an entity with many columns."""
    path = tmp_path_factory.mktemp("store")
    wide = Entity("wide", "New York Wide", (), ("city",), ("GPE",), "A city", COLUMNS)
    fill(path, "base", str(model), [*ENTITIES, Entity("long", LONG), wide], is_loaded=True)
    return path


def test_heavy_bodies_of_many_clients_stop_nothing(store: Path, tmp_path: Path) -> None:
    """While 64 clients send the heaviest bodies to every path, the service is live, fails nowhere, and keeps its
    memory.
    """
    sent = [(path, None if body is None else packed(body)) for path, body in bodies()]
    assert [path for path, body in sent if body and len(body) > 1 << 20] == []
    with serving(store, tmp_path, "--set", "timeout_s=5") as service, ThreadPoolExecutor(CLIENTS + 1) as clients:
        for path, body in sent * 2:
            ask(service, path, body)
        before = memory(service)
        pulse = Pulse(service)
        beating = clients.submit(pulse.run)

        def client(number: int) -> Counter[tuple[str, int]]:
            turned = sent[number % len(sent) :] + sent[: number % len(sent)]
            return Counter((path.partition("?")[0], ask(service, path, body)) for path, body in turned)

        statuses = sum(clients.map(client, range(CLIENTS)), Counter[tuple[str, int]]())
        pulse.stop()
        beating.result()
        after = memory_at_rest(service, MEMORY * before)
        errors = [line for line in service.lines() if line["level"] == "error"]

    assert {status for _, status in statuses} <= ALLOWED, statuses
    assert errors == []
    assert set(pulse.answers) == {200}
    assert after <= MEMORY * before, (before, after)


def test_few_descriptors_are_enough_for_many_idle_clients(store: Path, tmp_path: Path) -> None:
    """With 120 file descriptors, 300 clients that send half a head, or nothing, keep nobody else out."""
    with serving(store, tmp_path, descriptors=120) as service, ExitStack() as stack:
        for number in range(300):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=WAIT_S))
            client.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n" if number % 2 else b"")
            if number % 50 == 49:
                assert ask(service, "/health/live", None) == 200
        assert service.link("NYTimes") == "nyt"
        assert psutil.Process(service.process.pid).num_fds() < 120
