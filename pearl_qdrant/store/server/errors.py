"""Errors of qdrant-client: which are tried again, for how long, and what they become.

Waits grow exponentially and have jitter, so that the clients of a restarted server do not all return at the same time.
A wait that the server requests (Retry-After) is kept, up to a limit.

Over HTTP qdrant-client raises `UnexpectedResponse` for a status; `ResourceExhaustedResponse` for 429 with
Retry-After in seconds, and a plain `QdrantException` if Retry-After is a date; `ResponseHandlingException` around
httpx errors.
"""

from __future__ import annotations

import html
import json
import random
import re
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import httpx
import tenacity
from pydantic import ValidationError
from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from pearl_qdrant.errors import (
    AccessRefusedError,
    CollectionExistsError,
    CollectionNotFoundError,
    ShardUnavailableError,
    StoreError,
    StoreFullError,
    StoreRejectedError,
    StoreUnavailableError,
)
from pearl_qdrant.store.system import resource_error

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
    """How often a request is tried, and how long it may take, in seconds."""

    tries: int | None = None  # the first one included; None: as many as the budget allows
    first_wait_s: float = 0.5  # before jitter
    max_wait_s: float = 10.0  # to which doubling leads
    max_retry_after_s: float = 30.0  # that a server may request
    budget_s: float = 120.0  # no wait starts that would end later than this after the first try
    connect_budget_s: float = 2.5  # the same while nothing accepts a connection
    rng: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def __post_init__(self) -> None:
        waits = self.first_wait_s, self.max_wait_s, self.max_retry_after_s, self.budget_s, self.connect_budget_s
        if (self.tries is not None and self.tries < 1) or min(waits) < 0:
            raise ValueError(f"tries must be at least 1 and no wait negative: {self}")

    @classmethod
    def waiting(cls, seconds: float) -> RetryPolicy:
        """Make the policy of a load, which may outlive a restart of the server: wait this long for any failure."""
        return cls(budget_s=seconds, connect_budget_s=seconds)

    def budget_after(self, error: BaseException) -> float:
        """The budget, in seconds, where the last try failed with this error."""
        return self.connect_budget_s if is_unreachable(error) else self.budget_s

    def call(
        self,
        request: Callable[[], T],
        *,
        on_wait: Callable[[BaseException, int, float], None] = lambda error, tries, seconds: None,
        cancelled: threading.Event | None = None,
    ) -> T:
        """Run `request`, which is safe to repeat, until it succeeds; errors that cannot pass are raised at once.

        `on_wait` is called before each wait with the error, the tries so far, and the seconds since the first try;
        `cancelled`, once set, stops waits and retries. GaveUpError if it is set, or tries or budget are used up.
        """
        stopped, start = cancelled or threading.Event(), time.monotonic()
        failed: list[GaveUpError] = []

        def gave_up(state: tenacity.RetryCallState) -> GaveUpError:
            return GaveUpError(tries=state.attempt_number, seconds=time.monotonic() - start, last=_failure(state))

        def wait(state: tenacity.RetryCallState) -> float:
            error, tries = _failure(state), state.attempt_number
            return 0.0 if tries == 1 and needs_no_wait(error) else self.wait_s(tries, retry_after_s(error))

        def is_over(state: tenacity.RetryCallState) -> bool:
            seconds = time.monotonic() - start + state.upcoming_sleep
            return (
                state.attempt_number == self.tries or stopped.is_set() or seconds > self.budget_after(_failure(state))
            )

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
        """Compute the seconds to wait after this many failures in a row. A wait that the server requests is a lower
        bound, so jitter is added to it; our own is an upper one.
        """
        if requested is not None:
            return min(max(requested, 0.0), self.max_retry_after_s) + self.rng.uniform(0.0, self.first_wait_s)
        longest = min(self.max_wait_s, self.first_wait_s * 2.0 ** (failures - 1))
        return longest * self.rng.uniform(0.5, 1.0)


def _failure(state: tenacity.RetryCallState) -> BaseException:
    error = state.outcome.exception() if state.outcome else None
    assert error is not None  # tenacity waits and gives up only after a failure
    return error


CLIENT_ERRORS = (ApiException, QdrantException, GaveUpError, ValueError, AssertionError, RuntimeError)
"""The errors of a qdrant-client call; AssertionError if an answer has no result."""

_NOT_AN_INTEGER = "Retry-After header value is not a valid integer: "
_SHOWN_CHARS = 300
_READ_BYTES = 1 << 16  # of an answer that is not Qdrant's

Redact = Callable[[str], str]  # removes the key from a text


class HangsError(httpx.ReadTimeout):
    """A node accepts connections, and does not answer what takes it no work."""


