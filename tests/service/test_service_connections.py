"""Connections and heads without end: what a client without a key can hold, and what others still get."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest
import uvicorn
from edge_cases import wait_until
from fastapi import FastAPI
from fastapi.responses import Response
from service_client import Held, serving

from pearl_qdrant.service import ServiceSettings, connections, gate
from pearl_qdrant.service.connections import HEAD_BYTES, METRICS, MOST_CHUNKS, MOST_LINES, guarded_config, network_of
from pearl_qdrant.service.gate import Gate
from pearl_qdrant.service.observing import Metrics

MOST = 4
WAIT_S = 60
"""Bounds a hang."""

HEAD = b"POST /live HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"
ASKED = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Server:
    """A small application behind all limits of connections, on a port of its own."""

    def __init__(self) -> None:
        self.metrics = Metrics()

        @asynccontextmanager
        async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, object]]:
            yield {METRICS: self.metrics}

        self.app = FastAPI(lifespan=lifespan)
        self.app.add_api_route("/live", lambda: "alive", methods=["GET", "POST"])
        self.app.add_api_route("/large", lambda: Response(b"x" * (60 << 20)))
        self.app.add_middleware(Gate, settings=ServiceSettings(), metrics=self.metrics)
        self._server = uvicorn.Server(guarded_config(lambda: self.app, host="127.0.0.1", port=0))
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        wait_until(lambda: self._server.started)
        self.port: int = self._server.servers[0].sockets[0].getsockname()[1]

    def connect(self, sent: bytes = b"", address: str = "127.0.0.1") -> socket.socket:
        """A connection that has sent something."""
        opened = socket.create_connection(("127.0.0.1", self.port), WAIT_S, source_address=(address, 0))
        opened.sendall(sent)
        return opened

    def connections(self) -> list[Any]:
        """The connections that it has."""
        return list(self._server.server_state.connections)

    def ask(self) -> bytes:
        """What a new connection is answered."""
        with closing(self.connect(ASKED)) as client:
            return client.recv(1000)

    def refused(self, reason: str) -> int:
        """How many connections were refused for a reason, as the metrics say."""
        found = re.search(rf'refused_connections_total{{reason="{reason}"}} (\S+)', self.metrics.text().decode())
        return int(float(found[1])) if found else 0

    def close(self) -> None:
        """End the server."""
        self._server.should_exit = True
        self._thread.join(WAIT_S)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server with few connections, that looks at them all the time."""
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", MOST)
    monkeypatch.setattr(connections, "_LOOK_S", 0.01)
    monkeypatch.setattr(connections, "HEAD_S", WAIT_S)
    started = Server()
    yield started
    started.close()


