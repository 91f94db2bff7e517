"""Metrics, logs and traces of the service."""

from __future__ import annotations

import contextvars
import json
import logging
import os
import re
import sys
from collections import Counter as Counted
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from opentelemetry import trace
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from pearl_qdrant.records import NilReason

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names the folder in which several workers share their counts; prometheus-client reads it."""

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_LIVE = re.compile(r"gauge_live\w+_(\d+)\.db")

LINKED = "linked"  # The reason in `answers` of a mention that has an entity


class Metrics:
    """What the service counts and measures; each says of itself what it is."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()

        common: Any = {"namespace": "pearl_qdrant", "registry": registry}
        counter: Callable[..., Counter] = partial(Counter, **common)
        gauge: Callable[..., Gauge] = partial(Gauge, multiprocess_mode="livesum", **common)
        histogram: Callable[..., Histogram] = partial(Histogram, **{"buckets": _SECONDS, **common})

        self.requests = counter("requests", "Answered requests.", ["method", "route", "status"])
        self.refused = counter("refused_connections", "Connections that were refused or ended.", ["reason"])
        self.seconds = histogram("request_seconds", "Time of a request.", ["route"])
        self.in_flight = gauge("requests_in_flight", "Requests that are being answered.")
        self.queued_mentions = gauge("queued_mentions", "Mentions that wait for a batch.", ["collection"])
        self.queued_calls = gauge("queued_calls", "Texts and look-ups that wait or run.", ["collection", "lane"])
        self.batch_mentions = histogram("batch_mentions", "Mentions of a batch.", ["collection"], buckets=_COUNTS)
        self.batch_requests = histogram("batch_requests", "Requests of a batch.", ["collection"], buckets=_COUNTS)
        self.encode_seconds = histogram("encode_seconds", "Encoding a batch of names.")
        self.search_seconds = histogram("search_seconds", "One search of a batch in the store.", ["collection"])
        self.batch_seconds = histogram("batch_seconds", "Linking a batch, all of it.", ["collection"])
        self.answers = counter("answers", "Linked mentions by reason.", ["collection", "reason"])
        self.reloads = counter("reloads", "Newer states of a collection that were opened.", ["collection"])

    def count_answers(self, collection: str, reasons: Sequence[NilReason | None]) -> None:
        for reason, n in Counted(reasons).items():
            self.answers.labels(collection, LINKED if reason is None else reason.value).inc(n)

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
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


request_id: contextvars.ContextVar[str | None] = contextvars.ContextVar("pearl_qdrant_request_id", default=None)
"""The id of the request that is being answered."""

FACTS = "pearl_qdrant_facts"
"""The attribute of a log record with further fields: ``log.info("...", extra={FACTS: {...}})``."""


def facts(**fields: object) -> Mapping[str, Any]:
    """The `extra` of a log call, for further fields of its line."""
    return {FACTS: fields}


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object: time, level, logger, message, request_id, further facts, and error."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        line: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (current := request_id.get()) is not None:
            line["request_id"] = current
        line.update(getattr(record, FACTS, {}))
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, default=str).decode()
        except TypeError:  # a number over 64 bits, or half of a character
            return json.dumps(line, default=str)


def start_logging() -> None:
    """Log JSON lines to stderr, in place of all handlers that the root logger has."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for noisy in ("httpx", "httpx2", "httpcore", "httpcore2", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    # The service writes its own line for each request, without the query of the URL, which has what people type.
    logging.getLogger("uvicorn.access").handlers.clear()
    logging.getLogger("uvicorn.access").propagate = False


def describe_request(request_id: str, *, has_query: bool) -> None:
    """Give the span of a request its id, and hide the query of its URL, which has what people type."""
    current = trace.get_current_span()
    if current.is_recording():
        current.set_attribute("pearl_qdrant.request_id", request_id)
        if has_query:
            current.set_attribute("url.query", "REDACTED")
