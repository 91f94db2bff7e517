"""Open a store from a folder or a URL."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeGuard

from pearl_qdrant.errors import SettingsError
from pearl_qdrant.settings import REQUEST_TIMEOUT_S, ServerAccess, check_store_location, is_url, store_location
from pearl_qdrant.store.protocol import Store

StoreLike = Store | str | os.PathLike[str] | Sequence[str] | None
"""An open store, a folder, a URL, the URLs of several nodes, or None for the store that the environment names."""


def open_store(
    location: str | os.PathLike[str] | Sequence[str],
    *,
    access: ServerAccess | None = None,
    api_key: str | None = None,
    wait_s: float | None = None,
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> Store:
    """Open the store at a folder (embedded) or a URL (server).

    Args:
        location: A folder, created with its first collection, or http(s)://HOST:PORT; several nodes of a cluster with
            commas between, or as a list: where one is away, requests go to the next.
        access, api_key: Key and TLS settings of a server, and a key in their place. No environment is read here.
        wait_s: How long to wait for a server that does not answer, in seconds, with a warning in the log every 30;
            for loads. None: a few seconds if nothing listens, two minutes if it is busy. 0: do not wait.
        timeout_s: Time-out of one request to a server, in seconds.

    Raises:
        SettingsError: If the location is empty, a URL of another kind or a server without http://, or if the key would
            go over plain HTTP to another host.
    """
    location = _joined(location)
    check_store_location(location)
    if is_url(location):
        from pearl_qdrant.store.server.errors import RetryPolicy
        from pearl_qdrant.store.server.store import ServerStore

        retry = RetryPolicy() if wait_s is None else RetryPolicy.waiting(wait_s)
        access = access or ServerAccess()
        if api_key:
            access = replace(access, api_key=api_key, api_key_file=None)
        return ServerStore(location, access, retry=retry, timeout=timeout_s)
    from pearl_qdrant.store.edge.store import EdgeStore

    try:
        return EdgeStore(Path(location).expanduser())
    except RuntimeError as error:  # ~ of an unknown user
        raise SettingsError(f"The store's location '{location}' is not a folder: {error}", option="store") from error


def open_default_store(store: StoreLike = None, *, api_key: str | None = None) -> Store:
    """Open a store, unless it is open; what is None is read from the environment. Arguments and errors as for
    `open_store`.
    """
    if _is_open(store):
        return store
    return open_store(location_of(store or None), access=ServerAccess.from_environment(), api_key=api_key)


def _is_open(store: StoreLike) -> TypeGuard[Store]:
    return store is not None and not isinstance(store, (str, os.PathLike, Sequence))


def location_of(store: StoreLike) -> str:
    """Return a store's folder or URL; None means PEARL_QDRANT_STORE, else QDRANT_URL, else the user's data folder."""
    if store is None:
        return store_location()
    if isinstance(store, os.PathLike):
        return os.fspath(store)
    return _joined(store) if isinstance(store, (str, Sequence)) else store.location


def _joined(location: str | os.PathLike[str] | Sequence[str]) -> str:
    return os.fspath(location) if isinstance(location, (str, os.PathLike)) else ",".join(location)


@contextmanager
def use_store(store: StoreLike, *, wait_s: float | None = None) -> Iterator[Store]:
    """Return an open store, closed afterwards if it was opened here. A server's key is read from the environment.

    Raises:
        SettingsError: As `open_store`.
    """
    if _is_open(store):
        yield store
        return
    opened = open_store(location_of(store), access=ServerAccess.from_environment(), wait_s=wait_s)
    try:
        yield opened
    finally:
        opened.close()
