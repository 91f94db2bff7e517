"""GET /metrics: for Prometheus."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from pearl_qdrant.service.web.answers import declared
from pearl_qdrant.service.web.dependencies import MetricsHere

router = APIRouter(tags=["health"])


@router.get("/metrics", response_class=PlainTextResponse, responses=declared())
async def metrics(measured: MetricsHere) -> PlainTextResponse:
    """Queues, batches, times and answers, of all workers, in Prometheus' text format."""
    return PlainTextResponse(await asyncio.to_thread(measured.text), media_type=CONTENT_TYPE_LATEST)
