"""The connection to a Qdrant server: protects the key, retries requests, reads answers and translates errors.

Requests and answers are JSON, without qdrant-client: its models copy and check everything, and two queries with 64 hits
took twice as long.
"""

from __future__ import annotations

import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx
import msgspec
import orjson

from pearl_qdrant.errors import (
    CollectionNotFoundError,
    PearlQdrantError,
    SettingsError,
    StoreClosedError,
    StoreError,
    StoreRejectedError,
)
from pearl_qdrant.settings import OLDEST_SERVER, TESTED_SERVER
from pearl_qdrant.store.ownership import ProcessGuard
from pearl_qdrant.store.retry import RetryPolicy
from pearl_qdrant.store.server import errors as server_errors
from pearl_qdrant.store.server.answers import CollectionInfo, Names
from pearl_qdrant.store.server.errors import BadAnswerError
from pearl_qdrant.store.server.nodes import ONLY_NODE, Address, Nodes, parse_addresses

A = TypeVar("A")
T = TypeVar("T")

_log = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 2.5
"""To connect; shorter than the time-out of an answer, to notice a host that drops packets."""

_LOG_EVERY_S = 30.0

_SEARCH_THREADS = 3
"""Requests of one batch of mentions that are in flight at the same time."""

_UNCOMPRESSED = {"Accept-Encoding": "identity"}
"""A server compresses while it sends, in chunks. On a kept-alive connection the last chunk waits for an acknowledgement
that the client's kernel delays by 40 ms, and a link takes several requests."""

_JSON = {"Content-Type": "application/json"}

_LIMITS = httpx.Limits(max_connections=32, max_keepalive_connections=8)
"""Uploads use four connections, a service some more. Idle ones are kept: a new one costs one to three round trips."""


class _Answer(msgspec.Struct, Generic[T], gc=False):
    """An answer of the server."""

    result: T


@cache
def _decoder(kind: Any) -> Callable[[bytes], _Answer[Any]]:
    """Return what reads answers whose result is of this type."""
    return msgspec.json.Decoder(_Answer[kind]).decode


