"""Spans of OpenTelemetry. FastAPI makes those of requests itself; unless an SDK is configured they cost little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.trace import Link as SpanLink
from opentelemetry.trace import SpanContext as SpanContext
from opentelemetry.trace import StatusCode


@contextmanager
def span(name: str, asked_by: Sequence[SpanContext] = (), **attributes: str | int) -> Iterator[None]:
    """A span around a block. Of an error it has the type alone, since messages may have what people type.

    Args:
        name: Of the span.
        asked_by: Spans of the requests that it works for; it links to them, since it has no single parent.
        attributes: What is known of it; `pearl_qdrant.` is put before each name.
    """
    links = [SpanLink(one) for one in {one.span_id: one for one in asked_by if one.is_valid}.values()]
    named = {f"pearl_qdrant.{key}": value for key, value in attributes.items()}
    with trace.get_tracer("pearl_qdrant.service").start_as_current_span(
        name, attributes=named, links=links, record_exception=False, set_status_on_exception=False
    ) as made:
        try:
            yield
        except Exception as error:
            made.set_attribute("error.type", type(error).__name__)
            made.set_status(StatusCode.ERROR)
            raise


def here() -> SpanContext:
    """The span of the request that is being answered."""
    return trace.get_current_span().get_span_context()


def describe_request(request_id: str, *, has_query: bool) -> None:
    """Give the span of a request its id, and hide the query of its URL, which has what people type."""
    current = trace.get_current_span()
    if current.is_recording():
        current.set_attribute("pearl_qdrant.request_id", request_id)
        if has_query:
            current.set_attribute("url.query", "REDACTED")
