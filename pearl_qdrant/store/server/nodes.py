"""The addresses of a server, and how one request finds a node that answers it.

A node that is killed refuses at once. One that hangs (it was stopped, or its cable is out) neither refuses nor answers,
and its kernel still accepts connections: a client learns it only by its own clock. So a read without an answer after
`PATIENCE_S` is asked of the next node as well, and the first answer counts. Meanwhile the silent node is asked for its
version, which takes it no work: one that says it works on its answer, so that no third node is asked; one that does not
hangs, and a write goes to the next node then.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from pearl_qdrant.errors import SettingsError
from pearl_qdrant.settings import ServerAccess, read_key
from pearl_qdrant.store.server.errors import HangsError

DEFAULT_PORT = 6333
ONLY_NODE = "pearl_qdrant_node"  # extension of a request that one node alone may answer: its number
CONNECT_TIMEOUT_S = 2.5  # shorter than the time-out of an answer, to notice a host that drops packets
PATIENCE_S = 1.5  # without an answer, before another node is asked; a healthy cluster answers within 0.2 s
PROBE_S = 4.0  # without an answer to what takes no work, until a node counts as hanging
ASKED_LAST_S = 30.0  # how long a node that was silent is asked after all others

_STARTING = (502, 503, 504)  # what a node answers that starts or ends, or the proxy before it; another one may answer
_CUT = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
_READS = re.compile(rb".*/(points|points/(query/batch|scroll|count)|facet)")  # by POST

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Address:
    """One address of a server: `url` as given, without a slash at its end, and `base`, the same with the port."""

    url: str
    base: str
    host: str
    is_encrypted: bool

    @property
    def is_loopback(self) -> bool:
        """Whether the host is this machine, judged by its name or address only."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def proxy(self) -> str | None:
        """The proxy that the environment names for it; requests to this machine use none."""
        if self.is_loopback or proxy_bypass(self.host):
            return None
        known = getproxies()
        found = known.get("https" if self.is_encrypted else "http") or known.get("all")
        return found if found is None or "://" in found else f"http://{found}"


def parse_addresses(location: str) -> list[Address]:
    """Parse one URL or several with commas between; SettingsError if one is not valid, or holds a secret."""
    addresses = [_parse(one.strip()) for one in location.split(",") if one.strip()]
    return list({address.url: address for address in addresses}.values())


def _parse(url: str) -> Address:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise SettingsError("The store's URL is not valid. A valid one is http://localhost:6333.") from error
    if parts.username or parts.password or parts.query or parts.fragment:
        raise SettingsError(
            f"The URL of the store at {host} holds a user, password, query or fragment. "
            f"Give the plain URL, and the key in QDRANT_API_KEY."
        )
    if parts.scheme not in ("http", "https") or not host:
        raise SettingsError(f"The store's URL '{url}' must begin with http:// or https:// and name a host.")
    netloc = parts.netloc if port else f"{parts.netloc.rstrip(':')}:{DEFAULT_PORT}"
    base = parts._replace(netloc=netloc, path=parts.path.rstrip("/")).geturl()
    return Address(url.rstrip("/"), base, host, parts.scheme == "https")


class Key:
    """The key of a server. One that came from a file is read again when the server refuses it. Thread-safe."""

    def __init__(self, access: ServerAccess, addresses: Sequence[Address]) -> None:
        """Raises SettingsError if the key cannot be sent, or others on the network could read it."""
        self.value = (access.api_key or "").strip() or None
        self._file = access.api_key_file
        self._seen = {self.value} - {None}
        self._lock = threading.Lock()
        for address in addresses if self.value is not None else ():
            _check_key(self.value or "", address, allow_plain_http=access.allow_plain_http)

    def renew(self, refused: str | None) -> bool:
        """Read the file again after the server refused a key; returns whether there is another one now."""
        with self._lock:
            if self.value == refused and self._file is not None:
                try:
                    found = read_key(self._file)
                    _check_characters(found)
                except SettingsError as error:
                    _log.warning("The key was refused, and there is no other: %s", error)
                    return False
                self._seen.add(found)
                self.value = found
            return self.value != refused

    def redact(self, text: str) -> str:
        """Remove every key that was used from a text: plain, and as quoted in a URL and in JSON. Call it before a text
        is shortened: a part of a key would not be recognised.
        """
        forms = {form for key in self._seen if key for form in (key, quote(key, safe=""), json.dumps(key)[1:-1])}
        for form in sorted(forms, key=len, reverse=True):
            text = text.replace(form, "***")
        return text


