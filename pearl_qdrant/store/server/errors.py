"""The one place where qdrant-client's errors become ours.

qdrant-client raises, over HTTP: `UnexpectedResponse` for a status; `ResourceExhaustedResponse` for 429 with
Retry-After in seconds, and a bare `QdrantException` where Retry-After is a date; `ResponseHandlingException` around
httpx errors. In local mode: `ValueError` for everything.
"""

from __future__ import annotations

import email.utils
import json
import ssl
from collections.abc import Callable
from datetime import datetime, timezone
from urllib.parse import quote

import httpx
from pydantic import ValidationError
from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from pearl_qdrant.errors import (
    CollectionExistsError,
    CollectionNotFoundError,
    ShardUnavailableError,
    StoreError,
    StoreFullError,
    StoreRejectedError,
    StoreUnavailableError,
)
from pearl_qdrant.store.retry import GaveUpError

CLIENT_ERRORS = (ApiException, QdrantException, GaveUpError, ValueError, AssertionError, RuntimeError)
"""What a qdrant-client call raises; AssertionError where an answer has no result."""

_NOT_AN_INTEGER = "Retry-After header value is not a valid integer: "
_SHOWN_CHARS = 300

Hide = Callable[[str], str]
"""Takes the key out of a text."""


class RequestTooLargeError(StoreRejectedError):
    """The request holds too many points or bytes for this server; a smaller one may pass.

    Attributes:
        limits_points: Whether it is the points that the server counts, and not the bytes.
    """

    def __init__(self, message: str, *, limits_points: bool) -> None:
        super().__init__(message)
        self.limits_points = limits_points


def can_heal(error: BaseException) -> bool:
    """Whether trying again can help: connection, timeout, 429, 5xx; never another 4xx, never a full disk."""
    if isinstance(error, UnexpectedResponse):
        status = error.status_code or 0
        # 408 is how Qdrant reports its own time-out, which is a timeout like the client's.
        return (status in (408, 429) or status >= 500) and not _is_disk_full(error)
    if isinstance(error, ResponseHandlingException):
        return isinstance(error.source, httpx.TransportError) and not _is_permanent(error.source)
    return isinstance(error, ResourceExhaustedResponse) or _NOT_AN_INTEGER in str(error)


def is_unreachable(error: BaseException) -> bool:
    """Whether nothing accepts a connection there."""
    return isinstance(error, ResponseHandlingException) and isinstance(
        error.source, (httpx.ConnectError, httpx.ConnectTimeout)
    )


def heals_at_once(error: BaseException) -> bool:
    """Whether the next try is answered by somebody else: by another replica, or on a fresh connection."""
    if isinstance(error, ResponseHandlingException):
        return isinstance(error.source, (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError))
    return is_shard_away(error)


def is_shard_away(error: BaseException) -> bool:
    """Whether a node answered that another node, which has a shard, did not."""
    if not isinstance(error, UnexpectedResponse) or (error.status_code or 0) < 500:
        return False
    lower = error.content.lower()
    return b"failed to connect to" in lower or (b"operations failed" in lower and b" of " in lower)


def retry_after_s(error: BaseException, now: datetime | None = None) -> float | None:
    """Seconds that the server asked us to wait, or None; a Retry-After date counts from `now`."""
    if isinstance(error, ResourceExhaustedResponse):
        return float(error.retry_after_s)
    if isinstance(error, UnexpectedResponse):
        text = str(error.headers.get("Retry-After", ""))
    else:
        text = str(error).partition(_NOT_AN_INTEGER)[2]
    try:
        return float(text)
    except ValueError:
        pass
    try:
        date = email.utils.parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=timezone.utc)
    return (date - (now or datetime.now(timezone.utc))).total_seconds()


def hiding(secret: str | None) -> Hide:
    """What takes a key out of a text, as it is, as it stands in a URL and in JSON. Before the text is shortened."""
    if secret is None:
        return _hide_nothing
    forms = {secret, quote(secret, safe=""), json.dumps(secret)[1:-1]}

    def hide(text: str) -> str:
        for form in sorted(forms, key=len, reverse=True):
            text = text.replace(form, "***")
        return text

    return hide


def _hide_nothing(text: str) -> str:
    return text


def reveals(error: BaseException | None, hide: Hide) -> bool:
    """Whether a traceback of this error, which shows its causes, could show the key or a part of it."""
    while error is not None:
        if isinstance(error, ValidationError) and hide is not _hide_nothing:
            return True
        texts = [str(error), repr(error.args)]
        if isinstance(error, UnexpectedResponse):  # shows a part of its content
            texts += [error.content.decode("utf-8", "replace"), str(error.reason_phrase)]
        if any(hide(text) != text for text in texts):
            return True
        error = error.__cause__ or error.__context__
    return False


