"""The service on a port, for browsers, and what tests do with its page."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pearl_qdrant.service import ServiceSettings, create_app
from pearl_qdrant.service.app import server_config

KEY = "a-key-of-the-tests-0123456789"
WAIT_MS = 120_000
"""Bounds a hang; nothing takes that long."""

IN_A_BROWSER = [
    pytest.mark.slow,
    # Playwright's own event loop and pipes are closed by the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
"""Marks of the tests in a browser."""


def link(page: Any, mention: str) -> None:
    """Type a mention and wait for its answer."""
    page.fill("#mention", mention)
    page.press("#mention", "Enter")
    page.wait_for_selector(f"#mention-result .verdict:has-text('{mention}')")


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
