"""An encoder and a store that measure how long they take, and end what has no time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from pearl_qdrant.encoder.protocol import Encoded, Encoder, ModelInfo
from pearl_qdrant.service.deadline import check_time
from pearl_qdrant.store.protocol import Collection, Store

OnSeconds = Callable[[float], None]
"""Takes how long something took, in seconds."""


class TimedEncoder:
    """An encoder that says how long each call took. Raises `TimedOutError` for a request whose time is over."""

    def __init__(self, encoder: Encoder, on_seconds: OnSeconds) -> None:
        self._encoder = encoder
        self._on_seconds = on_seconds

    @property
    def info(self) -> ModelInfo:
        return self._encoder.info

    def encode(self, names: Sequence[str]) -> Encoded:
        check_time()
        start = time.perf_counter()
        try:
            return self._encoder.encode(names)
        finally:
            self._on_seconds(time.perf_counter() - start)


class _Searches:
    """A collection whose searches are measured, and end as `TimedEncoder` does; all else is the collection's own."""

    def __init__(self, collection: Collection, on_seconds: OnSeconds) -> None:
        self._collection = collection
        self._on_seconds = on_seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._collection, name)

    def search(self, *given: Any, **named: Any) -> Any:
        return self._timed(self._collection.search, *given, **named)

    def search_hybrid(self, *given: Any, **named: Any) -> Any:
        return self._timed(self._collection.search_hybrid, *given, **named)

    def _timed(self, search: Callable[..., Any], *given: Any, **named: Any) -> Any:
        check_time()
        start = time.perf_counter()
        try:
            return search(*given, **named)
        finally:
            self._on_seconds(time.perf_counter() - start)


class _Store:
    """A store whose collections are measured."""

    def __init__(self, store: Store, on_seconds: OnSeconds) -> None:
        self._store = store
        self._on_seconds = on_seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def open(self, name: str, *, read_only: bool = False) -> Collection:
        return cast("Collection", _Searches(self._store.open(name, read_only=read_only), self._on_seconds))


def timed_store(store: Store, on_seconds: OnSeconds) -> Store:
    """A store that says how long each search of its collections took."""
    return cast("Store", _Store(store, on_seconds))
