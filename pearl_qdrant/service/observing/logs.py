"""Logs as JSON lines, each with the id of its request."""

from __future__ import annotations

import contextvars
import json
import logging
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Literal

import orjson

LogFormat = Literal["json", "text"]

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


class Lines(logging.Formatter):
    """The same for people."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        further = " ".join(f"{name}={value}" for name, value in getattr(record, FACTS, {}).items())
        return f"{super().formatMessage(record)} {further}".rstrip()


def start_logging(log_format: LogFormat, *, verbose: bool = False) -> None:
    """Log to stderr in this format, in place of all handlers that the root logger has."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else Lines())
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True)
    for noisy in ("httpx", "httpx2", "httpcore", "httpcore2", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    # The service writes its own line for each request, without the query of the URL, which has what people type.
    logging.getLogger("uvicorn.access").handlers.clear()
    logging.getLogger("uvicorn.access").propagate = False
