"""Logs and traces: JSON lines and spans with the ids of requests, without keys and without what people type.
Metrics: what /metrics shows after known requests.
"""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from edge_cases import wait_until
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from service_client import KEY, KEYS, Held, client_of, handle_of

from pearl_qdrant.service.observing import JsonLines, facts, forget_dead_workers, start_logging

SECRET = "Sekretna zzmention"
"""What nobody but the client is to read."""

Written = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def written(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Written:
    """A function that gives the lines of the service's log that have some fields."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(caplog.handler, "formatter", JsonLines())

    def lines(**wanted: object) -> list[dict[str, Any]]:
        found = map(json.loads, caplog.text.splitlines())
        ours = [line for line in found if not line["logger"].startswith("http")]  # those of the tests' client
        return [line for line in ours if wanted.items() <= line.items()]

    return lines


closed = client_of("service_settings", api_keys=KEYS, waits_for="/v1/search?q=n")  # which sends its key


def ask_everything(client: TestClient) -> None:
    """Send what has secrets in it to each path that takes some."""
    client.get("/v1/search", params={"q": SECRET})
    client.get("/reconcile/base/suggest/entity", params={"prefix": SECRET})
    client.get("/v1/search", params={"q": "x", "limit": SECRET})
    body = {"mentions": [SECRET], "context": SECRET}
    assert client.post("/v1/link", json={**body, "explain": True}).status_code == 200
    assert client.post("/v1/link", json={**body, "types": [SECRET[:9]]}).status_code == 422
    assert client.post("/v1/link", json={**body, "limit": SECRET}).status_code == 422
    assert client.post("/v1/annotate", json={"text": SECRET}).status_code == 200
    assert client.post("/v1/documents", json={"text": SECRET, "spans": [{"start": 0, "end": 4}]}).status_code == 200
    assert client.post("/reconcile/base", data={"queries": json.dumps({"q0": {"query": SECRET}})}).status_code == 200
    assert client.post("/v1/accept", json={"mention": SECRET, "entity_id": "nyc"}).status_code == 403
    for wrong in (f"{KEY}-wrong", KEY[:-1]):
        headers = {"X-API-Key": wrong, "Authorization": f"Bearer {wrong}"}
        assert client.post("/v1/link", json=body, headers=headers).status_code == 401


def test_each_request_is_one_line_of_json(closed: TestClient, written: Written) -> None:
    """The line has the id of the request, one of its own for an id that is not valid, method, path without its query,
    status, time and client.
    """
    answer = closed.get("/v1/search?q=new", headers={"X-Request-ID": "a-1"})
    closed.get("/v1/entities/base/none", headers={"X-Request-ID": "a b\tc"})

    [line] = written(request_id="a-1")
    assert answer.headers["x-request-id"] == "a-1"
    assert line["logger"] == "pearl_qdrant.service.access"
    assert (line["level"], line["message"]) == ("info", "request")
    assert (line["method"], line["path"], line["status"]) == ("GET", "/v1/search", 200)
    assert line["ms"] >= 0
    assert line["time"].endswith("Z")
    [other] = written(path="/v1/entities/base/none")
    assert other["status"] == 404
    assert len(other["request_id"]) == 32


def test_no_line_has_a_key_or_a_mention(closed: TestClient, written: Written) -> None:
    """Neither what is answered nor what is refused leaves a key, a mention, a text or a query in the log."""
    ask_everything(closed)

    assert len(written(logger="pearl_qdrant.service.access")) == 12
    for secret in (KEY[:-1], *SECRET.split()):
        assert secret not in str(written())


def test_a_failure_is_found_by_the_id_of_its_answer(
    closed: TestClient, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that nobody expected is answered with 500 and an id; the log has the reason under this id."""

    def broken(*given: object) -> None:
        logging.getLogger("pearl_qdrant.any").warning("from a thread")
        raise ZeroDivisionError("what happened")

    monkeypatch.setattr(handle_of(closed).linker, "entity", broken)
    failed = closed.get("/v1/entities/base/nyc")

    assert (failed.status_code, failed.json()["error"]) == (500, "internal")
    assert "what happened" not in failed.text
    thread, error, request = written(request_id=failed.json()["request_id"])
    assert thread["message"] == "from a thread"
    assert error["level"] == "error"
    assert "ZeroDivisionError: what happened" in error["error"]
    assert request["status"] == 500


def test_every_line_is_one_object() -> None:
    """Line ends and objects in a message, or in facts, do not break a line."""
    record = logging.LogRecord("name", logging.ERROR, "", 0, "one\ntwo %s", ("\u2028",), None)
    record.__dict__.update(facts(where=object(), names=("a", "b")))

    [line] = JsonLines().format(record).split("\n")
    assert json.loads(line)["names"] == ["a", "b"]
    record.__dict__.update(facts(large=2**70, half="\ud800"))
    [line] = JsonLines().format(record).split("\n")
    assert json.loads(line)["large"] == 2**70


def test_logging_goes_to_stderr_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """`start_logging` puts one handler in place of others, and keeps the lines of uvicorn's own access log out."""
    root, access = logging.getLogger(), logging.getLogger("uvicorn.access")
    before = root.handlers[:], root.level, access.propagate
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    try:
        root.handlers = []
        start_logging()
        access.info("GET /?q=%s", SECRET)
        logging.getLogger("uvicorn.error").info("started")
        logging.getLogger("httpx2").info("GET http://server")
    finally:
        root.handlers, root.level, access.propagate = before

    [line] = stream.getvalue().splitlines()
    assert json.loads(line)["message"] == "started"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Keeps all spans of this process in memory; skips the test without the SDK."""
    pytest.importorskip("opentelemetry.sdk.trace", reason="needs the SDK: pip install opentelemetry-sdk")
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)  # it can be set once a process, and belongs to no test
    yield kept
    provider.shutdown()


def test_what_people_type_is_in_no_span(closed: TestClient, spans: Any) -> None:
    """A request has a span with its id, in the trace of its client; its query is hidden, and so are mentions."""
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01", "X-Request-ID": "a-1"}
    closed.post("/v1/link", json={"mentions": [SECRET, "NYC"]}, headers=headers)
    closed.get("/v1/search", params={"q": SECRET})
    closed.post("/v1/link", json={"mentions": ["x"], "limit": SECRET})
    closed.post("/v1/annotate", json={"text": SECRET})

    found = spans.get_finished_spans()
    request = next(one for one in found if one.name == "POST /v1/link")
    assert f"{request.context.trace_id:032x}" == trace_id
    assert request.attributes["pearl_qdrant.request_id"] == "a-1"
    [typed] = [one for one in found if one.name == "GET /v1/search"]
    assert typed.attributes["url.query"] == "REDACTED"
    assert SECRET.split()[0] not in "".join(one.to_json() for one in found)


DOCS = Path(__file__).resolve().parents[2] / "docs" / "service.md"

PREFIX = "pearl_qdrant_"


class Shown:
    """The metrics of a service, without their prefix, before and after something."""

    def __init__(self, client: TestClient) -> None:
        self._client = client
        self._before = self._read()

    def _read(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        families = text_string_to_metric_families(self._client.get("/metrics").text)
        samples = [sample for family in families for sample in family.samples]
        return {(one.name.removeprefix(PREFIX), frozenset(one.labels.items())): one.value for one in samples}

    def now(self, name: str, **labels: str) -> float:
        """A value; 0 if it is not there yet."""
        return self._read().get((name, frozenset(labels.items())), 0.0)

    def more(self, name: str, **labels: str) -> float:
        """How much a value has grown."""
        return self.now(name, **labels) - self._before.get((name, frozenset(labels.items())), 0.0)


@pytest.fixture
def shown(client: TestClient) -> Shown:
    """The metrics of the service of this module."""
    return Shown(client)


def link(client: TestClient, *mentions: str, **options: object) -> None:
    """Link mentions, whatever comes of it."""
    assert client.post("/v1/link", json={"mentions": mentions, "threshold": 0, **options}).status_code == 200


def test_answers_are_counted_by_their_reason(client: TestClient, shown: Shown) -> None:
    """Each mention is counted once, as linked or by the reason of its NIL, whichever path linked it."""
    link(client, "NYTimes", "Big Apple")
    link(client, "zzz qqq", "qqq zzz", "yyy", threshold=1)
    link(client, "New York", on_tie="null")
    text = {"text": "The NYTimes is in NYC.", "spans": [{"start": 4, "end": 11}, {"start": 18, "end": 21}]}
    assert client.post("/v1/documents", json={**text, "threshold": 0}).status_code == 200

    found = {
        reason: shown.more("answers_total", collection="base", reason=reason)
        for reason in ("linked", "below_threshold", "ambiguous", "no_candidates")
    }
    assert found == {"linked": 4, "below_threshold": 3, "ambiguous": 1, "no_candidates": 0}


def test_batches_have_their_size_and_time(client: TestClient, shown: Shown) -> None:
    """A batch counts its mentions and requests; encoding and searching take a part of its time."""
    link(client, *(f"mention {number}" for number in range(5)))
    link(client, "one more")

    assert shown.more("batch_mentions_count", collection="base") == 2
    assert shown.more("batch_mentions_sum", collection="base") == 6
    assert shown.more("batch_mentions_bucket", collection="base", le="4.0") == 1
    assert shown.more("batch_requests_sum", collection="base") == 2
    assert shown.more("batch_seconds_count", collection="base") == 2
    assert shown.more("encode_seconds_count") == 2
    assert shown.more("search_seconds_count", collection="base") == 4  # names first, then the others
    parts = shown.more("encode_seconds_sum") + shown.more("search_seconds_sum", collection="base")
    assert 0 < parts < shown.more("batch_seconds_sum", collection="base")


def test_requests_are_counted_by_route_and_status(client: TestClient, shown: Shown) -> None:
    """An id in a path is not a series of its own, nor is a path that nobody answers, or a method of a client's own."""
    for path in ("/v1/entities/base/nyc", "/v1/entities/base/none", "/v1/entities/base/neither", "/nothing", "/no"):
        client.get(path)
    for method in ("BREW", "WHEN"):
        assert client.request(method, "/v1/link").status_code == 405

    assert shown.more("requests_total", method="other", route="/v1/link", status="405") == 2
    route = "/v1/entities/{kb}/{entity_id:path}"
    assert shown.more("requests_total", method="GET", route=route, status="200") == 1
    assert shown.more("requests_total", method="GET", route=route, status="404") == 2
    assert shown.more("requests_total", method="GET", route="other", status="404") == 2
    assert shown.more("request_seconds_count", route=route) == 3
    assert shown.more("request_seconds_sum", route=route) > 0
    assert shown.now("requests_in_flight") == 1, "the one for the metrics"


def test_queues_have_their_depth(client: TestClient, shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mentions that wait for a batch, and look-ups that wait or run, are gauges that go up and down."""
    with ThreadPoolExecutor(8) as clients, monkeypatch.context() as patch:
        held = Held(client, patch)
        asked = [clients.submit(client.get, "/v1/entities/base/nyc") for _ in range(4)]
        asked.append(clients.submit(link, client, "first"))
        try:
            assert all(held.running.acquire(timeout=100) for _ in range(3))
            asked += [clients.submit(link, client, "second", "third") for _ in range(2)]
            wait_until(lambda: shown.now("queued_mentions", collection="base") == 4)
            wait_until(lambda: shown.now("queued_calls", collection="base", lane="look-ups") == 4)
            assert shown.now("requests_in_flight") == 8
        finally:
            held.may_go.set()
        for one in asked:
            one.result()

    assert shown.now("queued_mentions", collection="base") == 0
    wait_until(lambda: shown.now("queued_calls", collection="base", lane="look-ups") == 0)
    assert shown.now("queued_calls", collection="base", lane="texts") == 0
    assert shown.more("batch_requests_bucket", collection="base", le="2.0") == 2
    assert shown.more("batch_mentions_sum", collection="base") == 5


def test_the_documents_name_every_metric(client: TestClient) -> None:
    """docs/service.md has the names that /metrics shows, and no other."""
    link(client, "NYTimes")
    families = text_string_to_metric_families(client.get("/metrics").text)
    named = {f.name.removeprefix(PREFIX) + ("_total" if f.type == "counter" else "") for f in families}
    shown = {name for name in named if not name.endswith("_created")}  # the time of a series' first value
    table = DOCS.read_text(encoding="utf-8").partition("**Metrics**")[2].partition("**Traces**")[0]
    documented = {
        name for row in re.findall(r"^\|([^|]+)\|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }

    assert shown == documented


def test_what_waited_in_a_killed_worker_is_forgotten(tmp_path: Path) -> None:
    """Gauges of a worker that is gone are dropped; what it has counted stays in the sums."""
    for name in ("gauge_livesum_4194305.db", "gauge_livesum_1.db", "counter_4194305.db"):  # no process has this number
        (tmp_path / name).write_bytes(b"")
    forget_dead_workers(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["counter_4194305.db", "gauge_livesum_1.db"]
