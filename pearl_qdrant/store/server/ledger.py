"""The ledger of what a collection on a server learned: a collection of its own, of points without vectors."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count, groupby
from operator import itemgetter
from typing import Any
from uuid import uuid4, uuid5

import msgspec
from qdrant_client import models

from pearl_qdrant.errors import CollectionExistsError, StoreRejectedError
from pearl_qdrant.store.server.connection import Connection
from pearl_qdrant.store.server.queries import scroll
from pearl_qdrant.store.server.sizes import Learned

LEDGER_SUFFIX = ".pearl-qdrant-learned"  # ends the name of a ledger. Lists of collections leave such names out
PART_BYTES = 1 << 20  # characters of lines in one point of a ledger; a server takes 32 MB in a request
_PIECE = 1 << 10  # characters of a line that are not cut further
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
        call, now, numbers = uuid4(), time.time_ns(), count()
        texts = [line.decode("utf-8") for line in lines]
        pieces = [
            (text[at : at + _PIECE], at + _PIECE < len(text))
            for text in texts
            for at in range(0, max(1, len(text)), _PIECE)
        ]

        def store(part: Sequence[tuple[str, bool]]) -> None:
            number, is_cut = next(numbers), part[-1][1]
            text = "".join(piece if goes_on else f"{piece}\n" for piece, goes_on in part)
            payload = {"call": str(call), "time": now, "part": number, "lines": text if is_cut else text[:-1]}
            payload |= {"is_cut": True} if is_cut else {}
            point = models.PointStruct(id=str(uuid5(call, str(number))), vector={}, payload=payload)
            self._call(partial(self.connection.client.upsert, self.name, [point], wait=True))

        for _ in self.learned.of("lines", None, PART_BYTES).send(pieces, lambda one: len(one[0]), store):
            pass

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
