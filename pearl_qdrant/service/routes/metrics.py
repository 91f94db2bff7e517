"""GET /metrics: for Prometheus."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST

from pearl_qdrant.service.web.answers import declared
from pearl_qdrant.service.web.dependencies import MetricsHere

router = APIRouter(tags=["health"])


_TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}


@router.get("/metrics", response_class=Response, responses={**_TEXT, **declared()})
async def metrics(measured: MetricsHere) -> Response:
    """Queues, batches, times and answers, of all workers, in Prometheus' text format."""
    return Response(await asyncio.to_thread(measured.text), media_type=CONTENT_TYPE_LATEST)
