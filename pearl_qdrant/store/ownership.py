"""Handles belong to the process that opened them. A forked process has copies of all handles and must not use them.

Writing through a copy loses points, closing it unlocks what the first process still uses, and two processes on one
connection read each other's answers. So each handle has a guard, and works and releases nothing in another process.
"""

from __future__ import annotations

import os

from pearl_qdrant.errors import StoreForkedError


class ProcessGuard:
    """Remembers the process that opened something; `what` is the beginning of a sentence."""

    __slots__ = ("pid", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self.pid = os.getpid()

    @property
    def is_owner(self) -> bool:
        """Whether this is the process that opened it."""
        return os.getpid() == self.pid

    def check(self) -> None:
        """Raise StoreForkedError if this process was forked from the owner."""
        if not self.is_owner:
            raise StoreForkedError(self.what, owner=self.pid, pid=os.getpid())
