"""What every request passes: its id, its host, its key, the limits of its body and of how many are being answered, its
log line and its metrics.

A page of another site can point its own name at this machine (DNS rebinding); the header Host has the name that the
browser asked for. An address is no name that a site could point elsewhere, so that addresses are always allowed.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fastapi import Request
from pydantic import SecretStr

from pearl_qdrant.errors import PearlQdrantError, SettingsError
from pearl_qdrant.service.answers import error_answer, problem
from pearl_qdrant.service.connections import most_connections, network_of
from pearl_qdrant.service.lanes import asking
from pearl_qdrant.service.observing import Metrics, describe_request, facts, request_id
from pearl_qdrant.service.settings import ServiceError, ServiceSettings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("pearl_qdrant.service.access")

KEYS_VARIABLE = "PEARL_QDRANT_SERVICE_KEYS"  # The variable with the keys, separated by white space or commas
MIN_KEY_CHARACTERS = 16  # A shorter key can be guessed

PUBLIC = ("/", "/health/live", "/health/ready", "/openapi.json", "/docs")
"""Paths that need no key; nor do the files of the page."""

NEEDS_NO_KEY = "pearl_qdrant.needs_no_key"
"""Key of a scope whose request passes without a key: one for a manifest of reconciliation."""

HAS_KEY = "pearl_qdrant.has_key"  # Key of a scope: whether it has a valid key, or no key is needed for its path
REQUEST_ID = "pearl_qdrant.request_id"  # Key of a scope for the id of its request

_VALID_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")

_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
"""Methods that are counted by name; a client may send any word, and each would be a series of its own."""

_OF_A_BODY = frozenset((b"content-length", b"transfer-encoding"))
"""A request without any of these headers has no body (RFC 9112)."""

_DRAINED = 8
"""How many times the limit of a body is read and dropped, so that a client that sends too much sees the answer."""

_BODIES_BYTES = 16 << 20
"""Bodies that arrive, all together, but at least four of the largest; if there is more, the largest is refused."""

_ALWAYS = frozenset(("/health/live", "/health/ready", "/metrics"))  # Paths that are answered however busy it is

Headers = Iterable[tuple[bytes, bytes]]


def read_keys(
    path: str | os.PathLike[str] | None = None, environment: Mapping[str, str] = os.environ
) -> tuple[SecretStr, ...]:
    """The keys of the service: those of a file, one a line, with # for comments, and those of the environment. Raises
    SettingsError if the file cannot be read or has no key, or a key is too short or not plain ASCII.
    """
    found = environment.get(KEYS_VARIABLE, "").replace(",", " ").split()
    if path is not None:
        try:
            lines = Path(path).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"The file of API keys {path} cannot be read: {error}", option="api_keys") from error
        of_file = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if not of_file:
            raise SettingsError(f"The file of API keys {path} has no key. Write one a line.", option="api_keys")
        found += of_file
    for number, key in enumerate(found, start=1):
        if len(key) < MIN_KEY_CHARACTERS or not (key.isascii() and key.isprintable()) or " " in key:
            raise SettingsError(
                f"API key {number} has fewer than {MIN_KEY_CHARACTERS} characters, or others than printable ASCII. "
                f"Make one with: openssl rand -hex 32",
                option="api_keys",
            )
    return tuple(SecretStr(key) for key in dict.fromkeys(found))


def _given_keys(headers: Headers) -> Iterable[bytes]:
    for name, value in headers:
        if name == b"x-api-key":
            yield value.strip()
        elif name == b"authorization":
            scheme, _, key = value.strip().partition(b" ")
            yield key.strip() if scheme.lower() == b"bearer" else b""  # another scheme is no key, and does not pass


def has_valid_key(keys: Sequence[bytes], path: str, headers: Headers) -> bool:
    """Whether a request may pass; without keys, every one. `headers` have names in small letters."""
    if not keys or path in PUBLIC or path.startswith("/page/"):
        return True
    # In constant time; a wrong key beside a right one is a mistake that its client should see.
    valid = [sum(hmac.compare_digest(given, key) for key in keys) > 0 for given in _given_keys(headers)]
    return bool(valid) and all(valid)


def _is_allowed(given: str, names: Collection[str]) -> bool:
    """Whether a host is an address, or one of some names, localhost among them."""
    try:
        host = (urlsplit(f"//{given}").hostname or "").removesuffix(".")
        if "@" in given or "/" in given:
            return False
        return host in names or host.endswith(".localhost") or bool(ip_address(host))
    except ValueError:  # no host, or no address
        return False


def check_host(names: Collection[str], headers: Headers) -> None:
    """Refuse a request for another host; one that names none, as of HTTP/1.0, is from no browser."""
    for given in (value.decode("latin-1") for name, value in headers if name == b"host" and value):
        if not ("*" in names or _is_allowed(given, names)):
            raise ServiceError(
                f"The service does not answer for the host {given[:100]!r}. Ask it by its address or by localhost, "
                f"or start it with the names that it has in allowed_hosts or public_url.",
                status=421,
                code="host_not_allowed",
            )


class Gate:
    """Middleware around the whole application."""

    def __init__(self, app: ASGIApp, settings: ServiceSettings, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._keys = [key.get_secret_value().encode("ascii") for key in settings.api_keys]
        public = urlsplit(settings.public_url or "").hostname
        named = ("localhost", settings.host, *([public] if public else ()), *settings.allowed_hosts)
        self._hosts = frozenset(name.lower() for name in named)
        self._most = max(1, most_connections() * 3 // 4)  # requests that are being answered
        self._answering: Counter[str] = Counter()  # by address
        self._arriving: dict[asyncio.Future[Any], int] = {}  # bytes of bodies, by what reads them

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        number = given.decode() if _VALID_ID.fullmatch(given) else os.urandom(16).hex()
        scope[REQUEST_ID] = number
        token = request_id.set(number)
        describe_request(number, has_query=bool(scope["query_string"]))
        answer = _Answer(send, number)
        self._metrics.in_flight.inc()
        try:
            await self._pass(scope, receive, answer)
        finally:
            self._metrics.in_flight.dec()
            self._report(scope, answer.status, time.perf_counter() - start)
            request_id.reset(token)

    async def _pass(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        request = Request(scope)
        network = network_of((scope.get("client") or (None,))[0])
        asking.set((network, next(iter(_given_keys(scope["headers"])), b"") if self._keys else b""))
        try:
            check_host(self._hosts, scope["headers"])
            scope[HAS_KEY] = has_valid_key(self._keys, scope["path"], scope["headers"])
            if not (scope[HAS_KEY] or scope.get(NEEDS_NO_KEY)):
                text = "A valid API key is missing. Send it in a header: Authorization: Bearer KEY, or X-API-Key: KEY."
                raise ServiceError(text, status=401, code="unauthorized")
            body = await self._read_in_time(scope, receive)
        except PearlQdrantError as error:
            await error_answer(request, error)(scope, receive, answer)
            return
        if body is None:
            return  # the client has hung up
        try:
            with self._counted(network, scope["path"]):
                await self._app(scope, _replaying(body, receive), answer)
        except ServiceError as error:  # too many are being answered
            await error_answer(request, error)(scope, receive, answer)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if answer.status is None:
                text = "The service failed; its log has the reason under this request_id."
                await problem(request, 500, "internal", text)(scope, receive, answer)

    @contextmanager
    def _counted(self, network: str, path: str) -> Iterator[None]:
        """Count a request that is being answered. Raises ServiceError if there are too many, of all or of its network,
        which may have two thirds.
        """
        if path in _ALWAYS:
            yield
            return
        is_full = self._answering.total() >= self._most or self._answering[network] >= max(1, self._most * 2 // 3)
        if is_full:
            text = "Too many requests are being answered, of all clients or of this address. Send it again in 1 s."
            raise ServiceError(text, status=503, code="busy", retry_after_s=1)
        self._answering[network] += 1
        try:
            yield
        finally:
            self._answering[network] -= 1
            if not self._answering[network]:
                del self._answering[network]

    async def _read_in_time(self, scope: Scope, receive: Receive) -> bytes | None:
        """The body; None if the client hung up; an error if it takes too long, or is too large."""
        if not any(name in _OF_A_BODY for name, _ in scope["headers"]):  # where there is none, nothing is waited for
            return await self._read(receive)
        reading = asyncio.ensure_future(self._read(receive))
        self._arriving[reading] = 0
        try:
            await asyncio.wait([reading], timeout=self._settings.timeout_s)
            if not reading.done():
                raise ServiceError("The body did not arrive in time.", status=408, code="slow_body")
            if reading.cancelled():
                text = "Too many bodies arrive at the same time. Send it again in 1 s."
                raise ServiceError(text, status=503, code="busy", retry_after_s=1)
            return reading.result()
        finally:
            reading.cancel()
            del self._arriving[reading]

    async def _read(self, receive: Receive) -> bytes | None:
        """The body; None if the client hung up; an error if it is over the limit."""
        allowed = self._settings.max_body_bytes
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part = message.get("body", b"")
            size += len(part)
            if size <= allowed:
                parts.append(part)
            else:
                parts.clear()
            if not message.get("more_body") or size > _DRAINED * allowed:
                break
            self._make_room(size if parts else 0)
        if size > allowed:
            limit, most = "max_body_bytes", f"{allowed:,} bytes"
            text = f"The body is over the limit {limit}: allowed are {most}. Send less in one request."
            raise ServiceError(text, status=413, code="body_too_large", limit=limit, allowed=allowed)
        return b"".join(parts)

    def _make_room(self, size: int) -> None:
        """Note how much has arrived of the body that this task reads; if all are too much, the largest is refused."""
        reading = asyncio.current_task()
        if reading in self._arriving:
            self._arriving[reading] = size
            if sum(self._arriving.values()) > max(_BODIES_BYTES, 4 * self._settings.max_body_bytes):
                largest = max(self._arriving, key=self._arriving.__getitem__)
                self._arriving[largest] = 0
                largest.cancel()

    def _report(self, scope: Scope, status: int | None, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        shown = 499 if status is None else status  # 499: the client hung up before the answer, as nginx has it
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.requests.labels(method, route, shown).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        if not log.isEnabledFor(logging.INFO):
            return
        client, ms = (scope.get("client") or (None,))[0], round(seconds * 1000, 1)
        told = facts(method=scope["method"], path=scope["path"], status=shown, ms=ms, client=client)
        # `log.info` looks for the line that calls it, which takes longer than all else here.
        log.handle(log.makeRecord(log.name, logging.INFO, __file__, 0, "request", (), None, extra=told))


class _Answer:
    """Sends an answer, with the id of the request in a header; knows its status."""

    def __init__(self, send: Send, number: str) -> None:
        self._send = send
        self._number = number.encode()
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), (b"x-request-id", self._number)]
            message = {**message, "headers": headers}
        await self._send(message)


def _replaying(body: bytes, receive: Receive) -> Any:
    is_given = False

    async def replay() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
