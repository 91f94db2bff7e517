"""`serve` runs the service until it is stopped."""

from __future__ import annotations

import uvicorn

from pearl_qdrant.service.app import create_app
from pearl_qdrant.service.settings import ServiceSettings


def serve(settings: ServiceSettings | None = None) -> None:
    """Run the service until SIGTERM or Ctrl-C; what was accepted by then is answered.

    Args:
        settings: By default those of `ServiceSettings`.
    """
    settings = settings or ServiceSettings()
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        timeout_graceful_shutdown=settings.stop_s,
        access_log=False,
        server_header=False,
    )
