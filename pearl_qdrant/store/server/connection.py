"""The connection to a Qdrant server: protects the key, retries requests, and translates errors."""

from __future__ import annotations

import logging
import math
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar
from urllib.parse import quote

import httpx
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from pearl_qdrant.errors import (
    CollectionNotFoundError,
    PearlQdrantError,
    SettingsError,
    StoreClosedError,
    StoreError,
    StoreRejectedError,
)
from pearl_qdrant.settings import OLDEST_SERVER, TESTED_SERVER, ServerAccess
from pearl_qdrant.store.server import errors as server_errors
from pearl_qdrant.store.server.errors import RetryPolicy
from pearl_qdrant.store.server.nodes import CONNECT_TIMEOUT_S, ONLY_NODE, Key, Nodes, parse_addresses
from pearl_qdrant.store.system import ProcessGuard

A = TypeVar("A")
T = TypeVar("T")

_LOG_EVERY_S = 30.0
_SEARCH_THREADS = 3  # requests of one batch of mentions that are in flight at the same time

_UNCOMPRESSED = {"Accept-Encoding": "identity"}
"""A server compresses while it sends, in chunks. On a kept-alive connection the last chunk waits for an acknowledgement
that the client's kernel delays by 40 ms, and a link takes several requests."""

_LIMITS = httpx.Limits(max_connections=32, max_keepalive_connections=8)
"""Uploads use four connections, a service some more. Idle ones are kept: a new one costs one to three round trips."""

_log = logging.getLogger(__name__)


