"""Cross-origin access to the paths of reconciliation, as the specification demands; to no other path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi.middleware.cors import CORSMiddleware

from pearl_qdrant.service.settings import ServiceSettings
from pearl_qdrant.service.web.keys import NEEDS_NO_KEY

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PREFIX = "/reconcile/"
"""All paths of reconciliation start so."""


class CrossOrigin:
    """Middleware around all others: a browser asks before it sends a key, and reads errors as well.

    It also marks requests for a manifest: the specification leaves them open where a service has keys.
    """

    def __init__(self, app: ASGIApp, settings: ServiceSettings) -> None:
        self._app = app
        self._open = CORSMiddleware(
            app,
            allow_origins=settings.reconcile_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            expose_headers=("Retry-After", "X-Request-ID"),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await self._app(scope, receive, send)
            return
        if _is_for_manifest(scope):
            scope[NEEDS_NO_KEY] = True
        await self._open(scope, receive, send)


def _is_for_manifest(scope: Scope) -> bool:
    name = scope["path"][len(PREFIX) :]
    return scope["method"] == "GET" and bool(name) and "/" not in name and not scope["query_string"]
