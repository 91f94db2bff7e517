"""Long work goes on in pieces. Between two of them, whoever runs it may let others go first, or end it.

with_pauses(others_first)     in a context of its own: what is called at each pause
pause()                       at the end of a piece, in every loop that a request can make long
pausing(items)                the same, before each item
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

_on_pause: ContextVar[Callable[[], None] | None] = ContextVar("pearl_qdrant_on_pause", default=None)


def with_pauses(on_pause: Callable[[], None]) -> None:
    """Call this at each pause of what runs in this context from now on; it may wait, or raise to end the work."""
    _on_pause.set(on_pause)


def pause() -> None:
    """A piece of the work is done."""
    if (on_pause := _on_pause.get()) is not None:
        on_pause()


def pausing(items: Iterable[T]) -> Iterator[T]:
    """The items, with a pause before each."""
    for one in items:
        pause()
        yield one
