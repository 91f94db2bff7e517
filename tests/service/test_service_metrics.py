"""Metrics: what /metrics shows after known requests."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from edge_cases import wait_until
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from pearl_qdrant.service.observing import Metrics, forget_dead_workers
from pearl_qdrant.service.queues import TimedEncoder

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
    """An id in a path is not a series of its own, nor is a path that nobody answers."""
    for path in ("/v1/entities/base/nyc", "/v1/entities/base/none", "/v1/entities/base/neither", "/nothing", "/no"):
        client.get(path)

    route = "/v1/entities/{kb}/{entity_id:path}"
    assert shown.more("requests_total", method="GET", route=route, status="200") == 1
    assert shown.more("requests_total", method="GET", route=route, status="404") == 2
    assert shown.more("requests_total", method="GET", route="other", status="404") == 2
    assert shown.more("request_seconds_count", route=route) == 3
    assert shown.more("request_seconds_sum", route=route) > 0
    assert shown.now("requests_in_flight") == 1, "the one for the metrics"


def test_methods_that_nobody_knows_are_one_series(client: TestClient, shown: Shown) -> None:
    """A client cannot make series without end by methods of its own."""
    for method in ("BREW", "WHEN"):
        assert client.request(method, "/v1/link").status_code == 405

    assert shown.more("requests_total", method="other", route="/v1/link", status="405") == 2


def test_queues_have_their_depth(client: TestClient, shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mentions that wait for a batch, and look-ups that wait or run, are gauges that go up and down."""
    linker = client.app.state.collections._handles["base"].linker  # type: ignore[attr-defined]
    link_batch, entity = linker.link_batch, linker.entity
    are_running, may_go = threading.Semaphore(0), threading.Event()

    def held(function: object) -> object:
        def call(*given: object, **named: object) -> object:
            are_running.release()
            may_go.wait()
            return function(*given, **named)  # type: ignore[operator]

        return call

    with ThreadPoolExecutor(8) as clients, monkeypatch.context() as patch:
        patch.setattr(linker, "link_batch", held(link_batch))
        patch.setattr(linker, "entity", held(entity))
        asked = [clients.submit(client.get, "/v1/entities/base/nyc") for _ in range(4)]
        asked.append(clients.submit(link, client, "first"))
        try:
            assert all(are_running.acquire(timeout=100) for _ in range(3))
            asked += [clients.submit(link, client, "second", "third") for _ in range(2)]
            wait_until(lambda: shown.now("queued_mentions", collection="base") == 4)
            wait_until(lambda: shown.now("queued_calls", collection="base", lane="look-ups") == 4)
            assert shown.now("requests_in_flight") == 8
        finally:
            may_go.set()
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


def test_an_encoder_that_fails_is_measured() -> None:
    """The time of a call counts also where it ends with an error."""
    seconds: list[float] = []

    class Broken:
        def encode(self, names: object) -> object:
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        TimedEncoder(Broken(), seconds.append).encode(["x"])  # type: ignore[arg-type]
    assert len(seconds) == 1


@pytest.fixture
def left_behind(tmp_path: Path) -> Iterator[Path]:
    """Files of counts of this process, and of one that is gone."""
    (tmp_path / "gauge_livesum_4194305.db").write_bytes(b"")  # no process has this number
    (tmp_path / "gauge_livesum_1.db").write_bytes(b"")
    (tmp_path / "counter_4194305.db").write_bytes(b"")
    return tmp_path


def test_what_waited_in_a_killed_worker_is_forgotten(left_behind: Path) -> None:
    """Gauges of a worker that is gone are dropped; what it has counted stays in the sums."""
    forget_dead_workers(left_behind)

    assert sorted(path.name for path in left_behind.iterdir()) == ["counter_4194305.db", "gauge_livesum_1.db"]


def test_each_service_counts_its_own() -> None:
    """Two services of one process have metrics of their own."""
    first, second = Metrics(), Metrics()
    first.in_flight.inc()

    assert f"{PREFIX}requests_in_flight 1.0" in first.text().decode()
    assert f"{PREFIX}requests_in_flight 0.0" in second.text().decode()
