"""The metrics of the service, in Prometheus' text format."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from pearl_qdrant.records import Link

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names the folder in which several workers share their counts; prometheus-client reads it."""

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_LIVE = re.compile(r"gauge_live\w+_(\d+)\.db")

LINKED = "linked"
"""The reason in `answers` of a mention that has an entity."""


class Metrics:
    """What the service counts and measures.

    Attributes:
        requests: Answered requests by method, route and status.
        seconds: Time from the first byte of a request to its answer, by route.
        in_flight: Requests that are being answered.
        queued_mentions: Mentions that wait for a batch, by collection.
        queued_calls: Texts and look-ups that wait or run, by collection and lane.
        batch_mentions: Mentions of a batch, by collection.
        batch_requests: Requests of a batch, by collection.
        encode_seconds: Encoding a batch of names.
        search_seconds: One search of a batch in the store, by collection.
        batch_seconds: Linking a batch: encoding, searching, scoring and deciding, by collection.
        answers: Linked mentions by collection and reason: "linked", or why they are NIL.
        reloads: Newer states that were opened, by collection.
    """

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"pearl_qdrant_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"pearl_qdrant_{name}", text, labels, registry=registry, multiprocess_mode="livesum")

        def histogram(name: str, text: str, *labels: str, buckets: Sequence[float] = _SECONDS) -> Histogram:
            return Histogram(f"pearl_qdrant_{name}", text, labels, registry=registry, buckets=buckets)

        self.requests = counter("requests", "Answered requests.", "method", "route", "status")
        self.seconds = histogram("request_seconds", "Time of a request.", "route")
        self.in_flight = gauge("requests_in_flight", "Requests that are being answered.")
        self.queued_mentions = gauge("queued_mentions", "Mentions that wait for a batch.", "collection")
        self.queued_calls = gauge("queued_calls", "Texts and look-ups that wait or run.", "collection", "lane")
        self.batch_mentions = histogram("batch_mentions", "Mentions of a batch.", "collection", buckets=_COUNTS)
        self.batch_requests = histogram("batch_requests", "Requests of a batch.", "collection", buckets=_COUNTS)
        self.encode_seconds = histogram("encode_seconds", "Encoding a batch of names.")
        self.search_seconds = histogram("search_seconds", "One search of a batch in the store.", "collection")
        self.batch_seconds = histogram("batch_seconds", "Linking a batch, all of it.", "collection")
        self.answers = counter("answers", "Linked mentions by reason.", "collection", "reason")
        self.reloads = counter("reloads", "Newer states of a collection that were opened.", "collection")

    def count_answers(self, collection: str, links: Sequence[Link]) -> None:
        """Count the reasons of some links."""
        reasons: dict[str, int] = {}
        for link in links:
            reason = LINKED if link.nil_reason is None else link.nil_reason.value
            reasons[reason] = reasons.get(reason, 0) + 1
        for reason, n in reasons.items():
            self.answers.labels(collection, reason).inc(n)

    def text(self) -> bytes:
        """All metrics, of all workers, in Prometheus' text format."""
        folder = os.environ.get(SHARED_FOLDER)
        if not folder:
            return generate_latest(self._registry)
        forget_dead_workers(Path(folder))
        shared = CollectorRegistry()
        MultiProcessCollector(shared, path=folder)  # type: ignore[no-untyped-call]
        return generate_latest(shared)


def forget_dead_workers(folder: Path) -> None:
    """Leave what waits in workers that were killed out of the sums."""
    for path in folder.glob("gauge_live*.db"):
        found = _LIVE.fullmatch(path.name)
        if found and not _is_alive(int(found[1])):
            mark_process_dead(int(found[1]), path=str(folder))  # type: ignore[no-untyped-call]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
