"""`create_app` puts the service together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from pearl_qdrant._version import __version__
from pearl_qdrant.service.linkers.registry import Collections
from pearl_qdrant.service.routes import collections, entities, health, link
from pearl_qdrant.service.settings import ServiceSettings
from pearl_qdrant.service.web.answers import add_error_handlers

ROUTERS = (health.router, link.router, entities.router, collections.router)
"""The routers of the service. Reconciliation and the page add theirs here."""


def create_app(settings: ServiceSettings | None = None) -> FastAPI:
    """Make the ASGI application.

    Nothing is opened before it starts; then all collections are opened in the background.

    Args:
        settings: By default those of `ServiceSettings`.
    """
    settings = settings or ServiceSettings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        opened = Collections(settings)
        app.state.collections = opened
        opening = asyncio.create_task(opened.problems())
        try:
            yield
        finally:
            opening.cancel()
            await opened.close()

    app = FastAPI(
        title="pearl-qdrant",
        version=__version__,
        description="Links mentions to entities of a knowledge base, with probabilities and NIL.",
        lifespan=lifespan,
        docs_url=None,  # Swagger's page loads its scripts from another host
        redoc_url=None,
    )
    app.state.settings = settings
    for router in ROUTERS:
        app.include_router(router)
    add_error_handlers(app)
    return app
