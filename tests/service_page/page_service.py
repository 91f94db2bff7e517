"""The service on a port, for browsers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pearl_qdrant.service import ServiceSettings, create_app
from pearl_qdrant.service.app import server_config


@contextmanager
def running(settings: ServiceSettings) -> Iterator[str]:
    """The service on a port of its own, in a thread; yields its address when it is ready."""
    import httpx
    import uvicorn

    settings = settings.model_copy(update={"port": 0})
    server = uvicorn.Server(server_config(settings, lambda: create_app(settings)))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the service did not start"
            time.sleep(0.02)
        address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        while httpx.get(f"{address}/health/ready").status_code != 200:
            time.sleep(0.05)
        yield f"{address}/"
    finally:
        server.should_exit = True
        thread.join()
