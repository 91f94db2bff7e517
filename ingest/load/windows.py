"""How many names a load encodes together: about one second's work.

Fewer names are stored later than they could be, and a load that is stopped waits for the names that are in the encoder.
More names are sorted by length with less padding: windows of 2,048 names cost 2 % more processor time than those of
8,192, windows of 512 names 8 %.
"""

from __future__ import annotations

SECONDS = 1.0
"""Time in the encoder that a window should take."""

LEAST = 512
"""Names of the first window, and of those of a slow machine."""


class WindowSize:
    """The size of the next window, from the speed of the last one.

    Attributes:
        names: Names that the next window should have.
    """

    def __init__(self, most: int, *, least: int = LEAST, seconds: float = SECONDS) -> None:
        """Start with the smallest window.

        Args:
            most: Names of the largest window.
            least: Names of the smallest one; no more than `most`.
            seconds: Time that a window should take.
        """
        self._most = most
        self._least = min(least, most)
        self._seconds = seconds
        self.names = self._least

    def adapt(self, names: int, seconds: float) -> None:
        """Choose the next size, after a window of so many names took so long."""
        fitting = int(names * self._seconds / seconds) if seconds > 0 else self._most
        self.names = max(self._least, min(self._most, fitting))
