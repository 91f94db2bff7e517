"""The retry policy: how often and how long a request is tried again, and how long to wait in between.

Waits grow exponentially and have jitter, so that the clients of a restarted server do not all return at the same time.
A wait that the server requests (Retry-After) is kept, up to a limit. The adapter knows which errors are transient.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import tenacity

T = TypeVar("T")


class GaveUpError(Exception):
    """All `tries` failed, after some `seconds`, the `last` one with this error; see `StoreUnavailableError`."""

    def __init__(self, *, tries: int, seconds: float, last: BaseException) -> None:
        super().__init__(f"gave up after {tries} tries in {seconds:.1f} s: {last}")
        self.tries = tries
        self.seconds = seconds
        self.last = last


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a request is tried, and how long it may take, in seconds.

    Attributes:
        tries: Tries, the first one included, >= 1; None: as many as the budget allows.
        first_wait_s, max_wait_s: Wait after the first failure, before jitter, and the longest that doubling leads to.
        max_retry_after_s: The longest wait that a server may request.
        budget_s: No wait starts that would end later than this after the first try.
        connect_budget_s: The same budget while nothing accepts a connection.
        rng: Source of the jitter.
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
        """Make the policy of a load, which may outlive a restart of the server: wait this long for any failure."""
        return cls(budget_s=seconds, connect_budget_s=seconds)

    def call(  # long: what tenacity asks, one small function for each
        self,
        request: Callable[[], T],
        is_transient: Callable[[BaseException], bool],
        *,
        retry_after: Callable[[BaseException], float | None] = lambda error: None,
        is_unreachable: Callable[[BaseException], bool] = lambda error: False,
        needs_no_wait: Callable[[BaseException], bool] = lambda error: False,
        on_wait: Callable[[BaseException, int, float], None] = lambda error, tries, seconds: None,
        cancelled: threading.Event | None = None,
    ) -> T:
        """Run `request`, which is safe to repeat, until it succeeds.

        Args:
            request: The request.
            is_transient: Whether a retry can help after this error; other errors are raised at once.
            retry_after: The wait in seconds that the server requests, or None.
            is_unreachable: Whether the error means that nothing accepts a connection.
            needs_no_wait: Whether the second try need not wait: another replica or connection answers it.
            on_wait: Called before each wait with the error, the tries so far, and the seconds since the first try.
            cancelled: Once set, stops waits and retries.

        Raises:
            GaveUpError: If the tries or the budget are used up, or `cancelled` was set.
        """
        stopped, start = cancelled or threading.Event(), time.monotonic()
        failed: list[GaveUpError] = []

        def gave_up(state: tenacity.RetryCallState) -> GaveUpError:
            return GaveUpError(tries=state.attempt_number, seconds=time.monotonic() - start, last=_failure(state))

        def wait(state: tenacity.RetryCallState) -> float:
            error, tries = _failure(state), state.attempt_number
            return 0.0 if tries == 1 and needs_no_wait(error) else self.wait_s(tries, retry_after(error))

        def is_over(state: tenacity.RetryCallState) -> bool:
            budget = self.connect_budget_s if is_unreachable(_failure(state)) else self.budget_s
            seconds = time.monotonic() - start + state.upcoming_sleep
            return state.attempt_number == self.tries or stopped.is_set() or seconds > budget

        def before_wait(state: tenacity.RetryCallState) -> None:
            failed.append(gave_up(state))
            on_wait(failed[0].last, failed[0].tries, failed[0].seconds)

        def sleep(seconds: float) -> None:
            error = failed.pop()
            try:
                if stopped.wait(seconds):
                    raise error from error.last
            finally:
                del error  # its frames would hold it, and with it the connection

        def give_up(state: tenacity.RetryCallState) -> T:
            raise gave_up(state) from _failure(state)

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(is_transient),
            stop=is_over,
            wait=wait,
            before_sleep=before_wait,
            sleep=sleep,
            retry_error_callback=give_up,
        )
        return retrying(request)

    def wait_s(self, failures: int, requested: float | None) -> float:
        """Compute the seconds to wait after this many failures in a row.

        A wait that the server requests is a lower bound, so jitter is added to it; our own is an upper one.
        """
        if requested is not None:
            return min(max(requested, 0.0), self.max_retry_after_s) + self.rng.uniform(0.0, self.first_wait_s)
        longest = min(self.max_wait_s, self.first_wait_s * 2.0 ** (failures - 1))
        return longest * self.rng.uniform(0.5, 1.0)


def _failure(state: tenacity.RetryCallState) -> BaseException:
    """The error of the try that has just failed."""
    error = state.outcome.exception() if state.outcome else None
    assert error is not None  # tenacity waits and gives up only after a failure
    return error
