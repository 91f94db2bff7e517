"""The connection to a Qdrant server: protects the key, retries requests, and translates errors."""

from __future__ import annotations

import ipaddress
import logging
import math
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx
from qdrant_client import QdrantClient
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from pearl_qdrant.errors import CollectionNotFoundError, PearlQdrantError, SettingsError, StoreClosedError
from pearl_qdrant.store.ownership import ProcessGuard
from pearl_qdrant.store.retry import RetryPolicy
from pearl_qdrant.store.server import errors as server_errors

A = TypeVar("A")
T = TypeVar("T")

_log = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 2.5
"""To connect; shorter than the time-out of an answer, to notice a host that drops packets."""

PATIENT = "pearl_qdrant_patient"
"""Extension of a request whose answer may take as long as a server needs to pack or unpack a shard."""

_PATIENT_S = 3600.0

_LOG_EVERY_S = 30.0

_SEARCH_THREADS = 3
"""Requests of one batch of mentions that are in flight at the same time."""

_UNCOMPRESSED = {"Accept-Encoding": "identity"}
"""A server compresses while it sends, in chunks. On a kept-alive connection the last chunk waits for an acknowledgement
that the client's kernel delays by 40 ms, and a link takes several requests."""

_JSON = {"Content-Type": "application/json"}

_LIMITS = httpx.Limits(max_connections=32, max_keepalive_connections=8)
"""Uploads use four connections, a service some more. Idle ones are kept: a new one costs one to three round trips."""


class Connection:
    """A client with its retry policy. Thread-safe over HTTP.

    Attributes:
        client: The qdrant-client behind it.
        location: URL without any key, or a name for local mode.
        is_local: Whether this is qdrant-client's local mode: no optimizer, no payload indexes, no parallel writes.
        redact: Removes the key from a text that came from the server.
        known_versions: Versions of collections that were seen on the server (`current.py`).
        guard: Refuses use in a forked process: two processes on one connection would read each other's answers.
    """

    def __init__(
        self,
        client: QdrantClient,
        *,
        location: str,
        retry: RetryPolicy,
        secret: str | None = None,
        owns_client: bool = False,
    ) -> None:
        self.client = client
        self.location = location
        self.is_local = _is_local(client)
        self._retry = retry
        self.redact = server_errors.make_redactor(secret)
        self._owns_client = owns_client
        self._closed = False
        self.known_versions: set[str] = set()
        self.guard = ProcessGuard(f"The store {location}")
        self._last_logged: float | None = None
        self._waiting_lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._threads_lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Connection({self.location!r})"

    def call(
        self,
        request: Callable[[], T],
        *,
        collection: str | None = None,
        cancelled: threading.Event | None = None,
        on_wait: Callable[[], None] = lambda: None,
    ) -> T:
        """Run a request of the client, with retries where these can help.

        Args:
            request: Calls the client; must be safe to repeat.
            collection: Name of the collection, for the error.
            cancelled: Once set, stops waits and retries.
            on_wait: Called before each wait for a server that is busy or does not answer.

        Raises:
            StoreError: If the request failed; translated from the client's error.
            StoreForkedError: If another process made the connection.
            StoreClosedError: If it is closed.
        """
        self.guard.check()
        if self._closed:
            raise StoreClosedError(f"The store {self.location} was closed. Open it again.")

        def report(error: BaseException, tries: int, seconds: float) -> None:
            on_wait()
            self._log_waiting(error, tries, seconds)

        try:
            result = self._retry.call(
                request,
                server_errors.is_transient,
                retry_after=server_errors.retry_after_s,
                is_unreachable=server_errors.is_unreachable,
                needs_no_wait=server_errors.needs_no_wait,
                on_wait=report,
                cancelled=cancelled,
            )
        except PearlQdrantError:
            raise
        except server_errors.CLIENT_ERRORS as error:
            ours = server_errors.translate(error, url=self.location, collection=collection, redact=self.redact)
            if isinstance(ours, CollectionNotFoundError):
                ours = CollectionNotFoundError(ours.collection, self._existing())
            if server_errors.reveals_key(error, self.redact):  # the server repeats the key: keep it out of tracebacks
                raise ours from None
            raise ours from error
        self._log_answering()
        return result

    def _log_waiting(self, error: BaseException, tries: int, seconds: float) -> None:
        """Log that the server does not answer, at most every `_LOG_EVERY_S` over all threads."""
        if tries == 1:
            return
        now = time.monotonic()
        with self._waiting_lock:
            if self._last_logged is not None and now - self._last_logged < _LOG_EVERY_S:
                return
            self._last_logged = now
        budget = self._retry.connect_budget_s if server_errors.is_unreachable(error) else self._retry.budget_s
        why = server_errors.describe(error, self.redact)
        _log.warning("Qdrant at %s does not answer (%s): waiting, %.0f of %.0f s", self.location, why, seconds, budget)

    def _log_answering(self) -> None:
        """Log that the server answers again, if it did not."""
        if self._last_logged is not None:
            self._last_logged = None
            _log.warning("Qdrant at %s answers again", self.location)

    def map(self, do: Callable[[A], T], items: Sequence[A]) -> Iterable[T]:
        """Return the result of `do` for each item, in order. A few run at the same time: it is mostly waiting."""
        if self.is_local or len(items) < 2:
            return map(do, items)
        with self._threads_lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_SEARCH_THREADS, thread_name_prefix="pearl-qdrant-search")
            return self._threads.map(do, items)

    def call_rest(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        collection: str,
        read: Callable[[bytes], T],
        cancelled: threading.Event | None = None,
        on_wait: Callable[[], None] = lambda: None,
    ) -> T:
        """Send a request as plain JSON: with qdrant-client's connections and errors, but without its models.

        Args:
            method: As in "POST".
            path: With `{name}` in the place of the collection's name.
            body: JSON; must be safe to send twice.
            collection: Name of the collection.
            read: Turns the answer's body into the result; a ValueError or RecursionError means that the answer has
                another form.
            cancelled, on_wait: As in `call`.

        Raises:
            StoreError: As `call`.
        """
        api = self.client.http.client
        url = api.host.rstrip("/") + path.format(name=quote(collection, safe=""))

        def request() -> T:
            # The client's `request` parses every answer into dictionaries, which the garbage collector then follows.
            sent = api._client.build_request(method, url, headers=_JSON, content=body)
            response = api.middleware(sent, api.send_inner)
            if not response.is_success:
                raise UnexpectedResponse.for_response(response)
            try:
                return read(response.content)
            except (ValueError, RecursionError) as error:
                raise ResponseHandlingException(error) from error

        return self.call(request, collection=collection, cancelled=cancelled, on_wait=on_wait)

    def collections(self) -> list[str]:
        """Return the names of all collections, sorted."""
        answer = self.call(self.client.get_collections)
        return sorted(collection.name for collection in answer.collections)

    def close(self) -> None:
        """Close the client if this connection made it, in this process."""
        if self.guard.is_owner and not self._closed:
            if self._threads is not None:
                self._threads.shutdown(wait=True, cancel_futures=True)
            if self._owns_client:
                self.client.close()
        self._closed = True

    def _existing(self) -> list[str]:
        """Return the names for the message of a missing collection; none if the server does not answer."""
        try:
            answer = self._retry.call(self.client.get_collections, server_errors.is_transient)
        except server_errors.CLIENT_ERRORS:
            return []
        return sorted(collection.name for collection in answer.collections)