class Connection:
    """A server, or several nodes of one, with a retry policy. Thread-safe.

    Attributes:
        location: URLs without any key, with commas between.
        addresses: The same, parsed.
        redact: Removes the key from a text that came from the server.
        known_versions: Versions of collections that were seen on the server (`current.py`).
        guard: Refuses use in a forked process: two processes on one connection would read each other's answers.
    """

    def __init__(
        self, http: httpx.Client, addresses: Sequence[Address], *, retry: RetryPolicy, secret: str | None = None
    ) -> None:
        self._http = http
        self.addresses = tuple(addresses)
        self.location = ",".join(one.url for one in addresses)
        self._retry = retry
        self.redact = server_errors.make_redactor(secret)
        self._closed = False
        self._is_checked = False
        self.known_versions: set[str] = set()
        self.guard = ProcessGuard(f"The store {self.location}")
        self._last_logged: float | None = None
        self._waiting_lock = threading.Lock()
        self._threads = ThreadPoolExecutor(_SEARCH_THREADS, thread_name_prefix="pearl-qdrant-search")

    def __repr__(self) -> str:
        return f"Connection({self.location!r})"

    def ask(
        self,
        kind: type[T],
        method: str,
        path: str,
        body: Mapping[str, object] | bytes | None = None,
        *,
        name: str = "",
        collection: str | None = None,
        timeout_s: float | None = None,
        cancelled: threading.Event | None = None,
    ) -> T:
        """Send a request, with retries where these can help, and return the result in its answer.

        Args:
            kind: Type of the result, for msgspec.
            method: As in "POST".
            path: As in "/collections/{name}/points"; the server's name of the collection takes the place of `{name}`.
            body: What is sent as JSON, or the JSON; must be safe to send twice.
            name: The server's name of the collection.
            collection: Its name in an error; None: the same.
            timeout_s: For the answer to one try, in seconds; None: that of all requests.
            cancelled: Once set, stops waits and retries.

        Raises:
            StoreError: If the request failed, or the answer has another form.
            StoreForkedError: If another process made the connection.
            StoreClosedError: If it is closed.
        """
        path = path.format(name=quote(name, safe=""))
        content = json.dumps(body).encode() if isinstance(body, Mapping) else body
        read: Callable[[bytes], _Answer[T]] = _decoder(kind)  # type: ignore[arg-type] # a type is hashable

        def request() -> T:
            with self.stream(method, path, content, timeout_s=timeout_s) as response:
                answer = response.read()
            try:
                return read(answer).result
            except (ValueError, RecursionError) as error:
                raise BadAnswerError(str(error)) from error

        return self.call(request, collection=collection or name or None, cancelled=cancelled)

    def bad_answer(self, what: str, collection: str) -> StoreError:
        """Make the error for an answer that has the form, but not the content, of the server's."""
        return server_errors.translate(
            BadAnswerError(what), url=self.location, collection=collection, redact=self.redact
        )

    def call(
        self,
        request: Callable[[], T],
        *,
        collection: str | None = None,
        cancelled: threading.Event | None = None,
    ) -> T:
        """Run a request, which must be safe to repeat; as `ask`, which says more."""
        self.guard.check()
        if self._closed:
            raise StoreClosedError(f"The store {self.location} was closed. Open it again.")
        if not self._is_checked:
            self._check_version()
        return self._call(request, collection=collection, cancelled=cancelled)

    def _call(
        self,
        request: Callable[[], T],
        *,
        collection: str | None = None,
        cancelled: threading.Event | None = None,
    ) -> T:
        try:
            result = self._retry.call(
                request,
                server_errors.is_transient,
                retry_after=server_errors.retry_after_s,
                is_unreachable=server_errors.is_unreachable,
                needs_no_wait=server_errors.needs_no_wait,
                on_wait=self._log_waiting,
                cancelled=cancelled,
            )
        except PearlQdrantError:
            raise
        except server_errors.FAILURES as error:
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
        return map(do, items) if len(items) < 2 else self._threads.map(do, items)

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
        """Send a request once, in a `call`; the block reads the answer.

        Args:
            method, body, timeout_s: As for `ask`.
            path: As the server has it, quoted.
            node: Number of the only address that may answer; None: any.

        Raises:
            StatusError: If it is answered with another status than one of success.
            httpx.HTTPError: If it is not answered.
        """
        sent = self._http.build_request(
            method,
            self.addresses[0].base + path,
            headers=_JSON if body else None,
            content=body,
            timeout=self._http.timeout if timeout_s is None else httpx.Timeout(timeout_s, connect=_CONNECT_TIMEOUT_S),
            extensions=None if node is None else {ONLY_NODE: node},
        )
        response = self._http.send(sent, stream=True)
        try:
            if not response.is_success:
                response.read()
                raise server_errors.StatusError(response)
            yield response
        finally:
            response.close()

    def version(self, node: int | None = None) -> str:
        """Ask for the release of the server, or of the node with this number; raises StoreError."""

        def ask() -> str:
            try:
                with self.stream("GET", "/", node=node) as response:
                    return str(orjson.loads(response.read())["version"])
            except (ValueError, LookupError, TypeError) as error:
                raise BadAnswerError(str(error)) from error

        return self._call(ask)

    def _check_version(self) -> None:
        """Refuse a server that is too old, and note one that is newer than those that were tried."""
        try:
            found = self.version()
        except StoreRejectedError as error:
            if isinstance(error.__cause__, httpx.HTTPError):
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

    def info(self, physical: str) -> CollectionInfo:
        """Return what the server says of a collection, by its own name for it."""
        return self.ask(CollectionInfo, "GET", "/collections/{name}", name=physical)

    def merge_metadata(
        self, physical: str, metadata: Mapping[str, object], *, indexing_threshold: int | None = None
    ) -> None:
        """Change keys of a collection's metadata, and a setting, in one request; None removes a key."""
        body: dict[str, object] = {"metadata": metadata}
        if indexing_threshold is not None:
            body["optimizers_config"] = {"indexing_threshold": indexing_threshold}
        self.ask(object, "PATCH", "/collections/{name}", body, name=physical)

    def collections(self) -> list[str]:
        """Return the names of all collections, sorted."""
        return sorted(one.name for one in self.ask(Names, "GET", "/collections").collections)

    def has(self, physical: str) -> bool:
        """Whether there is a collection or alias of this name."""
        found = self.ask(dict[str, bool], "GET", "/collections/{name}/exists", name=physical)
        return found.get("exists", False)

    def close(self) -> None:
        """Close all connections, in the process that made them."""
        if self.guard.is_owner and not self._closed:
            self._threads.shutdown(wait=True, cancel_futures=True)
            self._http.close()
        self._closed = True

    def _existing(self) -> list[str]:
        """Return the names for the message of a missing collection; none if the server does not answer."""
        with suppress(StoreError):
            return self.collections()
        return []


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
    """Make a connection; sends nothing yet. Arguments and errors as for `ServerStore.connect`."""
    addresses = parse_addresses(url)
    key = (api_key or "").strip() or None
    for address in addresses if key is not None else ():
        _check_key(key or "", address, allow_plain_http=allow_plain_http)
    verify = _tls_context(ca_file) if ca_file else True
    network: dict[str, Any]
    if len(addresses) > 1:
        network = {"transport": Nodes(addresses, httpx.HTTPTransport(verify=verify, limits=_LIMITS))}
    else:
        # requests to this machine use no proxy
        network = {"verify": verify, "limits": _LIMITS, "trust_env": not addresses[0].is_loopback}
    http = httpx.Client(
        headers={**({"api-key": key} if key else {}), **({} if compress else _UNCOMPRESSED)},
        timeout=httpx.Timeout(timeout, connect=min(timeout, _CONNECT_TIMEOUT_S)),
        **network,
    )
    return Connection(http, addresses, retry=retry, secret=key)


def parse_release(release: str) -> tuple[int, int]:
    """Parse major and minor version; 0 for a part that is not a number."""
    parts = [int(part) if part.isdigit() else 0 for part in release.split(".")[:2]]
    return parts[0], parts[1] if len(parts) > 1 else 0


def _check_key(key: str, address: Address, *, allow_plain_http: bool) -> None:
    """Refuse a key that cannot be sent, or that others on the network could read."""
    if not (key.isascii() and key.isprintable()):
        raise SettingsError(
            "The API key holds characters that are not allowed in an HTTP header. Check QDRANT_API_KEY."
        )
    if address.is_encrypted or address.is_loopback:
        return
    host = address.host
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
