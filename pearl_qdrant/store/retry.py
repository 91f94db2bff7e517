"""The one retry policy: what is tried again, how often, and how long to wait in between.

Waits grow exponentially and are jittered, so that many clients of one restarted server do not come back in step. A
server that names its own wait (Retry-After) is obeyed up to a cap. Which errors can heal is the adapter's knowledge
(`server_errors.can_heal`), not the policy's.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

import tenacity

T = TypeVar("T")


class GaveUpError(Exception):
    """All tries failed; the adapter turns this into `StoreUnavailableError`.

    Attributes:
        tries: How often it was tried.
        seconds: From the first try to the last failure.
        last: What the last try failed with.
    """

    def __init__(self, *, tries: int, seconds: float, last: BaseException) -> None:
        super().__init__(f"gave up after {tries} tries in {seconds:.1f} s: {last}")
        self.tries = tries
        self.seconds = seconds
        self.last = last


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how patiently a request is tried.

    Attributes:
        tries: Tries in all, the first one included, >= 1; None: as many as the budget holds.
        first_wait_s: Wait after the first failure, before jitter; doubles after each further one.
        max_wait_s: Where the doubling ends.
        max_retry_after_s: Longest wait that a server may ask for.
        budget_s: No further wait begins that would end later than this after the first try.
        connect_budget_s: The same while nothing accepts a connection.
        rng: Where the jitter comes from.
    """

    tries: int | None = None
    first_wait_s: float = 0.5
    max_wait_s: float = 10.0
    max_retry_after_s: float = 30.0
    budget_s: float = 120.0
    connect_budget_s: float = 2.5
    rng: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def __post_init__(self) -> None:
        waits = self.first_wait_s, self.max_wait_s, self.max_retry_after_s, self.budget_s, self.connect_budget_s
        if (self.tries is not None and self.tries < 1) or min(waits) < 0:
            raise ValueError(f"tries must be at least 1 and no wait negative: {self}")

    @classmethod
    def waiting(cls, seconds: float) -> RetryPolicy:
        """For work that outlives a restart of the server: every failure that can heal is waited for so long."""
        return cls(budget_s=seconds, connect_budget_s=seconds)

    def call(
        self,
        request: Callable[[], T],
        can_heal: Callable[[BaseException], bool],
        *,
        retry_after: Callable[[BaseException], float | None] = lambda error: None,
        is_unreachable: Callable[[BaseException], bool] = lambda error: False,
        heals_at_once: Callable[[BaseException], bool] = lambda error: False,
        on_wait: Callable[[BaseException, int, float], None] = lambda error, tries, seconds: None,
        cancelled: threading.Event | None = None,
    ) -> T:
        """Run `request` until it succeeds.

        Args:
            request: What to do; must be safe to repeat.
            can_heal: Whether trying again can help after this error; other errors pass through at once.
            retry_after: Wait in seconds that the server asked for, or None.
            is_unreachable: Whether the error says that nothing accepts a connection.
            heals_at_once: Whether the second try need not wait, as where another replica or connection answers it.
            on_wait: Called before each wait with the error, the tries so far, and the seconds since the first.
            cancelled: Once set, ends waits and further tries.

        Raises:
            GaveUpError: If the tries or the budget are used up, or `cancelled` was set.
        """
        event = cancelled or threading.Event()
        gave_up: GaveUpError | None = None

        def wait(state: tenacity.RetryCallState) -> float:
            if state.attempt_number == 1 and heals_at_once(_failure(state)):
                return 0.0
            return self.wait_s(state.attempt_number, retry_after(_failure(state)))

        def giving_up(state: tenacity.RetryCallState) -> GaveUpError:
            seconds = time.monotonic() - state.start_time
            return GaveUpError(tries=state.attempt_number, seconds=seconds, last=_failure(state))

        def give_up(state: tenacity.RetryCallState) -> NoReturn:
            raise giving_up(state) from _failure(state)

        def is_over(state: tenacity.RetryCallState) -> bool:
            budget = self.connect_budget_s if is_unreachable(_failure(state)) else self.budget_s
            is_last = self.tries is not None and state.attempt_number >= self.tries
            return is_last or event.is_set() or tenacity.stop_before_delay(budget)(state)

        def tell(state: tenacity.RetryCallState) -> None:
            nonlocal gave_up
            gave_up = giving_up(state)
            on_wait(gave_up.last, gave_up.tries, gave_up.seconds)

        def sleep(seconds: float) -> None:
            if event.wait(seconds) and gave_up is not None:
                raise gave_up from gave_up.last

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(can_heal),
            stop=is_over,
            wait=wait,
            before_sleep=tell,
            sleep=sleep,
            retry_error_callback=give_up,
        )
        try:
            return retrying(request)
        finally:
            gave_up = None  # an error knows this frame: they would keep each other, and the connection, alive

    def wait_s(self, failures: int, asked: float | None) -> float:
        """Seconds to wait after so many failures in a row, given what the server asked for.

        A server's wish is a lower bound, so its jitter is added; our own wait is jittered downwards.
        """
        if asked is not None:
            return min(max(asked, 0.0), self.max_retry_after_s) + self.rng.uniform(0.0, self.first_wait_s)
        longest = min(self.max_wait_s, self.first_wait_s * 2.0 ** (failures - 1))
        return longest * self.rng.uniform(0.5, 1.0)


def _failure(state: tenacity.RetryCallState) -> BaseException:
    """The error of the try that has just failed."""
    error = state.outcome.exception() if state.outcome else None
    assert error is not None  # tenacity waits and gives up only after a failure
    return error
