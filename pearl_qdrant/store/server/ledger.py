"""The ledger of what a collection on a server learned: a collection of its own, of points without vectors."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from typing import Any
from uuid import uuid4, uuid5

import msgspec
from qdrant_client import models

from pearl_qdrant.errors import CollectionExistsError, StoreRejectedError
from pearl_qdrant.store.server.connection import Connection
from pearl_qdrant.store.server.errors import RequestTooLargeError
from pearl_qdrant.store.server.queries import scroll
from pearl_qdrant.store.server.sizes import Learned

LEDGER_SUFFIX = ".pearl-qdrant-learned"  # ends the name of a ledger. Lists of collections leave such names out
PART_BYTES = 1 << 20  # bytes of lines in one point of a ledger; a server takes 32 MB in a request
_LEAST_PART = 1 << 10  # characters of a part that is not cut further
_LEDGER_POINTS = 16  # points of a ledger in one scroll: 16 MB at most

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerLedger:
    """The ledger of one collection: a second collection beside it, of points without vectors.

    It is called NAME.pearl-qdrant-learned, is made with the first lines, with the replicas of the version behind it (by
    the server's name `like`), and stays where a collection is deleted to be made again. The lines of one call are one
    or several points; they count only when all of them are there, so that a process that dies leaves nothing that
    counts. Two processes never write the same point.
    """

    connection: Connection
    collection: str
    like: str = ""
    learned: Learned = field(default_factory=Learned)

    @property
    def name(self) -> str:
        return self.collection + LEDGER_SUFFIX

    def read_lines(self) -> Iterator[bytes]:
        """Yield the lines of all calls, in their order, also of one whose writer died; none if there is no ledger. A
        key that may read the collection alone cannot see whether there is one: that is a warning in the log.
        """
        try:
            if not self._exists():
                return
        except StoreRejectedError as error:
            _log.warning("Collection '%s' is linked without what it learned: %s", self.collection, error)
            return
        pages = scroll(self.connection, self.name, page=_LEDGER_POINTS)
        payloads = (msgspec.json.decode(row.payload) for row in chain.from_iterable(pages))
        parts = {(one["time"], one["call"], one["part"]): one for one in payloads if one and "lines" in one}
        for _, call in groupby(sorted(parts), key=itemgetter(0, 1)):
            begun = ""  # of a line that is longer than a request may be
            for part in map(parts.__getitem__, call):
                begun += part["lines"]
                if not part.get("is_cut"):
                    yield from begun.encode("utf-8").split(b"\n")
                    begun = ""
            if begun:
                yield from begun.encode("utf-8").split(b"\n")

    def append_lines(self, lines: Sequence[bytes]) -> None:
        """Append lines; a server has them on return. Raises StoreError if it does not take them."""
        if not self._exists():
            self._create()
        call, now, n_sent = uuid4(), time.time_ns(), 0
        most = self.learned.of("bytes of lines", PART_BYTES)
        waiting = deque((part.decode("utf-8"), False) for part in _cut(lines, most.items))
        while waiting:
            text, is_cut = waiting.popleft()
            payload = {"call": str(call), "time": now, "part": n_sent, "lines": text}
            payload |= {"is_cut": True} if is_cut else {}
            point = models.PointStruct(id=str(uuid5(call, str(n_sent))), vector={}, payload=payload)
            try:
                self._call(partial(self.connection.client.upsert, self.name, [point], wait=True))
                n_sent += 1
            except RequestTooLargeError:
                if len(text) < _LEAST_PART:
                    raise
                most.items = min(most.items, len(text) // 2)
                waiting.extendleft(reversed(_halves(text, is_cut=is_cut)))

    def delete(self) -> None:
        if self._exists():
            self._call(partial(self.connection.client.delete_collection, self.name))

    def _exists(self) -> bool:
        return bool(self._call(partial(self.connection.client.collection_exists, self.name)))

    def _create(self) -> None:
        """Make the collection, with as many copies as the one that it belongs to; another process may be faster."""
        params = self.connection.info(self.like or self.collection).config.params
        create = partial(
            self.connection.client.create_collection,
            self.name,
            vectors_config={},
            shard_number=1,
            replication_factor=params.replication_factor,
            write_consistency_factor=params.write_consistency_factor,
        )
        with suppress(CollectionExistsError):
            self._call(create)

    def _call(self, request: Any) -> Any:
        return self.connection.call(request, collection=self.name)


def _cut(lines: Sequence[bytes], most: int) -> Iterator[bytes]:
    """Lines joined to parts of about `most` bytes."""
    part: list[bytes] = []
    size = 0
    for line in lines:
        part.append(line)
        size += len(line) + 1
        if size >= most:
            yield b"\n".join(part)
            part, size = [], 0
    if part:
        yield b"\n".join(part)


def _halves(text: str, *, is_cut: bool) -> list[tuple[str, bool]]:
    """A part in two, between two of its lines, or else within its only one; with whether the next part goes on."""
    middle = len(text) // 2
    at = text.rfind("\n", 1, middle)
    if at < 0:
        at = text.find("\n", middle, -1)
    if at < 0:
        return [(text[:middle], True), (text[middle:], is_cut)]
    return [(text[:at], False), (text[at + 1 :], is_cut)]
