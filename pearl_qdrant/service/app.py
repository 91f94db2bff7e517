"""The service: `create_app` puts it together, `serve` runs it in one process or in several."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from functools import cache, partial
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.supervisors import Multiprocess

from pearl_qdrant._version import __version__
from pearl_qdrant.errors import CollectionNotFoundError, PearlQdrantError, StoreUnavailableError
from pearl_qdrant.service import linking, lookups, page
from pearl_qdrant.service.answers import add_error_handlers
from pearl_qdrant.service.collections import Collections, open_served_store
from pearl_qdrant.service.connections import METRICS, guarded_config
from pearl_qdrant.service.gate import PUBLIC, Gate
from pearl_qdrant.service.observing import SHARED_FOLDER, Metrics, facts, start_logging
from pearl_qdrant.service.reconcile import router as reconciliation
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
    """Make the ASGI application. When it starts, all collections are opened in the background. Raises OptionError if
    settings exclude each other; see `check_settings`.
    """
    settings = settings or ServiceSettings()
    check_settings(settings)
    measured = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, object]]:
        opened = app.state.collections = Collections(settings, measured)

        opened.start()
        try:
            yield {METRICS: measured}
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
    app.openapi = cache(lambda: _completed(plain(), settings))  # type: ignore[method-assign]
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


log = logging.getLogger(__name__)

_LOCAL = ("127.0.0.1", "::1", "localhost")


_STOPPED = (0, -signal.SIGTERM, -signal.SIGINT)  # Exit codes of a worker that was stopped


class ServeError(PearlQdrantError):
    """The service cannot start."""


def serve(settings: ServiceSettings | None = None) -> None:
    """Run the service until SIGTERM or Ctrl-C; what was accepted by then is answered. Logging is configured for the
    whole process. Raises OptionError if settings exclude each other; CollectionNotFoundError if a collection that is to
    be served does not exist; ServeError if the address is in use, or the service ends with an error.
    """
    settings = settings or ServiceSettings()
    check_settings(settings)
    start_logging()
    _check_collections(settings)
    if settings.host not in _LOCAL and not settings.api_keys:
        log.warning("other machines can reach the service on %s, and no API key is set", settings.host)
    config = server_config(settings, partial(make_app, settings))
    try:
        if settings.workers == 1:
            server = uvicorn.Server(config)
            server.run()
            is_started = server.started
        else:
            is_started = _run_workers(config, settings)
    except SystemExit as error:
        raise ServeError(f"The service ended with status {error.code}; its log has the reason.") from error
    except KeyboardInterrupt:
        return
    if not is_started:
        raise ServeError("The service could not start; its log has the reason.")


def server_config(settings: ServiceSettings, make: Callable[[], FastAPI]) -> uvicorn.Config:
    """How uvicorn runs the service; `make` makes the application."""
    return guarded_config(
        make,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        timeout_graceful_shutdown=_STOP_S,
        timeout_worker_healthcheck=_WORKER_ANSWERS_S,
    )


_STOP_S = 30  # Seconds that a stop gives to requests that are being answered

_WORKER_ANSWERS_S = 60
"""Seconds after which a worker that does not answer its parent is replaced. A search holds the interpreter only for
milliseconds, but a machine may be busy."""


def make_app(settings: ServiceSettings) -> FastAPI:
    """The application of one process, which logs."""
    start_logging()
    app = create_app(settings)
    sys.setswitchinterval(_SWITCH_S)
    app.openapi()  # made now: it takes long enough to be noticed by those who wait
    # What was imported stays for good: a collection of garbage need not look at it again, which stops the event loop.
    gc.collect()
    gc.freeze()
    return app


_SWITCH_S = 0.0005
"""Seconds after which a thread that works gives the interpreter to one that waits; Python has 0.005. The event loop
waits so long at each step of a request: with 32 clients that sent the heaviest bodies, `/health/live` took 70 to 140 ms
(p99) in place of 220 to 310, in turns on a busy machine."""


def _check_collections(settings: ServiceSettings) -> None:
    """Refuse names that no collection has; where the store does not answer, the service waits for it. Raises
    CollectionNotFoundError: it names what there is.
    """
    if not settings.collections:
        return
    try:
        with closing(open_served_store(settings)) as store:
            existing = store.collections()
    except StoreUnavailableError as error:
        log.warning("%s", error)
        return
    for name in settings.collections:
        if name not in existing:
            raise CollectionNotFoundError(name, existing)


def _run_workers(config: uvicorn.Config, settings: ServiceSettings) -> bool:
    """Run several processes that accept from one socket; one that dies is replaced."""
    with tempfile.TemporaryDirectory(prefix="pearl-qdrant-metrics-", ignore_cleanup_errors=True) as folder:
        os.environ[SHARED_FOLDER] = folder  # in which the workers share their counts
        try:
            with closing(config.bind_socket()) as socket:
                port = socket.getsockname()[1]
                log.info("listening", extra=facts(host=settings.host, port=port, workers=settings.workers))
                supervisor = Multiprocess(config, sockets=[socket])
                supervisor.run()
        finally:
            del os.environ[SHARED_FOLDER]
    return all(one.exitcode in _STOPPED for one in supervisor.processes)
