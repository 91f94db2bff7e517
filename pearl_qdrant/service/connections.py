"""Connections of clients: how large the head of a request may be, how long it may take, how many there may be.

uvicorn with httptools bounds none of these. All of them hold before a request has an application, and so before keys.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from pearl_qdrant.service.answers import json_answer
from pearl_qdrant.service.settings import ServiceSettings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

HEAD_BYTES = 1 << 15
"""Largest head: the URL, which may have queries of reconciliation, and all headers."""

PIPELINED = 16
"""Requests that may wait behind one that is being answered; hardly any client sends a second one."""

_RESERVE = 16
"""Connections beyond the limit that are answered with 503 where all others are at work; further ones are cut off."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one process.

    Attributes:
        connections: Most connections.
        head_s: Time of a head, and of a client that reads nothing of its answer, in seconds.
    """

    connections: int
    head_s: float

    @classmethod
    def of(cls, settings: ServiceSettings) -> ConnectionLimits:
        """Those of the settings; half of the file descriptors of the process stay for the store."""
        most = settings.max_connections
        if sys.platform != "win32":
            import resource

            descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            if descriptors != resource.RLIM_INFINITY:
                most = min(most, max(1, descriptors // 2))
        return cls(most, settings.head_s)


class Connection(HttpToolsProtocol):
    """A connection with limits. Where there are too many, the one that has waited longest for its client gives way."""

    def __init__(self, *given: Any, limits: ConnectionLimits, **named: Any) -> None:
        super().__init__(*given, **named)
        self._limits = limits
        self._served = self.app
        self._head_bytes: int | None = 0  # None: a body is being read
        self._is_refused = False
        self._waits_since = self.loop.time()
        self._was_waiting = False
        self._unsent = 0
        self._tick: asyncio.TimerHandle | None = None

    @property
    def _is_waiting(self) -> bool:
        """Whether nothing is being answered."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first head, which its declaration forgets
        return cycle is None or cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._tick = self.loop.call_later(self._limits.head_s / 2, self._look)
        if self._n_over <= 0:
            return
        others = [one for one in self._open if one is not self and (one._is_waiting or one.cycle.more_body)]
        if others:
            min(others, key=lambda one: one._waits_since).transport.close()
        elif self._n_over > _RESERVE:
            transport.abort()

    @property
    def _open(self) -> list[Connection]:
        """The connections that are not being closed."""
        return [one for one in cast("set[Connection]", self.connections) if not one.transport.is_closing()]

    @property
    def _n_over(self) -> int:
        """How many connections there are beyond the limit; 0 or less: none."""
        most = self._limits.connections
        return len(self.connections) - most if len(self.connections) <= most else len(self._open) - most

    def connection_lost(self, exc: Exception | None) -> None:
        if self._tick is not None:
            self._tick.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return  # it is read, so that the client can read why
        if self._head_bytes is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes is not None and self._head_bytes > HEAD_BYTES:
            self._refuse(*_TOO_LARGE)

    def on_headers_complete(self) -> None:
        self._head_bytes, self._was_waiting = None, False
        if len(self.pipeline) >= PIPELINED:
            raise ValueError("too many requests at once")  # uvicorn answers 400, and closes
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > HEAD_BYTES:
            self.app, self.url = _answering(*_TOO_LARGE), b"/"  # uvicorn cannot read a URL over 64 KB
        elif self._n_over > 0:
            self.app = _answering(*_BUSY)
        else:
            self.app = self._served
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._head_bytes = 0

    def on_response_complete(self) -> None:
        self._waits_since = self.loop.time()
        super().on_response_complete()

    def _look(self) -> None:
        """End a connection that has waited for a head since the last look, or whose client reads nothing."""
        unsent = self.transport.get_write_buffer_size()
        if self._is_refused or 0 < self._unsent <= unsent:
            self.transport.abort()
            return
        if self._is_waiting and self._was_waiting:
            if self._head_bytes:
                self._refuse(*_SLOW)
            else:  # an answer would be taken for that of the next request
                self.transport.close()
        self._was_waiting, self._unsent = self._is_waiting, unsent
        self._tick = self.loop.call_later(self._limits.head_s / 2, self._look)

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer a head that is not complete, and read no more of it; the client ends the connection, or the next
        look does.
        """
        if not self._is_waiting:
            self.transport.abort()  # it sent the next request before it had its answer, which comes first
            return
        if self.transport.is_closing():
            return
        self._is_refused = True
        answer = _answer(status, code, message)
        lines = [f"HTTP/1.1 {status} {code}".encode()]
        lines += [name + b": " + value for name, value in answer.raw_headers]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(answer.body)]))
        self.transport.write_eof()


_TOO_LARGE = (431, "head_too_large", f"URL and headers have over {HEAD_BYTES:,} bytes. Send queries in a POST.")
_SLOW = (408, "slow_head", "The head of the request did not arrive in time.")
_BUSY = (
    503,
    "busy",
    "The service has as many connections as it takes (max_connections). Send the request again in 1 s.",
)


def _answer(status: int, code: str, message: str) -> Any:
    headers = {"Connection": "close", **({"Retry-After": "1"} if status == 503 else {})}
    return json_answer({"error": code, "message": message, "request_id": None}, status=status, headers=headers)


def _answering(status: int, code: str, message: str) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await _answer(status, code, message)(scope, receive, send)

    return app
