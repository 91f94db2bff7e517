"""The time of a refresh: one budget for all stages, of which each but the fit has a share that it does not exceed.

phrases, negatives, head, measure    cut to their share: fewer names at the pace that this machine has shown
start, average, export               take what they take; the last two are foreseen from the first
fit                                  what is left before those after it; it stops when its time is over
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

PHRASES, NEGATIVES, HEAD, MEASURE = 0.1, 0.1, 0.15, 0.2
"""Shares of the budget, at most."""

EXPORT = 0.1
"""The share that is foreseen for average and export where the start took no time: it had weights for torch."""

EXPORT_OVER_START = 1.8
"""Average and export take so many times what it takes to rebuild the weights of the start from its graph."""


@dataclass(slots=True)
class Budget:
    """What a refresh may take, and has taken.

    Attributes:
        seconds: For all of it; None: no limit, so that nothing is cut.
        spent: Seconds that earlier runs took, before this one resumed.
        clock: Returns seconds.
    """

    seconds: float | None
    spent: float = 0.0
    clock: Callable[[], float] = time.monotonic
    _since: float = field(init=False)

    def __post_init__(self) -> None:
        self._since = self.clock()

    @property
    def used(self) -> float:
        """Seconds so far."""
        return self.spent + self.clock() - self._since

    @property
    def left(self) -> float | None:
        """Seconds that are left, at least 0; None without a limit."""
        return None if self.seconds is None else max(0.0, self.seconds - self.used)

    def share(self, part: float) -> float | None:
        """The seconds of a share, or what is left if that is less; None without a limit."""
        return None if self.seconds is None or self.left is None else min(part * self.seconds, self.left)

    def count(self, part: float, cost: float, *, least: int) -> int | None:
        """How many items of a cost in seconds are in a share, at least `least`; None without a limit."""
        seconds = self.share(part)
        return None if seconds is None else max(least, int(seconds / cost))

    def before(self, seconds: float) -> float | None:
        """What is left before so many seconds at the end; None without a limit."""
        return None if self.left is None else max(0.0, self.left - seconds)
