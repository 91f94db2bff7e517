"""Defer Ctrl-C and SIGTERM to a moment at which the work can be saved."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class StopRequest:
    """A signal that requested a stop, or none.

    Attributes:
        number: Number of the signal; None if there was none.
    """

    number: int | None = None

    def __bool__(self) -> bool:
        return self.number is not None


@contextmanager
def deferred_stop() -> Iterator[StopRequest]:
    """Record a first Ctrl-C or SIGTERM within the block; it takes effect at the end of the block.

    A second signal takes effect at once. An ignored signal stays ignored. Only the main thread can set handlers: in
    another thread nothing is deferred.
    """
    stop = StopRequest()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    # None is a handler that was not set from Python, and that Python cannot restore.
    deferred = [number for number in _SIGNALS if before[number] not in (signal.SIG_IGN, None)]
    if threading.current_thread() is not threading.main_thread():
        deferred = []

    def restore() -> None:
        for number in deferred:
            signal.signal(number, before[number])

    def note(number: int, _: object) -> None:
        stop.number = number
        restore()
        _log.warning("stopping after this step; a second signal stops without saving")

    for number in deferred:
        signal.signal(number, note)
    try:
        yield stop
    finally:
        restore()
    if stop.number is not None:
        signal.raise_signal(stop.number)