class Connection:
    """A server, or several nodes of one, with a retry policy. Thread-safe.

    What is called often is sent as plain JSON by `request` and `call_rest`, all else by `client`, a qdrant-client.
    `redact` removes the key from a text that came from the server.
    """

    def __init__(self, url: str, access: ServerAccess, *, timeout: float, retry: RetryPolicy) -> None:
        """Make a connection; sends nothing yet. Arguments and errors as of `ServerStore`."""
        self.addresses = parse_addresses(url)
        self.location = ",".join(one.url for one in self.addresses)
        self._retry = retry
        self._key = Key(access, self.addresses)
        self.redact = self._key.redact
        self._closed = False
        self._is_checked = False
        self.known_versions: set[str] = set()  # of collections, seen on the server (`versions.py`)
        self.guard = ProcessGuard(f"The store {self.location}")
        self._last_logged: float | None = None
        self._waiting_lock = threading.Lock()
        self._threads = ThreadPoolExecutor(_SEARCH_THREADS, thread_name_prefix="pearl-qdrant-search")

        times = httpx.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT_S))
        headers = {} if access.compress else _UNCOMPRESSED
        verify = _tls_context(access.ca_file) if access.ca_file else True
        proxy = self.addresses[0].proxy() if len(self.addresses) == 1 else None  # nodes of a cluster are near
        network = Nodes(self.addresses, httpx.HTTPTransport(verify=verify, limits=_LIMITS, proxy=proxy), self._key)

        def limit_times(request: httpx.Request) -> None:
            request.extensions["timeout"] = times.as_dict()  # qdrant-client rounds its timeout up to whole seconds

        self.client = QdrantClient(
            url=self.addresses[0].base,
            timeout=math.ceil(timeout),
            prefer_grpc=False,
            check_compatibility=False,
            headers=headers,
            event_hooks={"request": [limit_times]},
            limits=_LIMITS,
            transport=network,
        )
        self._http = httpx.Client(headers=headers, timeout=times, transport=network)

    def call(
        self, request: Callable[[], T], *, collection: str | None = None, cancelled: threading.Event | None = None
    ) -> T:
        """Run a request of the client, which is safe to repeat, with retries where these can help.

        `collection` is named in errors; once `cancelled` is set, there is no further wait or retry. Raises StoreError,
        translated from the client's error; StoreForkedError and StoreClosedError if the connection cannot be used.
        """
        self.guard.check()
        if self._closed:
            raise StoreClosedError(f"The store {self.location} was closed. Open it again.")
        if not self._is_checked:
            self._check_version()
        return self._call(request, collection=collection, cancelled=cancelled)

    def _call(
        self, request: Callable[[], T], *, collection: str | None = None, cancelled: threading.Event | None = None
    ) -> T:
        try:
            result = self._retry.call(request, on_wait=self._log_waiting, cancelled=cancelled)
        except PearlQdrantError:
            raise
        except server_errors.CLIENT_ERRORS as error:
            ours = server_errors.translate(error, url=self.location, collection=collection, redact=self.redact)
            if isinstance(ours, CollectionNotFoundError):
                with suppress(StoreError):
                    ours = CollectionNotFoundError(ours.collection, self.collections())
            # A server may repeat the key: with one, tracebacks do not show its answers.
            raise ours from None if self._key.value else error
        if self._last_logged is not None:
            self._last_logged = None
            _log.warning("Qdrant at %s answers again", self.location)
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
        budget = self._retry.budget_after(error)
        why = server_errors.describe(error, self.redact)
        what = "limits the rate of requests" if server_errors.is_rate_limited(error) else "does not answer"
        _log.warning("Qdrant at %s %s (%s): waiting, %.0f of %.0f s", self.location, what, why, seconds, budget)

    def map(self, do: Callable[[A], T], items: Sequence[A]) -> Iterable[T]:
        """Return the result of `do` for each item, in order. A few run at the same time: it is mostly waiting."""
        return map(do, items) if len(items) < 2 else self._threads.map(do, items)

    def call_rest(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        collection: str,
        read: Callable[[bytes], T],
        cancelled: threading.Event | None = None,
        is_series: bool = False,
    ) -> T:
        """Send a request as plain JSON: with qdrant-client's errors, but without its models; see `call`.

        Of a series of operations a server applies those before one that a limit of the rate refuses; all of them count
        again where it is sent again. So then it is a RequestTooLargeError.

        The path has `{name}` in the place of the collection's name. `read` turns the answer's body into the result;
        its ValueError or RecursionError means that the answer has another form.
        """
        path = path.format(name=quote(collection, safe=""))

        def request() -> T:
            # qdrant-client parses every answer into dictionaries, which the garbage collector then follows.
            try:
                content = self.request(method, path, body).content
            except UnexpectedResponse as error:
                if not is_series or not server_errors.is_rate_limited(error):
                    raise
                wait_s = self._retry.wait_s(1, server_errors.retry_after_s(error))
                message = f"Qdrant at {self.location} limits the rate of writes."
                raise server_errors.RequestTooLargeError(message, limits_items=True, wait_s=wait_s) from error
            try:
                return read(content)
            except (ValueError, RecursionError) as error:
                raise ResponseHandlingException(error) from error

        return self.call(request, collection=collection, cancelled=cancelled)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        timeout_s: float | None = None,
        node: int | None = None,
    ) -> httpx.Response:
        """Send a request of JSON once, to be called by `call`; the path is quoted.

        Its answer may take `timeout_s`, or as long as all requests. `node` is the number of the only address that may
        answer. Raises UnexpectedResponse for a status of failure, ResponseHandlingException without an answer.
        """
        with self.stream(method, path, body, timeout_s=timeout_s, node=node) as response:
            response.read()
            return response

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        timeout_s: float | None = None,
        node: int | None = None,
    ) -> Iterator[httpx.Response]:
        """Send a request whose answer the block reads; arguments and errors as for `request`."""
        times = self._http.timeout if timeout_s is None else httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        sent = self._http.build_request(
            method,
            self.addresses[0].base + path,
            headers={"Content-Type": "application/json"} if body else None,
            content=body,
            timeout=times,
            extensions=None if node is None else {ONLY_NODE: node},
        )
        try:
            response = self._http.send(sent, stream=True)
            try:
                if not response.is_success:
                    response.read()
                    raise UnexpectedResponse.for_response(response)
                yield response
            finally:
                response.close()
        except httpx.HTTPError as error:
            raise ResponseHandlingException(error) from error

    def version(self, node: int | None = None) -> str:
        """Ask for the release of the server, or of the node with this number; raises as `call`."""

        def ask() -> str:
            try:
                return str(self.request("GET", "/", node=node).json()["version"])
            except (ValueError, LookupError, TypeError) as error:
                raise ResponseHandlingException(error) from error

        return self._call(ask)

    def _check_version(self) -> None:
        """Refuse a server that is too old, and note one that is newer than those that were tried."""
        try:
            found = self.version()
        except StoreRejectedError as error:
            if isinstance(getattr(error.__context__, "source", None), httpx.HTTPError):
                raise  # what answers speaks no HTTP, or its certificate is not trusted
            found = ""  # a proxy that does not pass this on, or no Qdrant: the next request says it
        release, oldest, tested = map(parse_release, (found, OLDEST_SERVER, TESTED_SERVER))
        if (0, 0) < release < oldest:
            raise StoreRejectedError(
                f"Qdrant at {self.location} is {found}, and {OLDEST_SERVER} or later is needed (tested with "
                f"{TESTED_SERVER}). Update the server."
            )
        self._is_checked = True
        if release > tested:
            _log.warning("Qdrant at %s is %s; this program was tested with %s", self.location, found, TESTED_SERVER)

    def info(self, physical: str) -> models.CollectionInfo:
        return self.call(lambda: self.client.get_collection(physical), collection=physical)

    def collections(self) -> list[str]:
        answer = self.call(self.client.get_collections)
        return sorted(collection.name for collection in answer.collections)

    def close(self) -> None:
        if self.guard.is_owner and not self._closed:
            self._threads.shutdown(wait=True, cancel_futures=True)
            self.client.close()
            self._http.close()
        self._closed = True


def parse_release(release: str) -> tuple[int, int]:
    """Parse major and minor version; 0 for a part that is not a number."""
    parts = [int(part) if part.isdigit() else 0 for part in release.split(".")[:2]]
    return parts[0], parts[1] if len(parts) > 1 else 0


def _tls_context(ca_file: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            f"The certificates of the authority cannot be read from {ca_file}: {error}. Name a file in PEM format in "
            f"PEARL_QDRANT_CA."
        ) from error
    return context
