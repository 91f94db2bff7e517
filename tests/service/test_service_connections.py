"""Connections on real sockets: heads are bounded in size and time, connections in number, before any key."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import uvicorn
from edge_cases import wait_until
from fastapi import FastAPI

from pearl_qdrant.service import ServiceSettings, connections, create_app
from pearl_qdrant.service.connections import HEAD_BYTES, ConnectionLimits
from pearl_qdrant.service.run import server_config

WAIT_S = 60
"""Bounds a hang."""


class Listening:
    """A service on a port of its own."""

    def __init__(self, server: uvicorn.Server, may_answer: threading.Event) -> None:
        self.server, self.may_answer = server, may_answer
        self.port = server.servers[0].sockets[0].getsockname()[1]

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self.server.server_state.connections)

    def connect(self) -> socket.socket:
        """A connection that has sent nothing."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)

    def ask(self, sent: bytes) -> bytes:
        """What comes back until the service closes; what cannot be sent any more is not."""
        with self.connect() as client:
            with contextlib.suppress(OSError):
                client.sendall(sent)
            return read_all(client)

    def is_live(self) -> bool:
        """Whether it answers."""
        return self.ask(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").startswith(
            b"HTTP/1.1 200"
        )


def read_all(client: socket.socket) -> bytes:
    """Everything until the other side closes."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := client.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


@contextmanager
def listening(settings: ServiceSettings, **changed: Any) -> Iterator[Listening]:
    """The service on a port, until the block ends; /slow answers when `may_answer` is set."""
    settings = settings.model_copy(update={"port": 0, **changed})
    may_answer = threading.Event()

    async def slow() -> None:
        while not may_answer.is_set():
            await asyncio.sleep(0.01)

    def make() -> FastAPI:
        app = create_app(settings)
        app.add_api_route("/slow", slow)
        return app

    server = uvicorn.Server(server_config(settings, make))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield Listening(server, may_answer)
    finally:
        may_answer.set()
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def service(service_settings: ServiceSettings) -> Iterator[Listening]:
    """A service that has all day for a head."""
    with listening(service_settings, head_s=1000.0) as found:
        yield found


HEAD = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(HEAD + b"X-A: b\r\n" * 500_000, id="endless headers"),
        pytest.param(HEAD + b"X-A: " + b"b" * 4_000_000, id="an endless header"),
        pytest.param(b"GET /" + b"a" * 4_000_000, id="an endless URL"),
        pytest.param(HEAD + b"X-A: b\r\n" * 20_000 + b"\r\n", id="a large head that ends"),
        pytest.param(b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", id="a long URL that ends"),
    ],
)
def test_a_head_is_bounded(service: Listening, sent: bytes) -> None:
    """URL and headers over the limit are answered with 431, whether or not they end."""
    answer = service.ask(sent)

    assert answer.startswith(b"HTTP/1.1 431")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"] == "head_too_large"
    assert service.is_live()


def test_a_head_within_the_bound_and_a_large_body_are_read(service: Listening) -> None:
    """A long URL, and a body larger than a head, are no reason to refuse."""
    long = (
        b"GET /health/live?" + b"a" * (HEAD_BYTES - 1000) + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    body = json.dumps({"mentions": ["x"], "context": "x" * 2 * HEAD_BYTES}).encode()
    post = b"POST /v1/link HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"

    assert service.ask(long).startswith(b"HTTP/1.1 200")
    assert service.ask(post + b"Content-Length: %d\r\n\r\n" % len(body) + body).startswith(b"HTTP/1.1 413")


def test_many_requests_at_once_are_refused(service: Listening) -> None:
    """A client that sends hundreds of requests without reading an answer is cut off."""
    answer = service.ask((HEAD + b"\r\n") * 1000)

    assert answer.count(b"HTTP/1.1 200") <= connections.PIPELINED
    assert b"HTTP/1.1 400" in answer
    assert service.is_live()


@pytest.mark.parametrize("sent, status", [(b"", b""), (b"GET / HT", b"HTTP/1.1 408"), (HEAD, b"HTTP/1.1 408")])
def test_a_head_that_does_not_end_is_given_up(service_settings: ServiceSettings, sent: bytes, status: bytes) -> None:
    """Half a head is answered with 408; a connection that sends nothing ends."""
    with listening(service_settings, head_s=0.2) as service:
        assert service.ask(sent)[:12] == status


def test_the_rest_of_a_refused_body_does_not_keep_a_connection(service_settings: ServiceSettings) -> None:
    """After an answer, bytes of a body that goes on do not count as a new request."""
    head = b"POST /v1/link HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
    with listening(service_settings, head_s=0.2, timeout_s=0.1) as service, service.connect() as client:
        client.sendall(head + b"x")
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 408")
        wait_until(lambda: _is_closed(client))


def _is_closed(client: socket.socket) -> bool:
    try:
        client.sendall(b"x")
    except ConnectionError:
        return True
    return False


def test_idle_connections_give_way(service_settings: ServiceSettings) -> None:
    """Connections are bounded in number; a new one takes the place of one whose client sends nothing."""
    starts = (b"", HEAD, b"POST /v1/link HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n")
    with listening(service_settings, head_s=1000.0, max_connections=8) as service, ExitStack() as stack:
        for number in range(60):
            client = stack.enter_context(service.connect())
            client.sendall(starts[number % len(starts)])
            if number % 10 == 9:
                assert service.is_live()

        wait_until(lambda: service.connections <= 8)
        assert service.is_live()


def test_more_connections_than_the_service_takes_are_told_so(service_settings: ServiceSettings) -> None:
    """Where all connections wait for an answer, a further one gets 503 with Retry-After."""
    ask = b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with listening(service_settings, head_s=1000.0, max_connections=2) as service, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(service.connect()).sendall(ask)
        wait_until(lambda: len(service.server.server_state.tasks) == 2)

        answer = service.ask(HEAD + b"\r\n")

        assert answer.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1" in answer.lower()
        assert b"max_connections" in answer


def test_connections_leave_descriptors_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most half of the file descriptors of the process are for connections."""
    resource = pytest.importorskip("resource")
    for descriptors, expected in ((120, 60), (4096, 512), (resource.RLIM_INFINITY, 512)):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, n=descriptors: (n, n))
        assert ConnectionLimits.of(ServiceSettings()).connections == expected


def test_a_client_that_reads_nothing_is_cut_off(service_settings: ServiceSettings) -> None:
    """Answers that are not taken do not keep a connection, and what made them ends."""
    with listening(service_settings, head_s=0.2) as service, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", service.port))
        client.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * connections.PIPELINED)

        wait_until(lambda: service.server.server_state.total_requests > 0)
        wait_until(lambda: service.connections == 0)
        assert not service.server.server_state.tasks


def test_a_second_head_without_end_is_cut_off(service: Listening) -> None:
    """A head that follows a request which is being answered has the same bound, and breaks into no answer."""
    with service.connect() as client:
        client.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: len(service.server.server_state.tasks) == 1)
        with contextlib.suppress(OSError):
            client.sendall(HEAD + b"X-A: b\r\n" * 10_000)

        assert read_all(client) == b""
    service.may_answer.set()
    assert service.is_live()
