"""A store from a folder or a URL."""

from __future__ import annotations

from pathlib import Path

from pearl_qdrant.store.protocol import Store


def is_url(location: str) -> bool:
    """Whether a store's location names a server."""
    return location.startswith(("http://", "https://"))


def open_store(location: str, *, api_key: str | None = None, patient: bool = True) -> Store:
    """Open the store at a folder (embedded) or a URL (server).

    Args:
        location: A folder, created when the first collection is, or http(s)://HOST:PORT.
        api_key: Sent to a URL only.
        patient: Whether to try a server again that does not answer.

    Raises:
        SettingsError: If the key would go over plain HTTP to another host.
    """
    if is_url(location):
        from pearl_qdrant.store.retry import RetryPolicy
        from pearl_qdrant.store.server import ServerStore

        retry = None if patient else RetryPolicy(tries=1)
        return ServerStore.connect(location, api_key=api_key, retry=retry)
    from pearl_qdrant.store.edge import EdgeStore

    return EdgeStore(Path(location).expanduser())
