"""The addresses of a server: checked before anything is sent, and several nodes of a cluster behind one client."""

from __future__ import annotations

import ipaddress
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from pearl_qdrant.errors import SettingsError

DEFAULT_PORT = 6333

ONLY_NODE = "pearl_qdrant_node"
"""Extension of a request that one node alone may answer: its number."""

_STARTING = (502, 503, 504)
"""What a node answers that starts or ends, or the proxy before it; another node may answer."""

_CUT = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)

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


class Nodes(httpx.BaseTransport):
    """Sends requests to one node of a cluster, and from the first that it does not answer on to the next one.

    A request that ended half-way is sent again to the next node too: all requests of this package may be sent twice.
    """

    def __init__(self, addresses: Sequence[Address], inner: httpx.BaseTransport) -> None:
        self._urls = [httpx.URL(one.base) for one in addresses]
        self._inner = inner
        self._current = 0
        self._lock = threading.Lock()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; raises or returns what the last node did if none answers."""
        only = request.extensions.get(ONLY_NODE)
        if only is not None:
            return self._inner.handle_request(self._at(request, only))
        start, n = self._current, len(self._urls)
        for node in ((start + i) % n for i in range(n)):
            is_last = (node + 1) % n == start
            try:
                response = self._inner.handle_request(self._at(request, node))
            except httpx.TransportError as error:
                # A kept connection that ended meanwhile says nothing of the node.
                level = logging.INFO if isinstance(error, _CUT) else logging.WARNING
                self._leave(node, str(error) or type(error).__name__, level)
                if is_last:
                    raise
                continue
            if response.status_code not in _STARTING:
                return response
            self._leave(node, f"status {response.status_code}", logging.WARNING)
            if is_last:
                return response
            response.close()
        raise AssertionError("there is a last node")

    def close(self) -> None:
        """Close all connections."""
        self._inner.close()

    def _leave(self, node: int, why: str, level: int) -> None:
        """Begin with the next node from now on."""
        with self._lock:
            if node != self._current:
                return
            self._current = (node + 1) % len(self._urls)
            following = self._urls[self._current]
        _log.log(level, "Qdrant at %s does not answer (%s): going on with %s", self._urls[node], why, following)

    def _at(self, request: httpx.Request, node: int) -> httpx.Request:
        """The same request to a node; it was made for the first one."""
        first, url = self._urls[0], self._urls[node]
        path = request.url.raw_path.removeprefix(first.raw_path.rstrip(b"/"))
        headers = httpx.Headers(request.headers)
        headers["Host"] = url.netloc.decode("ascii")
        target = url.copy_with(raw_path=url.raw_path.rstrip(b"/") + path)
        return httpx.Request(
            request.method, target, headers=headers, stream=request.stream, extensions=request.extensions
        )