def is_closed(client: socket.socket) -> bool:
    """Whether the server has closed a connection."""
    client.setblocking(False)
    try:
        return not client.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(HEAD + b"".join(b"X-%d: y\r\n" % i for i in range(HEAD_BYTES // 8)), id="headers"),
        pytest.param(HEAD + b"X: " + b"x" * HEAD_BYTES, id="a header"),
        pytest.param(b"GET /" + b"x" * HEAD_BYTES, id="a URL"),
        pytest.param(CHUNKED + b"0\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(HEAD_BYTES // 8)), id="trailers"),
        pytest.param(CHUNKED + b"2;" + b"x" * HEAD_BYTES, id="an extension of a chunk"),
        pytest.param(HEAD + b"X: y\r\n" * MOST_LINES + b"\r\n", id="short headers"),
        pytest.param(CHUNKED + b"0\r\n" + b"X: y\r\n" * (MOST_LINES + 1) + b"\r\n", id="short trailers"),
        pytest.param(CHUNKED + b"1\r\n \r\n" * MOST_CHUNKS, id="short chunks"),
    ],
)
def test_a_head_without_end_is_refused(server: Server, sent: bytes) -> None:
    """Of a head, or of trailers, no more is kept than a head may have: the answer is an error, counted and logged."""
    with closing(server.connect(sent)) as client:
        answer = client.recv(1000)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"error":"bad_request"' in answer
    assert server.refused("bad_request") == 1
    assert server.ask().startswith(b"HTTP/1.1 200 ")


def test_a_body_in_many_chunks_is_read(server: Server) -> None:
    """An encoder may send what it encodes mention by mention, and longer chunks are as many as there are."""
    asked = json.JSONEncoder().iterencode({"mentions": ["Oslo"] * 1000, "ids": list(range(1000))})
    sent = b"".join(b"%x\r\n%s\r\n" % (len(one), one.encode()) for one in asked)
    sent += (b"40\r\n" + b" " * 64 + b"\r\n") * 2 * MOST_CHUNKS
    with closing(server.connect(CHUNKED + sent + b"0\r\n\r\n")) as client:
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("sent", [b"", ASKED[:-2], CHUNKED], ids=["nothing", "half a head", "half a body"])
def test_who_holds_many_connections_stops_nobody(server: Server, sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A new connection is answered at every moment, however many are held open; those that wait longest are closed."""
    held = []
    for _ in range(5 * MOST):
        held.append(server.connect(sent))
        assert server.ask().startswith(b"HTTP/1.1 200 ")

    wait_until(lambda: sum(map(is_closed, held)) > 4 * MOST)
    assert not is_closed(held[-1])
    assert server.refused("too_many_connections") > 4 * MOST
    wait_until(lambda: "connections were refused" in caplog.text)
    for client in held:
        client.close()


def test_an_address_takes_connections_from_itself(server: Server) -> None:
    """Connections of another address stay while one address opens more and more."""
    other = server.connect(address="127.0.0.2")
    held = [server.connect() for _ in range(5 * MOST)]

    wait_until(lambda: sum(map(is_closed, held)) > 4 * MOST)
    assert not is_closed(other)
    for client in (other, *held):
        client.close()


@pytest.mark.parametrize("sent, answer, reason", [(b"", b"", "idle"), (HEAD, b"HTTP/1.1 408 ", "slow_head")])
def test_a_head_has_its_time(
    server: Server, monkeypatch: pytest.MonkeyPatch, sent: bytes, answer: bytes, reason: str
) -> None:
    """A connection that sends nothing is closed, one that sends half a head is told why; both are counted."""
    with closing(server.connect(sent)) as client:
        wait_until(lambda: [one.conn.trailing_data[0] for one in server.connections()] == [sent])
        monkeypatch.setattr(connections, "HEAD_S", 0.0)
        assert client.recv(13) == answer

    assert server.refused(reason) == 1


def test_a_client_that_does_not_read_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer does not stay in memory for a client that reads nothing of it."""
    with closing(server.connect(ASKED.replace(b"live", b"large"))):
        wait_until(lambda: [one.unsent > 0 for one in server.connections()] == [True])
        monkeypatch.setattr(connections, "HEAD_S", 0.0)
        wait_until(lambda: server.refused("slow_reader") == 1)


def test_networks_of_addresses() -> None:
    """IPv6 addresses of one customer are one network; IPv4 within IPv6 is IPv4."""
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1")
    assert (network_of(None), network_of("testclient")) == ("", "testclient")


def test_health_is_answered_while_all_are_busy(
    service_settings: ServiceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More requests at the same time than one address may have are answered with 503; health and metrics never are."""
    monkeypatch.setattr(gate, "most_connections", lambda: 4)
    with serving(service_settings) as client, ThreadPoolExecutor(2) as clients:
        held = Held(client, monkeypatch)
        body = {"mentions": ["NYC"], "threshold": 0}
        running = [clients.submit(client.post, "/v1/link", json=body) for _ in range(2)]
        wait_until(lambda: "requests_in_flight 3.0" in client.get("/metrics").text)

        refused = client.post("/v1/link", json=body)

        assert (refused.status_code, refused.json()["error"]) == (503, "busy")
        assert client.get("/health/live").status_code == 200
        assert 'route="other",status="503"' in client.get("/metrics").text
        held.may_go.set()
        assert [one.result().status_code for one in running] == [200, 200]


@pytest.mark.anyio
async def test_bodies_that_arrive_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many large bodies that arrive slowly, the largest is refused; a small one passes."""
    monkeypatch.setattr(gate, "_BODIES_BYTES", 0)
    answered = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        answered.append((await receive())["body"])
        await Response()(scope, receive, send)

    gated = Gate(app, settings=ServiceSettings(max_body_bytes=100), metrics=Metrics())
    hanging = asyncio.Event()

    async def ask(*parts: bytes, is_whole: bool = False) -> int:
        sent: list[int] = []
        arriving = iter(parts)

        async def receive() -> dict[str, Any]:
            if (part := next(arriving, None)) is None and not is_whole:
                await hanging.wait()
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": part or b"", "more_body": part is not None}

        async def send(message: Any) -> None:
            sent.append(message.get("status", 0))

        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "client": ("127.0.0.1", 1)}
        await gated({**scope, "headers": [(b"content-length", b"100")]}, receive, send)
        return max(sent, default=0)

    slow = [asyncio.create_task(ask(b"x" * (80 + i))) for i in range(5)]
    done, _ = await asyncio.wait(slow, timeout=WAIT_S, return_when=asyncio.FIRST_COMPLETED)

    assert [task.result() for task in done] == [503]
    assert slow[4] in done
    assert await ask(b"x" * 20, is_whole=True) == 200
    assert answered == [b"x" * 20]
    hanging.set()
    await asyncio.gather(*slow)
