"""Run a generator in its own thread, so that it works at the same time as its consumer."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Generator, Iterable
from typing import TypeVar, cast

T = TypeVar("T")

_END = object()
_POLL_S = 0.02


class _Failure:
    """An exception on its way to the consumer."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Consumer:
    """Lives as long as the consumer's side of a generator. Ctrl-C may end that side before it sets `stopped`."""


def overlap(items: Iterable[T], ahead: int) -> Generator[T, None, None]:
    """The same items, produced in another thread, at most `ahead` of the consumer.

    An error of the producer is raised here, in place of its next item. If the consumer stops early, the producer stops
    at its next item, and this function waits for it.
    """
    # Not `queue.Queue`: Ctrl-C between its lines leaves its lock taken, and the producer waits forever.
    handed: queue.SimpleQueue[object] = queue.SimpleQueue()
    stopped = threading.Event()
    consumer = _Consumer()
    alive = weakref.ref(consumer)

    def offer(item: object) -> bool:
        """Hand an item over; returns whether the consumer wants more."""
        while handed.qsize() >= ahead:
            if stopped.wait(_POLL_S) or alive() is None:
                return False
        handed.put(item)
        return not stopped.is_set()

    def produce() -> None:
        iterator = iter(items)
        try:
            for item in iterator:
                if not offer(item):
                    return
            offer(_END)
        except BaseException as error:  # noqa: BLE001 - it is raised again in the consumer
            offer(_Failure(error))
        finally:
            # An unfinished generator closes its files and threads here, in its own thread.
            close = getattr(iterator, "close", None)
            if close is not None:
                close()

    thread = threading.Thread(target=produce, name="overlap", daemon=True)
    thread.start()
    try:
        while (item := handed.get()) is not _END:
            if isinstance(item, _Failure):
                raise item.error
            yield cast(T, item)
    finally:
        stopped.set()
        thread.join()
