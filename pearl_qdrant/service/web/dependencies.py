"""What routers ask for: the collections, the settings, the metrics."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from pearl_qdrant.service.linkers.registry import Collections
from pearl_qdrant.service.observing.metrics import Metrics
from pearl_qdrant.service.settings import ServiceSettings


# Coroutines, since FastAPI calls plain functions in a thread, which takes longer than they do.
async def _collections(request: Request) -> Collections:
    return cast("Collections", request.app.state.collections)


async def _settings(request: Request) -> ServiceSettings:
    return cast("ServiceSettings", request.app.state.settings)


async def _metrics(request: Request) -> Metrics:
    return cast("Metrics", request.app.state.metrics)


CollectionsHere = Annotated[Collections, Depends(_collections)]
"""The collections of the service."""

SettingsHere = Annotated[ServiceSettings, Depends(_settings)]
"""The settings of the service."""

MetricsHere = Annotated[Metrics, Depends(_metrics)]
"""The metrics of the service."""
