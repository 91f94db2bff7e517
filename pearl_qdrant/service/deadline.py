"""The end of the time of a request, known to the thread that works for it: what nobody waits for any more, ends."""

from __future__ import annotations

import math
import time
from contextvars import ContextVar

from pearl_qdrant.service.errors import TimedOutError

_end: ContextVar[float] = ContextVar("pearl_qdrant_deadline", default=math.inf)


def set_time(seconds: float) -> None:
    """Give what runs in this context so many seconds from now on."""
    _end.set(time.monotonic() + seconds)


def check_time() -> None:
    """End work whose time is over; called in every loop that a request can make long.

    Raises:
        TimedOutError: If it is over. Its client has been answered already.
    """
    if time.monotonic() > _end.get():
        raise TimedOutError("The time of the request is over.")