def connect(
    url: str,
    *,
    api_key: str | None,
    timeout: float,
    retry: RetryPolicy,
    allow_plain_http: bool = False,
    ca_file: str | None = None,
    compress: bool = False,
) -> Connection:
    """Make a connection; sends nothing yet. Arguments as in `ServerStore.connect`.

    Raises:
        SettingsError: If the URL is not valid, holds a secret, or would carry the key in plain text to another host;
            or if `ca_file` cannot be read.
    """
    location, host, is_encrypted = _check_url(url)
    key = (api_key or "").strip() or None
    if key is not None:
        _check_key(key, host, is_safe=is_encrypted or _is_loopback(host), allow_plain_http=allow_plain_http)
    exact = httpx.Timeout(timeout, connect=min(timeout, _CONNECT_TIMEOUT_S)).as_dict()
    patient = {**exact, "read": max(timeout, _PATIENT_S), "write": max(timeout, _PATIENT_S)}

    def limit_times(request: httpx.Request) -> None:
        # qdrant-client rounds its timeout up to whole seconds
        request.extensions["timeout"] = patient if request.extensions.pop(PATIENT, False) else exact

    tls: dict[str, Any] = {"verify": _tls_context(ca_file)} if ca_file else {}
    client = QdrantClient(
        url=location,
        timeout=math.ceil(timeout),
        prefer_grpc=False,
        check_compatibility=False,
        # As a header: with api_key= the client warns about plain HTTP on this machine too.
        headers={**({"api-key": key} if key else {}), **({} if compress else _UNCOMPRESSED)},
        limits=_LIMITS,
        event_hooks={"request": [limit_times]},
        trust_env=not _is_loopback(host),  # requests to this machine use no proxy
        **tls,
    )
    return Connection(client, location=location, retry=retry, secret=key, owns_client=True)


def _check_key(key: str, host: str, *, is_safe: bool, allow_plain_http: bool) -> None:
    """Refuse a key that cannot be sent, or that others on the network could read."""
    if not (key.isascii() and key.isprintable()):
        raise SettingsError(
            "The API key holds characters that are not allowed in an HTTP header. Check QDRANT_API_KEY."
        )
    if is_safe:
        return
    if not allow_plain_http:
        raise SettingsError(
            f"Refusing to send the API key over plain HTTP to {host}: others on the network could read it. Use "
            f"https://, or reach the server through a tunnel on localhost. Inside a private network, such as that of a "
            f"compose file, allow it with PEARL_QDRANT_ALLOW_PLAIN_HTTP=1."
        )
    _log.warning("The API key goes over plain HTTP to %s, as allowed: only safe in a private network", host)


def _tls_context(ca_file: str) -> ssl.SSLContext:
    """Make a TLS context that trusts one more certificate authority."""
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            f"The certificates of the authority cannot be read from {ca_file}: {error}. Name a file in PEM format in "
            f"PEARL_QDRANT_CA."
        ) from error
    return context


def _check_url(url: str) -> tuple[str, str, bool]:
    """Return the URL without a trailing slash, its host, and whether it is encrypted."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise SettingsError("The store's URL is not valid. A valid one is http://localhost:6333.") from error
    if parts.username or parts.password or parts.query or parts.fragment:
        raise SettingsError(
            f"The URL of the store at {host} holds a user, password, query or fragment. "
            f"Give the plain URL, and the key in QDRANT_API_KEY."
        )
    if parts.scheme not in ("http", "https") or not host:
        raise SettingsError(f"The store's URL '{url}' must begin with http:// or https:// and name a host.")
    return url.rstrip("/"), host, parts.scheme == "https"


def _is_loopback(host: str) -> bool:
    """Whether the host is this machine, judged by its name or address only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_local(client: QdrantClient) -> bool:
    """Whether this client runs in local mode, which has no REST client."""
    try:
        return client.http is None
    except NotImplementedError:
        return True
