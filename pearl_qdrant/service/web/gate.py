"""What every request passes: its id, its host, its key, the limit of its body, its log line and its metrics."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from typing import TYPE_CHECKING, Any

from fastapi import Request

from pearl_qdrant.errors import PearlQdrantError
from pearl_qdrant.service.errors import BodyTooLargeError, TimedOutError, UnauthorizedError
from pearl_qdrant.service.observing.logs import facts, request_id
from pearl_qdrant.service.observing.metrics import Metrics
from pearl_qdrant.service.observing.traces import describe_request
from pearl_qdrant.service.settings import ServiceSettings
from pearl_qdrant.service.web.answers import error_answer, problem
from pearl_qdrant.service.web.hosts import HostCheck
from pearl_qdrant.service.web.keys import HAS_KEY, NEEDS_NO_KEY, KeyCheck

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("pearl_qdrant.service.access")

REQUEST_ID = "pearl_qdrant.request_id"
"""Key of a scope for the id of its request."""

_VALID_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")

_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
"""Methods that are counted by name; a client may send any word, and each would be a series of its own."""

_OF_A_BODY = frozenset((b"content-length", b"transfer-encoding"))
"""A request without any of these headers has no body (RFC 9112)."""

_DRAINED = 8
"""How many times the limit of a body is read and dropped, so that a client that sends too much sees the answer."""


class Gate:
    """Middleware around the whole application."""

    def __init__(self, app: ASGIApp, settings: ServiceSettings, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._keys = KeyCheck(settings.api_keys)
        self._hosts = HostCheck(settings)

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
        try:
            self._hosts.check(scope["headers"])
            scope[HAS_KEY] = self._keys.allows(scope["path"], scope["headers"])
            if not (scope[HAS_KEY] or scope.get(NEEDS_NO_KEY)):
                raise UnauthorizedError(
                    "A valid API key is missing. Send it in a header: Authorization: Bearer KEY, or X-API-Key: KEY."
                )
            body = await self._read_in_time(scope, receive)
        except PearlQdrantError as error:
            await error_answer(request, error)(scope, receive, answer)
            return
        if body is None:
            return  # the client has hung up
        try:
            await self._app(scope, _replaying(body, receive), answer)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if answer.status is None:
                text = "The service failed; its log has the reason under this request_id."
                await problem(request, 500, "internal", text)(scope, receive, answer)

    async def _read_in_time(self, scope: Scope, receive: Receive) -> bytes | None:
        """The body; None if the client hung up.

        Raises:
            BodyTooLargeError: If it is over the limit.
            SlowBodyError: If it takes too long.
        """
        if not any(name in _OF_A_BODY for name, _ in scope["headers"]):
            return await self._read(receive)  # there is none, so that nothing is waited for
        try:
            return await asyncio.wait_for(self._read(receive), self._settings.timeout_s)
        except (asyncio.TimeoutError, TimeoutError) as error:
            raise SlowBodyError("The body did not arrive in time.") from error

    async def _read(self, receive: Receive) -> bytes | None:
        """The body; None if the client hung up.

        Raises:
            BodyTooLargeError: If it is over the limit.
        """
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
        if size > allowed:
            raise BodyTooLargeError(allowed)
        return b"".join(parts)

    def _report(self, scope: Scope, status: int | None, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        shown = 499 if status is None else status  # 499: the client hung up before the answer, as nginx has it
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.requests.labels(method, route, shown).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        if not log.isEnabledFor(logging.INFO):
            return
        client = scope.get("client")
        told = facts(
            method=scope["method"],
            path=scope["path"],
            status=shown,
            ms=round(seconds * 1000, 1),
            client=client[0] if client else None,
        )
        # `log.info` looks for the line that calls it, which takes longer than all else here.
        log.handle(log.makeRecord(log.name, logging.INFO, __file__, 0, "request", (), None, extra=told))


class SlowBodyError(TimedOutError):
    """The body of a request did not arrive in time."""

    status = 408
    code = "slow_body"


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
    """A `receive` that gives the body first."""
    is_given = False

    async def replay() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