def _check_characters(key: str) -> None:
    """Raise SettingsError for a key that no header can have."""
    if not (key.isascii() and key.isprintable()):
        raise SettingsError(
            "The API key holds characters that are not allowed in an HTTP header. Check QDRANT_API_KEY."
        )


def _check_key(key: str, address: Address, *, allow_plain_http: bool) -> None:
    """Refuse a key that cannot be sent, or that others on the network could read."""
    _check_characters(key)
    if address.is_encrypted or address.is_loopback:
        return
    if not allow_plain_http:
        raise SettingsError(
            f"Refusing to send the API key over plain HTTP to {address.host}: others on the network could read it. Use "
            f"https://, or reach the server through a tunnel on localhost. Inside a private network, such as that of a "
            f"compose file, allow it with PEARL_QDRANT_ALLOW_PLAIN_HTTP=1."
        )
    _log.warning("The API key goes over plain HTTP to %s, as allowed: only safe in a private network", address.host)


Outcome = httpx.Response | Exception | bool
"""What comes back of a node: an answer, why there is none, or whether it lives."""


class _Answers:
    """What nodes say to one request, each from a thread of its own; answers that come after its end are closed."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[int, Outcome]] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_over = False

    def ask(self, node: int, send: Callable[[], Outcome]) -> None:
        # Not of a pool: at its end Python waits for the threads of pools, and so for a node that hangs.
        threading.Thread(target=self._run, args=(node, send), name="pearl-qdrant-node", daemon=True).start()

    def _run(self, node: int, send: Callable[[], Outcome]) -> None:
        try:
            outcome = send()
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            outcome = error
        with self._lock:
            if not self._is_over:
                self._queue.put((node, outcome))
                return
        _close(outcome)

    def next(self) -> tuple[int, Outcome] | None:
        """The next outcome; None if there is none for `PATIENCE_S`."""
        try:
            return self._queue.get(timeout=PATIENCE_S)
        except Empty:
            return None

    def end(self) -> None:
        with self._lock:
            self._is_over = True
        while not self._queue.empty():
            _close(self._queue.get()[1])


def _close(outcome: Outcome) -> None:
    if isinstance(outcome, httpx.Response):
        outcome.close()


class Nodes(httpx.BaseTransport):
    """Sends requests to one node of a server, and where that does not answer, to the next one. A request may so be sent
    more than once: all requests of this package may.
    """

    def __init__(self, addresses: Sequence[Address], inner: httpx.BaseTransport, key: Key) -> None:
        self._urls = [httpx.URL(one.base) for one in addresses]
        self._inner = inner
        self._key = key
        self._current = 0
        self._silent: dict[int, float] = {}  # until when a node is asked last
        self._lock = threading.Lock()
        self._is_closed = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and once more with another key where one was refused that has been renewed since."""
        sent = self._key.value
        response = self._race(request)
        if response.status_code == httpx.codes.UNAUTHORIZED and self._key.renew(sent):
            response.close()
            response = self._race(request)
        return response

    def _race(self, request: httpx.Request) -> httpx.Response:
        only = request.extensions.get(ONLY_NODE)
        answers = _Answers()
        try:
            return self._answer(request, self._order() if only is None else [only], answers)
        finally:
            answers.end()

    def _answer(self, request: httpx.Request, left: list[int], answers: _Answers) -> httpx.Response:
        """The first good answer of some nodes, in their order; else the last answer or error."""
        asked: set[int] = set()  # of whom an answer may still come
        probed: set[int] = set()  # of these, who are asked whether they live, and who do
        alive: set[int] = set()
        last: Outcome = False
        while True:
            if not asked:
                if not left:
                    break
                asked.add(self._ask(request, left.pop(0), answers))
            found = answers.next()
            if found is None:
                for node in asked - probed:
                    answers.ask(node, partial(self._probe, node))
                probed |= asked
                if left and _is_read(request) and not asked & alive:
                    self._pass_over(asked)
                    asked.add(self._ask(request, left.pop(0), answers))
                continue
            node, outcome = found
            if outcome is True:
                alive.add(node)
                probed.discard(node)
                continue
            if outcome is False and node not in asked:  # it has failed meanwhile
                continue
            asked.discard(node)
            if isinstance(outcome, httpx.Response) and outcome.status_code not in _STARTING:
                self._silent.pop(node, None)
                return outcome
            _close(last)
            last = outcome if outcome is not False else HangsError(str(self._urls[node]), request=request)
            self._leave(node, last)
        if isinstance(last, httpx.Response):
            return last
        assert isinstance(last, Exception)  # there is at least one node
        raise last

    def close(self) -> None:
        self._is_closed = True
        self._inner.close()

    def _send(self, request: httpx.Request, node: int) -> httpx.Response:
        response = self._inner.handle_request(self._at(request, node))
        if self._is_closed:  # a thread that came late leaves no connection open
            response.close()
            self._inner.close()
            raise httpx.ConnectError("the connections were closed", request=request)
        return response

    def _order(self) -> list[int]:
        """All nodes from the one that answered last, those that were silent at the end."""
        n = len(self._urls)
        return sorted(((self._current + i) % n for i in range(n)), key=self._is_silent)

    def _is_silent(self, node: int) -> bool:
        return time.monotonic() < self._silent.get(node, 0.0)

    def _ask(self, request: httpx.Request, node: int, answers: _Answers) -> int:
        def send() -> httpx.Response:
            # Each request to a node that hangs keeps a connection: first ask for what needs none for long.
            if self._is_silent(node) and not self._is_alive(node):
                raise HangsError(str(self._urls[node]), request=request)
            return self._send(request, node)

        answers.ask(node, send)
        return node

    def _is_alive(self, node: int) -> bool:
        """Whether a node answers what takes it no work."""
        first = self._urls[0]
        probe = httpx.Request("GET", first.copy_with(raw_path=first.raw_path.rstrip(b"/") + b"/"))
        probe.extensions["timeout"] = httpx.Timeout(PROBE_S, connect=CONNECT_TIMEOUT_S).as_dict()
        try:
            self._send(probe, node).close()
        except httpx.HTTPError:
            return False
        return True

    def _probe(self, node: int) -> bool:
        """Ask a silent node whether it lives; one that hangs is asked last for a while."""
        is_alive = self._is_alive(node)
        if is_alive:
            self._silent.pop(node, None)
        else:
            self._pass_over([node])
            _log.warning("Qdrant at %s hangs: it accepts connections, but answers nothing", self._urls[node])
        return is_alive

    def _pass_over(self, nodes: Iterable[int]) -> None:
        """Ask silent nodes last for a while."""
        with self._lock:
            self._silent |= dict.fromkeys(nodes, time.monotonic() + ASKED_LAST_S)
            self._current = self._order()[0]

    def _leave(self, node: int, why: Outcome) -> None:
        """Begin with the next node from now on."""
        with self._lock:
            if isinstance(why, httpx.TimeoutException):
                self._silent[node] = time.monotonic() + ASKED_LAST_S
            if node != self._current or len(self._urls) == 1:
                return
            self._current = (node + 1) % len(self._urls)
            self._current = self._order()[0]
            following = self._urls[self._current]
        # A kept connection that ended meanwhile says nothing of the node.
        level = logging.INFO if isinstance(why, _CUT) else logging.WARNING
        said = f"status {why.status_code}" if isinstance(why, httpx.Response) else str(why) or type(why).__name__
        _log.log(level, "Qdrant at %s does not answer (%s): going on with %s", self._urls[node], said, following)

    def _at(self, request: httpx.Request, node: int) -> httpx.Request:
        """The same request to a node; it was made for the first one."""
        first, url = self._urls[0], self._urls[node]
        path = request.url.raw_path.removeprefix(first.raw_path.rstrip(b"/"))
        headers = httpx.Headers(request.headers)
        headers["Host"] = url.netloc.decode("ascii")
        if self._key.value is not None:
            headers["api-key"] = self._key.value
        target = url.copy_with(raw_path=url.raw_path.rstrip(b"/") + path)
        return httpx.Request(
            request.method, target, headers=headers, stream=request.stream, extensions=request.extensions
        )


def _is_read(request: httpx.Request) -> bool:
    """Whether any node answers it alike, and it changes nothing; snapshots are files of one node."""
    path = request.url.raw_path
    if request.method == "GET":
        return b"/snapshots" not in path
    return request.method == "POST" and _READS.fullmatch(path.partition(b"?")[0]) is not None
