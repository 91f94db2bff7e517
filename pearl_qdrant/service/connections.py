"""The HTTP server: uvicorn with h11, and what neither has: the time of a head, and how many connections there may be.

h11 bounds the bytes of a head, of trailers and of what stands before a chunk (400), uvicorn the time of an idle
connection that had an answer. Here their lines are bounded, too, and a connection that waits for its client gives way
when there are too many: the one that has waited longest, of the address that has most. So whoever holds connections
open takes them from himself.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any, cast

import h11
import uvicorn
from h11._receivebuffer import ReceiveBuffer
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from pearl_qdrant.service.answers import json_answer
from pearl_qdrant.service.observing import Metrics, facts

if TYPE_CHECKING:
    from starlette.types import ASGIApp

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 512  # of a process; fewer where it may open few files
HEAD_BYTES = 1 << 15  # Largest head: the URL, which may have queries of reconciliation, and all headers
MOST_LINES = 128  # of a head, or of trailers
MOST_CHUNKS = 4096  # of a body, and one more for each `_CHUNK_BYTES`; a client may send each of 1,000 mentions in a few
_CHUNK_BYTES = 64
HEAD_S = 10.0  # Seconds for a head, and for a client that reads nothing of its answer
UNSENT_BYTES = 64 << 20  # Answers that wait for their clients to read them, at most
_LOOK_S = 1.0  # Seconds between two looks at all connections
_MOST_LINES = 20  # Lines of the log at each look

METRICS = "metrics"
"""Key of the lifespan's state for the `Metrics` in which refused connections are counted."""

_OPEN_FILES = 4096  # Enough for the connections, the collections and a burst of new connections


