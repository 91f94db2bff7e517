"""`create_app` puts the service together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from pearl_qdrant._version import __version__
from pearl_qdrant.service import linking, lookups
from pearl_qdrant.service.answers import add_error_handlers
from pearl_qdrant.service.collections import Collections
from pearl_qdrant.service.gate import PUBLIC, Gate
from pearl_qdrant.service.observing import Metrics
from pearl_qdrant.service.page import routes as page
from pearl_qdrant.service.reconcile import router as reconciliation
from pearl_qdrant.service.reconcile.properties import Catalogues
from pearl_qdrant.service.settings import ServiceSettings, check_settings, show_limits

ROUTERS = (
    lookups.router,  # type-ahead is asked at every letter, and found first
    lookups.health,
    linking.router,
    linking.texts,
    linking.learning,
    page.router,
    reconciliation.router,
)

_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


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
        opened = app.state.collections = Collections(settings, measured)
        app.state.catalogues, app.state.maps = Catalogues(), {}
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
        docs_url=None,  # Swagger's page loads its scripts from another host; `lookups.docs` has one that does not
        redoc_url=None,
    )
    app.state.settings = settings
    app.state.metrics = measured
    for router in ROUTERS:
        app.include_router(router)
    page.mount_files(app)
    add_error_handlers(app, ROUTERS)
    app.add_middleware(Gate, settings=settings, metrics=measured)
    app.add_middleware(reconciliation.CrossOrigin, settings=settings)
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(plain(), settings)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _completed(schema: dict[str, Any], settings: ServiceSettings) -> dict[str, Any]:
    """The OpenAPI schema with the limits of the settings, and with keys if the service wants them."""
    models = schema["components"]["schemas"]
    for body in linking.BODIES:
        show_limits(models[body.__name__]["properties"], settings)
    for operation in (operation for operations in schema["paths"].values() for operation in operations.values()):
        asked = [one for one in operation.get("parameters", ()) if one["in"] == "query" and one["name"] != "collection"]
        show_limits({one["name"]: one["schema"] for one in asked}, settings)
    if settings.api_keys:
        schema["components"]["securitySchemes"] = _SCHEMES
        closed = [operations for path, operations in schema["paths"].items() if path not in PUBLIC]
        for operation in (operation for operations in closed for operation in operations.values()):
            operation["security"] = [*({name: []} for name in _SCHEMES), *operation.get("security", ())]
    return schema
