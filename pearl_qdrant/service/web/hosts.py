"""Which hosts the service answers for.

A page of another site can point its own name at this machine (DNS rebinding): then the browser takes the service for a
part of that site, and the page reads and sends what it likes. The name that the browser asked for is in the header
Host. An address there is no name that a site could point elsewhere, so that addresses are always allowed.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from pearl_qdrant.service.errors import ServiceError
from pearl_qdrant.service.settings import ServiceSettings


class HostNotAllowedError(ServiceError):
    """The service does not answer for this host."""

    status = 421
    code = "host_not_allowed"


class HostCheck:
    """Checks the host of a request: addresses, localhost, that of `public_url`, `host`, and `allowed_hosts`."""

    def __init__(self, settings: ServiceSettings) -> None:
        public = urlsplit(settings.public_url or "").hostname
        named = ("localhost", settings.host, *([public] if public else ()), *settings.allowed_hosts)
        self._names = frozenset(name.lower() for name in named)

    def check(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Refuse a request for another host; one that names none, as of HTTP/1.0, is from no browser.

        Raises:
            HostNotAllowedError: It names the host.
        """
        if "*" in self._names:
            return
        for name, value in headers:
            if name == b"host" and value and not self._is_allowed(value.decode("latin-1")):
                shown = value.decode("latin-1")[:100]
                raise HostNotAllowedError(
                    f"The service does not answer for the host {shown!r}. Ask it by its address or by localhost, or "
                    f"start it with the names that it has in allowed_hosts or public_url."
                )

    def _is_allowed(self, given: str) -> bool:
        try:
            host = urlsplit(f"//{given}").hostname or ""
        except ValueError:
            return False
        if "@" in given or "/" in given:
            return False
        host = host.removesuffix(".")
        return host in self._names or host.endswith(".localhost") or _is_address(host)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
