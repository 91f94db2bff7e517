"""How much one request may hold: less, where the server or a proxy before it refuses one."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from pearl_qdrant.store.server.errors import RequestTooLargeError

MAX_BYTES = 8 * 1024 * 1024  # a quarter of the server's default limit of 32 MiB

R = TypeVar("R")
T = TypeVar("T")


class Sizes:
    """The most items and bytes of one kind of request to a collection; they shrink with each refusal. Thread-safe."""

    def __init__(self, items: int, n_bytes: int = MAX_BYTES) -> None:
        self.items = items
        self.bytes = n_bytes
        self.is_rated = False  # the server limits how many there are in a minute

    def cut(self, items: Sequence[T], size: Callable[[T], int]) -> Iterator[list[T]]:
        """Cut items, of so many bytes each, into parts within both limits; one over the limit of bytes is alone."""
        part: list[T] = []
        n_bytes = 0
        for item in items:
            if part and (len(part) >= self.items or n_bytes + size(item) > self.bytes):
                yield part
                part, n_bytes = [], 0
            part.append(item)
            n_bytes += size(item) + 1  # the comma
        if part:
            yield part

    def send(
        self,
        items: Sequence[T],
        size: Callable[[T], int],
        do: Callable[[Sequence[T]], R],
        *,
        wait: Callable[[float], object] = lambda seconds: None,
    ) -> Iterator[R]:
        """Do parts of items, in order: in halves what is too large. Yields the results; RequestTooLargeError if one
        item alone is. `wait` is called with the seconds that the server asks for before the rest of a part.
        """
        waiting = deque(self.cut(items, size))
        while waiting:
            part = waiting.popleft()
            # A limit may have shrunk after this part was cut, when the server refused this or another one.
            pieces = list(self.cut(part, size))
            if len(pieces) > 1:
                waiting.extendleft(reversed(pieces))
                continue
            try:
                yield do(part)
            except RequestTooLargeError as error:
                if len(part) == 1:
                    raise
                self.is_rated |= error.limits_rate
                if error.limits_items:
                    self.items = min(self.items, (len(part) + 1) // 2)
                else:
                    self.bytes = min(self.bytes, sum(map(size, part)) // 2)
                wait(error.wait_s)
                waiting.appendleft(part)


class Learned:
    """What requests of each kind to an open collection may hold. Thread-safe."""

    def __init__(self) -> None:
        self._sizes: dict[str, Sizes] = {}

    @property
    def is_rated(self) -> bool:
        """Whether the server has limited a rate: then requests one after the other take as long as beside each other,
        and none waits until its time is over.
        """
        return any(sizes.is_rated for sizes in list(self._sizes.values()))

    def of(self, kind: str, most: int | None, n_bytes: int = MAX_BYTES) -> Sizes:
        """The sizes of one kind of request: at most so many items and bytes, and what was learned so far."""
        most = sys.maxsize if most is None else most
        found = self._sizes.setdefault(kind, Sizes(most, n_bytes))
        found.items = min(found.items, most)
        return found
