"""Ctrl-C and SIGTERM put off to a moment at which the work can be saved."""

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
    """Whether a signal has asked the work to stop, and which one."""

    number: int | None = None

    def __bool__(self) -> bool:
        return self.number is not None


@contextmanager
def deferred_stop() -> Iterator[StopRequest]:
    """Within the block a first Ctrl-C or SIGTERM is only noted; it takes effect at the end of the block.

    A second one takes effect at once. A signal that is ignored stays so. Handlers belong to the main thread: in
    another one nothing is put off.
    """
    stop = StopRequest()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    # None is a handler that was not set from Python and could not be put back.
    mine = [number for number in _SIGNALS if before[number] not in (signal.SIG_IGN, None)]
    if threading.current_thread() is not threading.main_thread():
        mine = []

    def restore() -> None:
        for number in mine:
            signal.signal(number, before[number])

    def note(number: int, _: object) -> None:
        stop.number = number
        restore()
        _log.warning("stopping after this step; once more, and it stops without saving")

    for number in mine:
        signal.signal(number, note)
    try:
        yield stop
    finally:
        restore()
    if stop.number is not None:
        signal.raise_signal(stop.number)
