"""The open or closed state of a linker."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from pearl_qdrant.errors import LinkerClosedError, ReadOnlyError

T = TypeVar("T")


class Lifetime:
    """Guards the uses of an object that another thread may close meanwhile.

    There is no lock: a use that runs while another thread closes may finish, or may fail somewhere in the store. In
    the second case the guard replaces the store's error with `LinkerClosedError`.

    Args:
        names: Names of the open collections, for the error.
        is_read_only: Whether edits are refused.

    Attributes:
        reloading: Held while the collections are opened again.
    """

    def __init__(self, names: Sequence[str], *, is_read_only: bool = False) -> None:
        self._names = list(names)
        self._is_closed = False
        self.is_read_only = is_read_only
        self.reloading = threading.Lock()

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

    @contextmanager
    def in_edit(self) -> Iterator[None]:
        """Guard one edit. Raises ReadOnlyError if the linker is read-only."""
        with self.in_use():
            if self.is_read_only:
                raise ReadOnlyError(self._names, "adding, deleting and learning")
            yield

    def while_open(self, answers: Iterator[T]) -> Iterator[T]:
        """Yield answers until closed; then raise."""
        with self.in_use():
            for answer in answers:
                self.check()
                yield answer
