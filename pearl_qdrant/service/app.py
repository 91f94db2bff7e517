"""`create_app` puts the service together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from pearl_qdrant._version import __version__
from pearl_qdrant.service.linkers.registry import Collections
from pearl_qdrant.service.observing.metrics import Metrics
from pearl_qdrant.service.page import routes as page
from pearl_qdrant.service.page.files import mount_files
from pearl_qdrant.service.reconcile import routes as reconciliation
from pearl_qdrant.service.reconcile.cors import CrossOrigin
from pearl_qdrant.service.routes import collections, docs, entities, health, ledger, link, metrics, search, texts
from pearl_qdrant.service.settings import ServiceSettings, check_settings
from pearl_qdrant.service.web.answers import add_error_handlers
from pearl_qdrant.service.web.gate import Gate
from pearl_qdrant.service.web.schema import complete_schema

ROUTERS = (
    search.router,  # asked at every letter, and found first
    health.router,
    link.router,
    texts.router,
    entities.router,
    collections.router,
    ledger.router,
    metrics.router,
    docs.router,
    page.router,
    reconciliation.router,
)
"""The routers of the service. Reconciliation and the page add theirs here."""


def create_app(settings: ServiceSettings | None = None) -> FastAPI:
    """Make the ASGI application.

    Nothing is opened before it starts; then all collections are opened in the background.

    Args:
        settings: By default those of `ServiceSettings`.

    Raises:
        OptionError: If settings exclude each other; see `check_settings`.
    """
    settings = settings or ServiceSettings()
    check_settings(settings)
    measured = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        opened = Collections(settings, measured)
        app.state.collections = opened
        opened.start()
        try:
            yield
        finally:
            await opened.close()

    app = FastAPI(
        title="pearl-qdrant",
        version=__version__,
        description="Links mentions to entities of a knowledge base, with probabilities and NIL.",
        lifespan=lifespan,
        docs_url=None,  # Swagger's page loads its scripts from another host; `routes.docs` has one that does not
        redoc_url=None,
    )
    app.state.settings = settings
    app.state.metrics = measured
    app.state.routers = ROUTERS
    for router in ROUTERS:
        app.include_router(router)
    mount_files(app)
    add_error_handlers(app)
    app.add_middleware(Gate, settings=settings, metrics=measured)
    app.add_middleware(CrossOrigin, settings=settings)
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            limits = {"/v1/search": search.LIMITS, "/v1/map": page.LIMITS, **reconciliation.LIMITS}
            app.openapi_schema = complete_schema(plain(), settings, limits)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
    return app
