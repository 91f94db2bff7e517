"""A store from a folder or a URL."""

from __future__ import annotations

from pathlib import Path

from pearl_qdrant.errors import SettingsError
from pearl_qdrant.settings import REQUEST_TIMEOUT_S, ServerAccess, check_store_location, is_url
from pearl_qdrant.store.protocol import Store

__all__ = ["is_url", "open_store"]


def open_store(
    location: str,
    *,
    access: ServerAccess | None = None,
    api_key: str | None = None,
    wait_s: float | None = None,
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> Store:
    """Open the store at a folder (embedded) or a URL (server).

    Args:
        location: A folder, created when the first collection is, or http(s)://HOST:PORT.
        access: How a server is reached; nothing of it is read from the environment here.
        api_key: In place of that of `access`; sent to a URL only.
        wait_s: How long to wait for a server that does not answer, in seconds, with a warning in the log every 30;
            for loads. None: a few seconds where nothing listens, two minutes where it is busy. 0: not at all.
        timeout_s: Of one request to a server, in seconds.

    Raises:
        SettingsError: If the location is empty, a URL of another kind or a server without http://, or if the key would
            go over plain HTTP to another host.
    """
    check_store_location(location)
    if is_url(location):
        from pearl_qdrant.store.retry import RetryPolicy
        from pearl_qdrant.store.server import ServerStore

        retry = RetryPolicy() if wait_s is None else RetryPolicy.waiting(wait_s)
        access = access or ServerAccess()
        return ServerStore.connect(
            location,
            api_key=api_key or access.api_key,
            retry=retry,
            timeout=timeout_s,
            allow_plain_http=access.allow_plain_http,
            ca_file=access.ca_file,
            compress=access.compress,
        )
    from pearl_qdrant.store.edge import EdgeStore

    try:
        return EdgeStore(Path(location).expanduser())
    except RuntimeError as error:  # ~ of a user who is not there
        raise SettingsError(f"The store's location '{location}' names no folder: {error}") from error