class RequestTooLargeError(StoreRejectedError):
    """The request holds too many points, queries or operations, if it limits these, or else bytes; a smaller one may
    pass, after `wait_s` seconds. If it limits a rate, it is more than is allowed in a minute.
    """

    def __init__(self, message: str, *, limits_items: bool, limits_rate: bool = False, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.limits_items = limits_items
        self.limits_rate = limits_rate
        self.wait_s = wait_s


class ExactRefusedError(StoreRejectedError):
    """The collection's strict mode allows no exact counts."""


class IndexMissingError(StoreRejectedError):
    """The collection's strict mode allows no filter on a field without a payload index."""


def is_transient(error: BaseException) -> bool:
    """Whether a retry can help: connection, timeout, 429, 5xx; never another 4xx, never a full disk, nor a request that
    is larger than all that a limit of the rate allows.
    """
    if isinstance(error, UnexpectedResponse):
        status = error.status_code or 0
        # With 408 Qdrant reports a time-out of its own.
        return (status in (408, 429) or status >= 500) and not (_is_disk_full(error) or _NEVER_PASSES in error.content)
    if isinstance(error, ResponseHandlingException):
        return isinstance(error.source, httpx.TransportError) and not _is_permanent(error.source)
    return isinstance(error, ResourceExhaustedResponse) or _NOT_AN_INTEGER in str(error)


_NEVER_PASSES = b"please try to split"  # what the server says of a request over all that it allows in a minute


def is_rate_limited(error: BaseException) -> bool:
    """Whether a limit of the rate refused a request; only the last form has no status: Retry-After is a date."""
    is_429 = isinstance(error, UnexpectedResponse) and error.status_code == httpx.codes.TOO_MANY_REQUESTS
    return is_429 or isinstance(error, ResourceExhaustedResponse) or _NOT_AN_INTEGER in str(error)


def is_unreachable(error: BaseException) -> bool:
    """Whether nothing accepts a connection at the URL, or what does so hangs."""
    return isinstance(error, ResponseHandlingException) and isinstance(
        error.source, (httpx.ConnectError, httpx.ConnectTimeout, HangsError)
    )


def needs_no_wait(error: BaseException) -> bool:
    """Whether a retry need not wait: another replica answers it, or a new connection is used."""
    if isinstance(error, ResponseHandlingException):
        return isinstance(error.source, (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError))
    return is_shard_unreachable(error)


def is_shard_unreachable(error: BaseException) -> bool:
    """Whether a node reports that another node, which has a shard, does not answer."""
    if not isinstance(error, UnexpectedResponse) or (error.status_code or 0) < 500:
        return False
    lower = error.content.lower()
    return b"failed to connect to" in lower or (b"operations failed" in lower and b" of " in lower)


def retry_after_s(error: BaseException) -> float | None:
    """Return the seconds that the server asks to wait; None if it does not, or names a date."""
    if isinstance(error, ResourceExhaustedResponse):
        return float(error.retry_after_s)
    try:
        return float(error.headers["Retry-After"]) if isinstance(error, UnexpectedResponse) else None
    except (KeyError, ValueError):
        return None


def translate(error: BaseException, *, url: str, collection: str | None, redact: Redact) -> StoreError:
    """Make our error for one of `CLIENT_ERRORS`, at a store with this URL, in a request of this collection."""
    if isinstance(error, GaveUpError):
        return _gave_up(error, url, collection, describe(error.last, redact))
    source = error.source if isinstance(error, ResponseHandlingException) else error
    is_ours = isinstance(source, (httpx.TransportError, OSError, MemoryError))  # not a server's text about itself
    if is_ours and (lack := resource_error(source, f"Qdrant at {url} cannot be reached")) is not None:
        return lack
    text = _server_message(error, redact)
    lower = text.lower()
    if collection is not None and "collection" in lower:
        if "doesn't exist" in lower or lower.endswith("not found"):
            return CollectionNotFoundError(collection)
        if "already exists" in lower:
            return CollectionExistsError(collection)
    if _is_disk_full(error):
        return StoreFullError(
            f"No space is left on the disk of Qdrant at {url} ({text}). Free some space, then run the same command "
            f"again."
        )
    status = error.status_code if isinstance(error, UnexpectedResponse) else None
    limits_rate = _NEVER_PASSES.decode() in lower
    limits_items = limits_rate or '"upsert limit"' in lower or '"search batch limit"' in lower
    if status == httpx.codes.REQUEST_ENTITY_TOO_LARGE or limits_items or "larger than allowed" in lower:
        what, advice = "too large", "Raise that limit of the server, or of the proxy before it."
        if limits_rate:
            what, advice = "over its rate limit", f"You can {_RAISE_RATE}"
        message = f"Qdrant at {url} refused a request as {what} ({text}). {advice}"
        return RequestTooLargeError(message, limits_items=limits_items, limits_rate=limits_rate)
    message = f"Qdrant at {url} refused a request ({text}).{_advice(error, status, lower, collection)}"
    if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        return AccessRefusedError(message)
    if "index required" in lower:
        return IndexMissingError(message)
    return ExactRefusedError(message) if "exact search disabled" in lower else StoreRejectedError(message)


_RAISE_RATE = "raise read_rate_limit or write_rate_limit in the collection's strict_mode_config."


def _gave_up(error: GaveUpError, url: str, collection: str | None, last: str) -> StoreError:
    """Make our error for tries that all failed, the last one as described."""
    if is_shard_unreachable(error.last):
        return ShardUnavailableError(url, collection, tries=error.tries, last=last)
    limits_rate, advice = is_rate_limited(error.last), "Start it with: docker compose up -d"
    if limits_rate:
        advice = f"Wait, or {_RAISE_RATE}"
    elif isinstance(getattr(error.last, "source", None), HangsError):
        advice = "Start it again with: docker compose restart"
    return StoreUnavailableError(
        url, tries=error.tries, seconds=error.seconds, last=last, limits_rate=limits_rate, advice=advice
    )


def _advice(error: BaseException, status: int | None, lower: str, collection: str | None) -> str:
    """Say what the user can do about a refused request: a sentence with a space before it, or nothing."""
    if status in (401, 403):
        return " Set QDRANT_API_KEY to a key that may do this."
    if isinstance(error, UnexpectedResponse) and (status or 0) // 100 == 3:
        return " Name the address that it redirects to as the store."
    if "index required" in lower or "appropriate index" in lower:
        return (
            " Filters and counts need payload indexes, and some are missing. Create them with: "
            f"pearl-qdrant collections finalize {collection}"
        )
    if "exact search disabled" in lower:
        return " Set search_allow_exact in strict_mode_config."
    if "limit exceeded" in lower or "limit reached" in lower:
        return (
            " This is a limit of the server's strict mode: request fewer candidates, or raise it in strict_mode_config."
        )
    if isinstance(error, ResponseHandlingException) and _is_not_http(error.source):
        return " What answers there speaks no HTTP. Qdrant's REST port is 6333; 6334 is that of gRPC."
    if isinstance(error, ResponseHandlingException) and _is_permanent(error.source):
        return (
            " Check the URL: https:// needs a server with TLS and a certificate that this machine trusts. Name the "
            "certificates of your own authority in PEARL_QDRANT_CA."
        )
    if status == 404 or isinstance(error, (ResponseHandlingException, AssertionError)):
        return " Is this the URL of a Qdrant server, and is its version current?"
    return ""


def _is_disk_full(error: BaseException) -> bool:
    """Whether the server's disk is full. Qdrant reports this as 500, but waiting some seconds does not help."""
    if not isinstance(error, UnexpectedResponse):
        return False
    lower = error.content.lower()
    return error.status_code == 507 or b"no space left" in lower or b"exceeds available disk space" in lower


def _is_permanent(error: BaseException) -> bool:
    """Whether a transport error comes back on every retry: bad certificates, malformed requests, too few files."""
    if isinstance(error, (httpx.LocalProtocolError, httpx.UnsupportedProtocol)) or _is_not_http(error):
        return True
    if resource_error(error, "") is not None:
        return True
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError) or "WRONG_VERSION_NUMBER" in str(cause):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _is_not_http(error: BaseException) -> bool:
    return isinstance(error, httpx.RemoteProtocolError) and "illegal" in str(error).lower()


