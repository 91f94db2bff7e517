"""What the Qdrant double lets through: one key, bodies up to a size, reads and writes at a rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from qdrant_double_http import Refused

TITLE = "413 Request Entity Too Large"
PAGE = (
    f"<html>\r\n<head><title>{TITLE}</title></head>\r\n<body>\r\n<center><h1>{TITLE}</h1></center>\r\n"
    "<hr><center>nginx/1.27.3</center>\r\n</body>\r\n</html>\r\n"
)


@dataclass
class Rate:
    """A bucket of `capacity` units, of which each refusal fills `refill` again: the time that a client waits.

    Attributes:
        left: Units that may still be used.
        n_refused: Requests that were refused.
    """

    kind: Literal["Read", "Write"]
    capacity: int
    refill: int = 0
    left: int = 0
    n_refused: int = 0

    def __post_init__(self) -> None:
        self.left, self.refill = self.capacity, self.refill or self.capacity

    def take(self, cost: int) -> None:
        """Use some units; 429 where there are too few, with Retry-After unless there never are as many."""
        if cost <= self.left:
            self.left -= cost
            return
        self.n_refused += 1
        text = f"Rate limiting exceeded: {self.kind} rate limit exceeded"
        if cost > self.capacity:
            text += ", request larger than rate limiter capacity, please try to split your request"
            raise Refused(429, text)
        self.left = min(self.capacity, self.left + self.refill)
        raise Refused(429, f"{text}: retry after 1s", retry_after="1")


@dataclass
class Gate:
    """What is looked at before a request is answered.

    Attributes:
        key: The only key that counts; None: any or none.
        most_bytes: The largest body.
        is_proxy: Whether a proxy refuses larger ones, with a page of HTML, or else the server, with its message.
        rates: The rates of reads and writes.
        n_too_large, n_refused_keys: Requests that were refused.
    """

    key: str | None = None
    most_bytes: int | None = None
    is_proxy: bool = False
    rates: dict[str, Rate] = field(default_factory=dict)
    n_too_large: int = 0
    n_refused_keys: int = 0

    def limit(self, kind: Literal["Read", "Write"], capacity: int, refill: int = 0) -> Rate:
        self.rates[kind] = Rate(kind, capacity, refill)
        return self.rates[kind]

    def check(self, headers: Mapping[str, str], n_bytes: int) -> None:
        """Refuse a request with another key, or a body that is too large."""
        if self.key is not None and headers.get("api-key") != self.key:
            self.n_refused_keys += 1
            raise Refused(401, "Invalid API key or JWT")
        if self.most_bytes is None or n_bytes <= self.most_bytes:
            return
        self.n_too_large += 1
        if self.is_proxy:
            raise Refused(413, PAGE, is_raw=True)
        raise Refused(400, f"JSON payload ({n_bytes} bytes) is larger than allowed (limit: {self.most_bytes} bytes).")

    def read(self, cost: int = 1) -> None:
        """Count a read; a batch of queries costs its queries."""
        if "Read" in self.rates:
            self.rates["Read"].take(cost)

    def write(self, cost: int = 1) -> None:
        """Count a write."""
        if "Write" in self.rates:
            self.rates["Write"].take(cost)
