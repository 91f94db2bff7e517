"""One connection to a Qdrant server: made safely, every request retried and its errors translated."""

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
from pearl_qdrant.store.ownership import Owner
from pearl_qdrant.store.retry import RetryPolicy
from pearl_qdrant.store.server import errors as server_errors

A = TypeVar("A")
T = TypeVar("T")

_log = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 2.5
"""A host that drops packets is known sooner than a slow answer."""

_SAY_EVERY_S = 30.0

_SEARCH_THREADS = 3
"""Requests of one batch of mentions that are in flight at once."""

# Uploads use two connections, serving a few more; idle ones are kept, since a new one costs a round trip or three.
_PLAIN = {"Accept-Encoding": "identity"}
"""A server compresses as it sends, in chunks; on a kept-alive connection the last one waits for an acknowledgement that
the client's kernel delays by 40 ms, and a link takes several requests."""

_JSON = {"Content-Type": "application/json"}

_LIMITS = httpx.Limits(max_connections=32, max_keepalive_connections=8)


class Connection:
    """A client with its retry policy. Thread-safe over HTTP.

    Attributes:
        client: The qdrant-client behind it.
        location: URL without any key, or what stands for it in local mode.
        is_local: Whether this is qdrant-client's local mode: no optimizer, no payload indexes, no parallel writes.
        hide: Takes the key out of a text that came from the server.
        owner: The process that made it. In a fork two processes on one connection would read each other's answers.
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
        self.hide = server_errors.hiding(secret)
        self._owns_client = owns_client
        self._closed = False
        self.owner = Owner(f"The store {location}")
        self._last_said: float | None = None
        self._waiting_lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._threads_lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Connection({self.location!r})"

    def call(
        self, request: Callable[[], T], *, collection: str | None = None, cancelled: threading.Event | None = None
    ) -> T:
        """Run a request of the client, tried again where that can help.

        Args:
            request: Calls the client; must be safe to repeat.
            collection: What it is about, for the error.
            cancelled: Once set, ends waits and further tries.

        Raises:
            StoreError: Whatever went wrong, translated.
            StoreForkedError: If another process made the connection.
            StoreClosedError: If it is closed.
        """
        self.owner.check()
        if self._closed:
            raise StoreClosedError(f"The store {self.location} was closed. Open it again.")
        try:
            result = self._retry.call(
                request,
                server_errors.can_heal,
                retry_after=server_errors.retry_after_s,
                is_unreachable=server_errors.is_unreachable,
                heals_at_once=server_errors.heals_at_once,
                on_wait=self._say_waiting,
                cancelled=cancelled,
            )
        except PearlQdrantError:
            raise
        except server_errors.CLIENT_ERRORS as error:
            ours = server_errors.translate(error, url=self.location, collection=collection, hide=self.hide)
            if isinstance(ours, CollectionNotFoundError):
                ours = CollectionNotFoundError(ours.collection, self._existing())
            if server_errors.reveals(error, self.hide):  # a server that echoes the key: not into our tracebacks
                raise ours from None
            raise ours from error
        self._say_answering()
        return result

    def _say_waiting(self, error: BaseException, tries: int, seconds: float) -> None:
        """Tell that the server is waited for, and again every `_SAY_EVERY_S`; one thread does for all."""
        if tries == 1:
            return
        now = time.monotonic()
        with self._waiting_lock:
            if self._last_said is not None and now - self._last_said < _SAY_EVERY_S:
                return
            self._last_said = now
        budget = self._retry.connect_budget_s if server_errors.is_unreachable(error) else self._retry.budget_s
        why = server_errors.describe(error, self.hide)
        _log.warning("Qdrant at %s does not answer (%s): waiting, %.0f of %.0f s", self.location, why, seconds, budget)

    def _say_answering(self) -> None:
        """Tell that the wait is over."""
        if self._last_said is not None:
            self._last_said = None
            _log.warning("Qdrant at %s answers again", self.location)

    def map(self, do: Callable[[A], T], items: Sequence[A]) -> Iterable[T]:
        """What `do` returns of each, in order; a few at once, since most of the time is spent waiting."""
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
    ) -> T:
        """Send a request as plain JSON, past qdrant-client's models, with its connections and errors.

        Args:
            method: As in "POST".
            path: With `{name}` where the collection's name belongs.
            body: JSON; must be safe to send twice.
            collection: What it is about.
            read: From the answer's body to what is returned; a ValueError or RecursionError means that it is no such
                answer.
            cancelled: As in `call`.

        Raises:
            StoreError: As `call`.
        """
        api = self.client.http.client
        url = api.host.rstrip("/") + path.format(name=quote(collection, safe=""))

        def request() -> T:
            # Its own `request` parses every answer to dictionaries, which the garbage collector then looks through.
            sent = api._client.build_request(method, url, headers=_JSON, content=body)
            response = api.middleware(sent, api.send_inner)
            if not response.is_success:
                raise UnexpectedResponse.for_response(response)
            try:
                return read(response.content)
            except (ValueError, RecursionError) as error:
                raise ResponseHandlingException(error) from error

        return self.call(request, collection=collection, cancelled=cancelled)

    def collections(self) -> list[str]:
        """Names of all collections, sorted."""
        answer = self.call(self.client.get_collections)
        return sorted(collection.name for collection in answer.collections)

    def close(self) -> None:
        """Close the client if this connection made it, in this process."""
        if self.owner.is_here and not self._closed:
            if self._threads is not None:
                self._threads.shutdown(wait=True, cancel_futures=True)
            if self._owns_client:
                self.client.close()
        self._closed = True

    def _existing(self) -> list[str]:
        """Names for the message of a missing collection; none if the server does not tell."""
        try:
            answer = self._retry.call(self.client.get_collections, server_errors.can_heal)
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
    """Prepare a connection; sends nothing yet. Arguments as in `ServerStore.connect`.

    Raises:
        SettingsError: If the URL is none, holds a secret, or would carry the key in plain text to another host; or if
            the file of the authority cannot be read.
    """
    location, host, is_encrypted = _check_url(url)
    key = (api_key or "").strip() or None
    if key is not None:
        _check_key(key, host, is_safe=is_encrypted or _is_loopback(host), allow_plain_http=allow_plain_http)
    exact = httpx.Timeout(timeout, connect=min(timeout, _CONNECT_TIMEOUT_S)).as_dict()

    def limit_times(request: httpx.Request) -> None:
        request.extensions["timeout"] = exact  # qdrant-client rounds its timeout up to whole seconds

    trust: dict[str, Any] = {"verify": _trusting(ca_file)} if ca_file else {}
    client = QdrantClient(
        url=location,
        timeout=math.ceil(timeout),
        prefer_grpc=False,
        check_compatibility=False,
        # As a header rather than as api_key=, which warns about loopback too.
        headers={**({"api-key": key} if key else {}), **({} if compress else _PLAIN)},
        limits=_LIMITS,
        event_hooks={"request": [limit_times]},
        trust_env=not _is_loopback(host),  # what stays on this machine goes through no proxy
        **trust,
    )
    return Connection(client, location=location, retry=retry, secret=key, owns_client=True)


def _check_key(key: str, host: str, *, is_safe: bool, allow_plain_http: bool) -> None:
    """Refuse a key that cannot be sent, or that anyone on the way could read."""
    if not (key.isascii() and key.isprintable()):
        raise SettingsError("The API key holds characters that no HTTP header may carry. Check QDRANT_API_KEY.")
    if is_safe:
        return
    if not allow_plain_http:
        raise SettingsError(
            f"Refusing to send the API key over plain HTTP to {host}: anyone on the way could read it. Use https://, "
            f"or reach the server through a tunnel on localhost. Inside a private network, such as that of a compose "
            f"file, allow it with PEARL_QDRANT_ALLOW_PLAIN_HTTP=1."
        )
    _log.warning("The API key goes over plain HTTP to %s, as allowed: right in a private network alone", host)


def _trusting(ca_file: str) -> ssl.SSLContext:
    """TLS that trusts one authority more."""
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            f"The authority's certificates cannot be read from {ca_file}: {error}. Name a file in PEM format in "
            f"PEARL_QDRANT_CA."
        ) from error
    return context


def _check_url(url: str) -> tuple[str, str, bool]:
    """The URL without a trailing slash, its host, and whether it is encrypted."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise SettingsError("The store's URL cannot be read. It looks like http://localhost:6333.") from error
    if parts.username or parts.password or parts.query or parts.fragment:
        raise SettingsError(
            f"The URL of the store at {host} carries a user, password, query or fragment. "
            f"Give the plain URL, and the key in QDRANT_API_KEY."
        )
    if parts.scheme not in ("http", "https") or not host:
        raise SettingsError(f"The store's URL '{url}' must begin with http:// or https:// and name a host.")
    return url.rstrip("/"), host, parts.scheme == "https"


def _is_loopback(host: str) -> bool:
    """Whether the host is this machine, by its name or address alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_local(client: QdrantClient) -> bool:
    """Whether this client is the local mode, which has no REST client."""
    try:
        return client.http is None
    except NotImplementedError:
        return True
