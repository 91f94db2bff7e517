"""The ledger of a collection on a server: a second collection beside it, of points without vectors.

It is called NAME.pearl-qdrant-learned, is made with the first lines, and stays where a collection is deleted to be made
again. The lines of one call are one or several points; they count only when all of them are there, so that a process
that dies leaves nothing that counts. Two processes never write the same point.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4, uuid5

from qdrant_client import models

from pearl_qdrant.errors import CollectionExistsError, StoreRejectedError
from pearl_qdrant.store.server.connection import Connection

_log = logging.getLogger(__name__)

LEDGER_SUFFIX = ".pearl-qdrant-learned"
"""Ends the name of a ledger. Lists of collections leave such names out."""

PART_BYTES = 1 << 20
"""Bytes of lines in one point; a server takes 32 MB in a request."""

_PAGE_POINTS = 16  # points in one scroll: 16 MB at most


@dataclass(frozen=True, slots=True)
class ServerLedger:
    """The ledger of one collection. It gets the replicas of the version behind it, by the server's name `like`."""

    connection: Connection
    collection: str
    like: str = ""

    @property
    def name(self) -> str:
        """The name of the collection that holds the lines."""
        return self.collection + LEDGER_SUFFIX

    def read_lines(self) -> Iterator[bytes]:
        """Yield the lines of all calls, in their order, also of one whose writer died; none if there is no ledger.

        A key that may read the collection alone cannot see whether there is one: that is a warning in the log.
        """
        try:
            if not self._exists():
                return
        except StoreRejectedError as error:
            _log.warning("Collection '%s' is linked without what it learned: %s", self.collection, error)
            return
        parts = {(one["time"], one["call"], one["part"]): one["lines"] for one in self._payloads()}
        for key in sorted(parts):
            yield from parts[key].encode("utf-8").split(b"\n")

    def append_lines(self, lines: Sequence[bytes]) -> None:
        """Append lines; a server has them on return. Raises StoreError if it does not take them."""
        if not self._exists():
            self._create()
        call, now, parts = uuid4(), time.time_ns(), list(_cut(lines))
        for i, part in enumerate(parts):
            payload = {
                "call": str(call),
                "time": now,
                "part": i,
                "lines": part.decode("utf-8"),
            }
            point = models.PointStruct(id=str(uuid5(call, str(i))), vector={}, payload=payload)
            self._call(partial(self.connection.client.upsert, self.name, [point], wait=True))

    def delete(self) -> None:
        """Delete the ledger, if there is one."""
        if self._exists():
            self._call(partial(self.connection.client.delete_collection, self.name))

    def _exists(self) -> bool:
        return bool(self._call(partial(self.connection.client.collection_exists, self.name)))

    def _create(self) -> None:
        """Make the collection, with as many copies as the one that it belongs to; another process may be faster."""
        client = self.connection.client
        params = self.connection.info(self.like or self.collection).config.params
        create = partial(
            client.create_collection,
            self.name,
            vectors_config={},
            shard_number=1,
            replication_factor=params.replication_factor,
            write_consistency_factor=params.write_consistency_factor,
        )
        with suppress(CollectionExistsError):
            self._call(create)

    def _payloads(self) -> Iterator[dict[str, Any]]:
        offset: Any = None
        while True:
            scroll = partial(self.connection.client.scroll, self.name, limit=_PAGE_POINTS, offset=offset)
            records, offset = self._call(scroll)
            for record in records:
                yield record.payload or {}
            if offset is None:
                return

    def _call(self, request: Any) -> Any:
        return self.connection.call(request, collection=self.name)


def _cut(lines: Sequence[bytes]) -> Iterator[bytes]:
    """Lines joined to parts of about `PART_BYTES`."""
    part: list[bytes] = []
    size = 0
    for line in lines:
        part.append(line)
        size += len(line) + 1
        if size >= PART_BYTES:
            yield b"\n".join(part)
            part, size = [], 0
    if part:
        yield b"\n".join(part)