def _server_message(error: BaseException, redact: Redact) -> str:
    """Return the server's message without its JSON wrapping; shortened."""
    if isinstance(error, UnexpectedResponse):
        try:
            text = str(json.loads(error.content)["status"]["error"])
        except (ValueError, LookupError, TypeError, RecursionError):
            text = _text_of(error, redact)
        return f"{error.status_code} {redact(error.reason_phrase)}: {_shorten(text, redact)}".rstrip(": ")
    if isinstance(error, ResponseHandlingException):
        return f"unexpected answer: {describe(error, redact)}"
    return _shorten(str(error), redact) or type(error).__name__


_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^>]*>")


def _text_of(error: UnexpectedResponse, redact: Redact) -> str:
    """What an answer that is not Qdrant's says: where it leads, the title of a page, or its text."""
    if (target := error.headers.get("location")) and (error.status_code or 0) // 100 == 3:
        return f"it redirects to {redact(target).partition('?')[0]}"
    text = error.content[:_READ_BYTES].decode("utf-8", "replace")
    if not text.lstrip().startswith("<"):
        return text
    title = _TITLE.search(text)
    return html.unescape(title[1] if title else _TAG.sub(" ", text))


def describe(error: BaseException, redact: Redact) -> str:
    """Describe a failed try in one line, without the key."""
    if isinstance(error, ResponseHandlingException):
        source = error.source
        if isinstance(source, HangsError):
            return f"{source} accepts connections, but answers nothing, as a process that hangs"
        if isinstance(source, httpx.TimeoutException):
            return f"timeout, {type(source).__name__}"
        if isinstance(source, ValidationError):  # its text shows parts of the server's answer
            first = source.errors(include_url=False, include_input=False)[0]
            return f"{'.'.join(map(str, first['loc']))}: {_shorten(first['msg'], redact)}"
        return f"{type(source).__name__}: {_shorten(str(source), redact)}".rstrip(": ")
    if isinstance(error, UnexpectedResponse):
        return _server_message(error, redact)
    return f"429 Too Many Requests: {_server_message(error, redact)}"


def _shorten(text: str, redact: Redact) -> str:
    """Turn a text into one short line; the key is removed first."""
    return " ".join(redact(text).split())[:_SHOWN_CHARS]
