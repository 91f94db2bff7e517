"""What a process has opened is its own: a process that was forked from it has copies of all handles, and may use none.

The copies share the files, locks and connections of the other process, but none of its threads: writing through them
loses points, closing them unlocks what the other one holds, and two processes on one connection read each other's
answers. So each handle knows its process, refuses to be used in another one, and lets go of nothing there.
"""

from __future__ import annotations

import os

from pearl_qdrant.errors import StoreForkedError


class Owner:
    """The process that opened something.

    Attributes:
        what: What was opened, as the beginning of a sentence.
        pid: By which process.
    """

    __slots__ = ("pid", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self.pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether it is this process."""
        return os.getpid() == self.pid

    def check(self) -> None:
        """Refuse to go on in another process.

        Raises:
            StoreForkedError: If this process was forked from the owner.
        """
        if not self.is_here:
            raise StoreForkedError(self.what, owner=self.pid, pid=os.getpid())
