"""Spans of OpenTelemetry. FastAPI makes those of requests itself; without a configured SDK they cost nothing."""

from __future__ import annotations

from contextlib import AbstractContextManager

from opentelemetry import trace


def span(name: str, **attributes: str | int) -> AbstractContextManager[trace.Span]:
    """A span around a block."""
    tracer = trace.get_tracer("pearl_qdrant.service")
    return tracer.start_as_current_span(name, attributes={f"pearl_qdrant.{key}": v for key, v in attributes.items()})
