"""The open or closed state of a linker: a use after `close`, or interrupted by it, raises one clear error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from pearl_qdrant.errors import LinkerClosedError

T = TypeVar("T")


class Lifetime:
    """Guards the uses of an object that another thread may close meanwhile.

    There is no lock: a use that runs while another thread closes may finish, or may fail somewhere in the store. In
    the second case the guard replaces the store's error with `LinkerClosedError`.

    Args:
        names: Names of the open collections, for the error.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._is_closed = False

    def end(self) -> bool:
        """Mark as closed; returns False if it was closed already."""
        was_open = not self._is_closed
        self._is_closed = True
        return was_open

    def check(self) -> None:
        """Raise `LinkerClosedError` if closed."""
        if self._is_closed:
            raise LinkerClosedError(self._names)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Guard one use."""
        self.check()
        try:
            yield
        except LinkerClosedError:
            raise
        except Exception:
            self.check()
            raise

    def while_open(self, answers: Iterator[T]) -> Iterator[T]:
        """Yield answers until closed; then raise."""
        with self.in_use():
            for answer in answers:
                self.check()
                yield answer