def most_connections() -> int:
    """How many connections a process takes: half of the files that it may open stay for the store."""
    return min(MOST_CONNECTIONS, max(1, _open_files() // 2))


def _open_files() -> int:
    """How many files the process may open."""
    if sys.platform == "win32":
        return _OPEN_FILES
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _OPEN_FILES if soft == resource.RLIM_INFINITY else soft


def _allow_open_files() -> None:
    """Raise the soft limit of open files as far as the hard one allows."""
    if sys.platform == "win32" or _open_files() >= _OPEN_FILES:
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def network_of(address: str | None) -> str:
    """Whose address it is: of IPv6 the first 64 bits, since each customer has that many; "" if it is unknown."""
    try:
        found = ip_address(address or "")
    except ValueError:
        return address or ""
    if not isinstance(found, IPv6Address):
        return str(found)
    return str(found.ipv4_mapped or IPv6Address(int(found) >> 64 << 64))


def guarded_config(app: Callable[[], ASGIApp], **given: Any) -> uvicorn.Config:
    """How uvicorn runs the application that a function makes, with all limits of connections; allows open files."""
    _allow_open_files()
    guard = Guard(most_connections())
    return uvicorn.Config(
        app,
        factory=True,
        http=cast("type[asyncio.Protocol]", partial(Connection, guard=guard)),
        h11_max_incomplete_event_size=HEAD_BYTES,
        ws="none",
        backlog=min(2048, max(16, _open_files() // 4)),  # as many may be accepted before the first one gives way
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        **given,
    )


def run_guarded(app: Callable[[], ASGIApp], **given: Any) -> None:
    """Run an application in this process until it is stopped; arguments as of `guarded_config`."""
    uvicorn.Server(guarded_config(app, **given)).run()


class Guard:
    """Looks after the connections of a process, at most `most`; counts and logs the refused ones."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[str, dict[Connection, None]] = {}  # of each address, the one first that waits longest
        self._n_held = 0
        self._refused: Counter[tuple[str, str]] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, new: Connection) -> None:
        """Hold a connection; where there are too many, one gives way."""
        self._held.setdefault(new.network, {})[new] = None
        self._n_held += 1
        if self._timer is None:
            self._timer = new.loop.call_later(_LOOK_S, self._look, new.loop)
        if self._n_held > self._most:
            by_number = sorted(self._held.values(), key=len, reverse=True)
            waiting = (one for some in by_number for one in some if one.waits and one is not new)
            next(waiting, new).end("too_many_connections")

    def has_answered(self, one: Connection) -> None:
        """A connection waits for its client from now on."""
        if self.drop(one):
            self._held.setdefault(one.network, {})[one] = None
            self._n_held += 1

    def drop(self, one: Connection) -> bool:
        """Hold a connection no more; returns False if it was not held."""
        of_network = self._held.get(one.network, {})
        if one not in of_network:
            return False
        del of_network[one]
        if not of_network:
            del self._held[one.network]
        self._n_held -= 1
        return True

    def count(self, reason: str, network: str) -> None:
        """Count a connection that was refused or ended."""
        self._refused[reason, network] += 1

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(_LOOK_S, self._look, loop) if self._held else None
        held = [one for some in self._held.values() for one in some]
        for one in held:
            one.look()
        held.sort(key=lambda one: one.unsent)
        while sum(one.unsent for one in held) > UNSENT_BYTES:
            held.pop().end("slow_reader")
        for (reason, network), n in self._refused.most_common(_MOST_LINES):
            log.warning("connections were refused", extra=facts(reason=reason, client=network, n=n))
        self._refused.clear()


class _Arrived(ReceiveBuffer):
    """What has arrived and was not read yet. Whoever cuts it into very small pieces would hold the event loop."""

    _left = MOST_CHUNKS

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """The lines of a head, or of trailers. Raises LocalProtocolError if there are too many."""
        self._left = MOST_CHUNKS
        if (lines := super().maybe_extract_lines()) is not None and len(lines) > MOST_LINES:
            raise h11.LocalProtocolError("too many lines")
        return lines

    def maybe_extract_next_line(self) -> bytearray | None:
        """The line before a chunk. Raises LocalProtocolError if there are too many."""
        if (line := super().maybe_extract_next_line()) is not None:
            self._left -= 1
            if self._left < 0:
                raise h11.LocalProtocolError("too many chunks")
        return line

    def maybe_extract_at_most(self, count: int) -> bytearray | None:
        """A part of a body."""
        if (part := super().maybe_extract_at_most(count)) is not None:
            self._left += len(part) // _CHUNK_BYTES
        return part


class Connection(H11Protocol):
    """A connection that gives way, and whose client has a limited time."""

    def __init__(self, *given: Any, guard: Guard, **named: Any) -> None:
        super().__init__(*given, **named)
        self.conn._receive_buffer = _Arrived()
        self._guard = guard
        self.waits_since = self.loop.time()
        self.network = ""  # whose connection it is
        self.unsent = 0  # bytes of answers that the client had not read at the last look
        self._reads_since = self.waits_since

    @property
    def _has_no_head(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first head, which its declaration forgets
        return cycle is None or cycle.response_complete

    @property
    def waits(self) -> bool:
        """Whether its client is waited for: for a head, for the rest of a body, or until it reads its answer."""
        return self._has_no_head or self.cycle.more_body or self.transport.get_write_buffer_size() > 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.network = network_of(self.client[0] if self.client else None)
        self._guard.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._guard.drop(self)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self.waits_since = self.loop.time()
        self._guard.has_answered(self)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, or has no end."""
        most = f"a head of over {HEAD_BYTES:,} bytes or {MOST_LINES} lines, or over {MOST_CHUNKS:,} tiny chunks"
        self._refuse(400, "bad_request", f"This is no HTTP, or has {most}.")

    def look(self) -> None:
        """End a connection whose client is slow."""
        before, self.unsent = self.unsent, self.transport.get_write_buffer_size()
        is_late = self.loop.time() - self.waits_since > HEAD_S
        if self._has_no_head and is_late and not self.unsent and not self.transport.is_closing():
            if self.conn.trailing_data[0]:
                self._refuse(408, "slow_head", f"The head of the request did not arrive within {HEAD_S:g} s.")
            else:  # an answer would be taken for that of the next request
                self.end("idle")
        if not 0 < before <= self.unsent:
            self._reads_since = self.loop.time()
        elif self.loop.time() - self._reads_since > HEAD_S:
            self.end("slow_reader")

    def end(self, reason: str) -> None:
        """Close it without an answer, at once."""
        self._count(reason)
        self._guard.drop(self)
        self.transport.abort()

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer an error, if no answer has begun, and close."""
        self._count(code)
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = json_answer({"error": code, "message": message, "request_id": None}, status=status)
            headers = [*answer.raw_headers, (b"connection", b"close")]
            events = (
                h11.Response(status_code=status, headers=headers, reason=code.encode()),
                h11.Data(data=bytes(answer.body)),
                h11.EndOfMessage(),
            )
            self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        if not self._has_no_head:
            self.cycle.disconnected = True  # what waits for its body ends
            self.cycle.message_event.set()
        self.transport.close()

    def _count(self, reason: str) -> None:
        self._guard.count(reason, self.network)
        if (metrics := self.app_state.get(METRICS)) is not None:
            cast("Metrics", metrics).refused.labels(reason).inc()