def translate(error: BaseException, *, url: str, collection: str | None, hide: Hide) -> StoreError:
    """Our error for one of `CLIENT_ERRORS`.

    Args:
        error: What the client raised.
        url: Where the store is, without any key.
        collection: The collection that the request was about, if any.
        hide: Takes the key out of what the server said.
    """
    if isinstance(error, GaveUpError):
        last = describe(error.last, hide)
        if is_shard_away(error.last):
            return ShardUnavailableError(url, collection, tries=error.tries, last=last)
        return StoreUnavailableError(url, tries=error.tries, seconds=error.seconds, last=last)
    text = _server_message(error, hide)
    lower = text.lower()
    if collection is not None and "collection" in lower:
        if "doesn't exist" in lower or lower.endswith("not found"):
            return CollectionNotFoundError(collection)
        if "already exists" in lower:
            return CollectionExistsError(collection)
    if _is_disk_full(error):
        return StoreFullError(f"No space is left where Qdrant at {url} keeps its data ({text}). Free some, then go on.")
    status = error.status_code if isinstance(error, UnexpectedResponse) else None
    limits_points = '"upsert limit"' in lower
    if status == 413 or limits_points:
        message = f"Qdrant at {url} refused a request as too large ({text})."
        return RequestTooLargeError(message, limits_points=limits_points)
    return StoreRejectedError(f"Qdrant at {url} refused a request ({text}).{_advice(error, status, lower, collection)}")


def _advice(error: BaseException, status: int | None, lower: str, collection: str | None) -> str:
    """What the user can do about a refused request, as a sentence with a space before it, or nothing."""
    if status in (401, 403):
        return " Set QDRANT_API_KEY to a key that may do this."
    if "index required" in lower:
        return (
            " The server's strict mode refuses filters on fields without a payload index. Make the indexes with: "
            f"pearl-qdrant collections finalize {collection}"
        )
    if "limit exceeded" in lower or "limit reached" in lower or "disabled!" in lower:
        return (
            " That is a limit of the server's strict mode: ask for less (--limit), or raise it in strict_mode_config."
        )
    if isinstance(error, ResponseHandlingException) and _is_permanent(error.source):
        return (
            " Check the URL: https:// needs a server with TLS and a certificate that this machine trusts. Name an "
            "authority of your own in PEARL_QDRANT_CA."
        )
    if status == 404 or isinstance(error, (ResponseHandlingException, AssertionError)):
        return " Is this the URL of a Qdrant server, and a current version?"
    return ""


def _is_disk_full(error: BaseException) -> bool:
    """Qdrant reports a full disk as 500; waiting some seconds does not heal it."""
    if not isinstance(error, UnexpectedResponse):
        return False
    lower = error.content.lower()
    return error.status_code == 507 or b"no space left" in lower or b"exceeds available disk space" in lower


def _is_permanent(error: BaseException) -> bool:
    """Transport errors that come back every time: bad certificates, malformed requests."""
    if isinstance(error, (httpx.LocalProtocolError, httpx.UnsupportedProtocol)):
        return True
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError) or "WRONG_VERSION_NUMBER" in str(cause):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _server_message(error: BaseException, hide: Hide) -> str:
    """What the server said, without its JSON wrapping; shortened."""
    if isinstance(error, UnexpectedResponse):
        try:
            text = str(json.loads(error.content)["status"]["error"])
        except (ValueError, LookupError, TypeError, RecursionError):
            text = error.content.decode("utf-8", "replace")
        return f"{error.status_code} {hide(error.reason_phrase)}: {_shorten(text, hide)}".rstrip(": ")
    if isinstance(error, ResponseHandlingException):
        return f"unexpected answer: {describe(error, hide)}"
    return _shorten(str(error), hide) or type(error).__name__


def describe(error: BaseException, hide: Hide) -> str:
    """One line about a failed try, without the key."""
    if isinstance(error, ResponseHandlingException):
        source = error.source
        if isinstance(source, httpx.TimeoutException):
            return f"timeout, {type(source).__name__}"
        if isinstance(source, ValidationError):  # its own text shows pieces of what the server sent
            first = source.errors(include_url=False, include_input=False)[0]
            return f"{'.'.join(map(str, first['loc']))}: {_shorten(first['msg'], hide)}"
        return f"{type(source).__name__}: {_shorten(str(source), hide)}".rstrip(": ")
    if isinstance(error, UnexpectedResponse):
        return _server_message(error, hide)
    return f"429 Too Many Requests: {_server_message(error, hide)}"


def _shorten(text: str, hide: Hide) -> str:
    """One line of a text, cut after the key was taken out."""
    return " ".join(hide(text).split())[:_SHOWN_CHARS]
