"""The HTTP side of the Qdrant double (qdrant_double.py): connections and their faults."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from pydantic import BaseModel

Kind = Literal["apply_then_drop", "drop", "delay", "hang", "status", "raw", "redirect", "pass"]

POINTS = r"PUT /collections/[^/]+/points$"
"""Matches an upsert."""


@dataclass(frozen=True)
class Fault:
    """A fault of one request.

    Attributes:
        kind: `apply_then_drop` applies the request and closes the connection without an answer; `drop` closes it
            without applying; `delay` applies it and answers after `seconds`; `hang` neither applies nor answers;
            `status` answers with a status and a message, `raw` with a status and `error` as the whole body, `redirect`
            with a status and `error` as the place; `pass`
            is no fault: it lets a request pass before faults of later ones.
        match: Regular expression on "METHOD /path".
        status: For `status` and `raw`.
        retry_after: The header's value, if any.
        error: The message in the answer.
        seconds: For `delay`.
    """

    kind: Kind
    match: str = POINTS
    status: int = 503
    retry_after: str | None = None
    error: str = "scripted fault"
    seconds: float = 0.0


class Refused(Exception):
    """The request is answered with this status and message."""

    def __init__(self, status: int, message: str, *, retry_after: str | None = None, is_raw: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.is_raw = is_raw  # the message is the whole body


class Answered(Exception):
    """The request is answered with this body as it is, without `result` around it."""

    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body = body


class Double(Protocol):
    """The part of the double that a connection uses."""

    requests: list[str]
    headers: dict[str, str]
    n_compressed: int
    n_hung: int
    prefix: str
    stopping: threading.Event

    def check(self, headers: Mapping[str, str], n_bytes: int) -> None: ...

    def take_fault(self, request: str) -> Fault | None: ...

    def answer(self, method: str, path: str, body: bytes) -> Any: ...


class DoubleServer(ThreadingHTTPServer):
    """Keeps a list of its connections, so that none stays open."""

    daemon_threads = False  # server_close then waits for the handlers
    block_on_close = True

    def __init__(self, address: Any, handler: Any, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(address, handler)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self._open: set[socket.socket] = set()
        self.n_connections = 0
        self.is_closed = False
        self.is_frozen = False
        self.held: list[str] = []

    def server_close(self) -> None:
        super().server_close()
        self.is_closed = True

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        self.n_connections += 1
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that does not trust our certificate; print other errors."""
        if not isinstance(sys.exc_info()[1], ssl.SSLError):
            super().handle_error(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """End idle keep-alive connections, which their handlers wait on."""
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # the client was faster


def handler_of(double: Double) -> type[BaseHTTPRequestHandler]:  # long: it holds a class of short methods
    """The handler class of a double; one instance serves one connection."""

    class Handler(BaseHTTPRequestHandler):
        """One connection."""

        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1  # head and body of an answer in one packet

        def handle_any(self) -> None:
            path = urlsplit(self.path).path
            if not path.startswith(double.prefix):
                self.reply(404, b"not here")
                return
            path = path.removeprefix(double.prefix)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = f"{self.command} {path}"
            headers = {k.lower(): v for k, v in self.headers.items()}
            double.requests.append(request)
            double.headers = headers
            if isinstance(self.server, DoubleServer) and self.server.is_frozen:
                if "user-agent" in headers:  # else somebody asks whether it lives
                    self.server.held.append(request)
                double.stopping.wait()
                self.drop()
                return
            fault = double.take_fault(request)
            if fault is not None and fault.kind == "status":
                self.reply(fault.status, {"status": {"error": fault.error}}, fault.retry_after)
                return
            if fault is not None and fault.kind == "raw":
                self.reply(fault.status, fault.error.encode(), fault.retry_after)
                return
            if fault is not None and fault.kind == "redirect":
                self.reply(fault.status, b"", location=fault.error)
                return
            if fault is not None and fault.kind in ("drop", "hang"):
                if fault.kind == "hang":
                    double.n_hung += 1
                    double.stopping.wait()
                self.drop()
                return
            try:
                double.check(headers, len(body))
                result = double.answer(self.command, path, body)
            except Answered as answered:
                self.reply(200, answered.body)
                return
            except Refused as refused:
                text = str(refused)
                said = text.encode() if refused.is_raw else {"status": {"error": text}}
                self.reply(refused.status, said, refused.retry_after)
                return
            except BaseException as error:  # noqa: BLE001 - the engine's panics; a client tries a lost connection for minutes
                traceback.print_exc()
                message = f"the double failed at {request}: {type(error).__name__}: {error}"
                self.reply(400, {"status": {"error": message}})
                return
            if fault is not None and fault.kind == "apply_then_drop":
                self.drop()
                return
            if fault is not None and fault.kind == "delay":
                time.sleep(fault.seconds)
            if isinstance(result, BaseModel):
                result = result.model_dump(mode="json", exclude_none=True)
            self.reply(200, {"result": result, "status": "ok", "time": 0.0})

        # BaseHTTPRequestHandler looks its methods up by these names.
        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = handle_any  # noqa: N815

        def reply(self, status: int, content: Any, retry_after: str | None = None, location: str | None = None) -> None:
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                if retry_after is not None:
                    self.send_header("Retry-After", retry_after)
                if location is not None:
                    self.send_header("Location", location)
                if "gzip" in self.headers.get("Accept-Encoding", ""):
                    self.reply_compressed(data)
                    return
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                self.wfile.flush()
            except OSError:
                self.close_connection = True  # the client has given up waiting

        def reply_compressed(self, data: bytes) -> None:
            """Answer in compressed chunks, as a real server does if the client accepts compression.

            A real server also stalls for 40 ms here, until the client's kernel acknowledges the first chunk. The double
            does not (`disable_nagle_algorithm`), or the tests would mostly wait.
            """
            double.n_compressed += 1
            packed = gzip.compress(data, 1)
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for chunk in (b"%x\r\n%s\r\n" % (len(packed), packed), b"0\r\n\r\n"):
                self.wfile.write(chunk)
                self.wfile.flush()

        def drop(self) -> None:
            self.close_connection = True
            try:
                self.connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                return

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    return Handler


class Listener:
    """One address of a double, as a node of a cluster has it."""

    def __init__(self, double: Double, tls: ssl.SSLContext | None = None) -> None:
        self._handler = handler_of(double)
        self._tls = tls
        self._server = DoubleServer(("127.0.0.1", 0), self._handler, tls)
        self._address = self._server.server_address
        self._thread: threading.Thread | None = None

    @property
    def n_connections(self) -> int:
        """Connections that clients have made since it was started last."""
        return self._server.n_connections

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._address[1]}"

    def freeze(self) -> None:
        """From now on accept connections and answer nothing, as a process that was stopped."""
        self._server.is_frozen = True

    @property
    def n_held(self) -> int:
        """Requests that a frozen one has and does not answer, but for those that ask whether it lives."""
        return len(self._server.held)

    def start(self) -> None:
        """Listen; after `stop` on the same port again."""
        if self._server.is_closed:
            self._server = DoubleServer(self._address, self._handler, self._tls)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close all connections, and accept no new ones."""
        if self._thread is not None:
            self._server.shutdown()
            self._server.close_connections()
            self._server.server_close()
            self._thread.join()
            self._thread = None
