"""Which failed requests are tried again, and our errors for the others.

A request fails by an error of httpx, by `StatusError`, or by `BadAnswerError` where the answer has another form.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from urllib.parse import quote

import httpx

from pearl_qdrant.errors import (
    CollectionExistsError,
    CollectionNotFoundError,
    ShardUnavailableError,
    StoreError,
    StoreFullError,
    StoreRejectedError,
    StoreUnavailableError,
)
from pearl_qdrant.store.resources import resource_error
from pearl_qdrant.store.retry import GaveUpError

_SHOWN_CHARS = 300

Redact = Callable[[str], str]
"""Removes the key from a text."""


class StatusError(Exception):
    """An answer with a status that is none of success."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(f"{response.status_code} {response.reason_phrase}")
        self.status, self.reason = response.status_code, response.reason_phrase
        self.content, self.headers = response.content, response.headers


class BadAnswerError(Exception):
    """An answer of another form than the server's."""


FAILURES = (StatusError, BadAnswerError, httpx.HTTPError, GaveUpError, RuntimeError)
"""How a request fails; RuntimeError if the client was closed meanwhile."""


class RequestTooLargeError(StoreRejectedError):
    """The request holds too many points (`limits_points`) or bytes for this server; a smaller one may pass."""

    def __init__(self, message: str, *, limits_points: bool) -> None:
        super().__init__(message)
        self.limits_points = limits_points


def is_transient(error: BaseException) -> bool:
    """Whether a retry can help: connection, timeout, 429, 5xx; never another 4xx, never a full disk."""
    if isinstance(error, StatusError):
        # With 408 Qdrant reports a time-out of its own.
        return (error.status in (408, 429) or error.status >= 500) and not _is_disk_full(error)
    return isinstance(error, httpx.TransportError) and not _is_permanent(error)


def is_unreachable(error: BaseException) -> bool:
    """Whether nothing accepts a connection at the URL."""
    return isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))


def needs_no_wait(error: BaseException) -> bool:
    """Whether a retry need not wait: another replica answers it, or a new connection is used."""
    is_cut = isinstance(error, (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError))
    return is_cut or is_shard_unreachable(error)


def is_shard_unreachable(error: BaseException) -> bool:
    """Whether a node reports that another node, which has a shard, does not answer."""
    if not isinstance(error, StatusError) or error.status < 500:
        return False
    lower = error.content.lower()
    return b"failed to connect to" in lower or (b"operations failed" in lower and b" of " in lower)


def retry_after_s(error: BaseException) -> float | None:
    """Return the seconds that the server asks to wait; None if it does not, or names a date."""
    try:
        return float(error.headers["Retry-After"]) if isinstance(error, StatusError) else None
    except (KeyError, ValueError):
        return None


def make_redactor(secret: str | None) -> Redact:
    """Make a function that removes a key from a text: plain, and as quoted in a URL and in JSON.

    Call it before a text is shortened: a part of the key would not be recognised.
    """
    forms = set() if secret is None else {secret, quote(secret, safe=""), json.dumps(secret)[1:-1]}

    def redact(text: str) -> str:
        for form in sorted(forms, key=len, reverse=True):
            text = text.replace(form, "***")
        return text

    return redact


def reveals_key(error: BaseException | None, redact: Redact) -> bool:
    """Whether a traceback of this error and its causes could show the key or a part of it."""
    while error is not None:
        texts = [str(error), repr(error.args)]
        if isinstance(error, StatusError):
            texts.append(error.content.decode("utf-8", "replace"))
        if any(redact(text) != text for text in texts):
            return True
        error = error.__cause__ or error.__context__
    return False


def translate(error: BaseException, *, url: str, collection: str | None, redact: Redact) -> StoreError:
    """Make our error for one of `FAILURES`.

    Args:
        error: How the request failed.
        url: URL of the store, without any key.
        collection: The collection of the request, if any.
        redact: Removes the key from the server's text.
    """
    if isinstance(error, GaveUpError):
        last = describe(error.last, redact)
        if is_shard_unreachable(error.last):
            return ShardUnavailableError(url, collection, tries=error.tries, last=last)
        return StoreUnavailableError(url, tries=error.tries, seconds=error.seconds, last=last)
    is_ours = isinstance(error, httpx.TransportError)  # not a server's text about itself
    if is_ours and (lack := resource_error(error, f"Qdrant at {url} cannot be reached")) is not None:
        return lack
    text = describe(error, redact)
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
    status = error.status if isinstance(error, StatusError) else None
    limits_points = '"upsert limit"' in lower
    if status == 413 or limits_points:
        message = f"Qdrant at {url} refused a request as too large ({text})."
        return RequestTooLargeError(message, limits_points=limits_points)
    return StoreRejectedError(f"Qdrant at {url} refused a request ({text}).{_advice(error, status, lower, collection)}")


def _advice(error: BaseException, status: int | None, lower: str, collection: str | None) -> str:
    """Say what the user can do about a refused request: a sentence with a space before it, or nothing."""
    if status in (401, 403):
        return " Set QDRANT_API_KEY to a key that may do this."
    if "index required" in lower:
        return (
            " The server's strict mode refuses filters on fields without a payload index. Create the indexes with: "
            f"pearl-qdrant collections finalize {collection}"
        )
    if "limit exceeded" in lower or "limit reached" in lower or "disabled!" in lower:
        return (
            " This is a limit of the server's strict mode: request fewer candidates, or raise it in strict_mode_config."
        )
    if _is_not_http(error):
        return " What answers there speaks no HTTP. Qdrant's REST port is 6333; 6334 is that of gRPC."
    if isinstance(error, httpx.TransportError):
        return (
            " Check the URL: https:// needs a server with TLS and a certificate that this machine trusts. Name the "
            "certificates of your own authority in PEARL_QDRANT_CA."
        )
    if status == 404 or isinstance(error, (BadAnswerError, httpx.HTTPError)):
        return " Is this the URL of a Qdrant server, and is its version current?"
    return ""


def _is_disk_full(error: BaseException) -> bool:
    """Whether the server's disk is full. Qdrant reports this as 500, but waiting some seconds does not help."""
    if not isinstance(error, StatusError):
        return False
    lower = error.content.lower()
    return error.status == 507 or b"no space left" in lower or b"exceeds available disk space" in lower


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
    """Whether an answer was none of HTTP, as that of a port of gRPC."""
    return isinstance(error, httpx.RemoteProtocolError) and "illegal" in str(error).lower()


def describe(error: BaseException, redact: Redact) -> str:
    """Describe a failed try in one short line, without the key and the JSON around the server's message."""
    if isinstance(error, StatusError):
        try:
            text = str(json.loads(error.content)["status"]["error"])
        except (ValueError, LookupError, TypeError, RecursionError):
            text = error.content.decode("utf-8", "replace")
        return f"{error.status} {redact(error.reason)}: {_shorten(text, redact)}".rstrip(": ")
    if isinstance(error, httpx.TimeoutException):
        return f"timeout, {type(error).__name__}"
    text = _shorten(str(error), redact)
    if isinstance(error, BadAnswerError):
        return f"unexpected answer: {text}"
    return f"{type(error).__name__}: {text}".rstrip(": ")


def _shorten(text: str, redact: Redact) -> str:
    """Turn a text into one short line; the key is removed first."""
    return " ".join(redact(text).split())[:_SHOWN_CHARS]
