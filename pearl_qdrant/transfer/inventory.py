"""What a collection has: its points in the order of their ids, with digests of what does not depend on the model.

Two collections are compared by walking both in that order: what one lacks or has in another state is written, and what
the other has no longer is deleted. So a call that was killed is simply repeated. It takes 24 bytes a name.
"""

from __future__ import annotations

import uuid
from array import array
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import msgspec

from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint

_ID_BYTES = 16

_DIGITS = 12


@dataclass(slots=True)
class Inventory:
    """The points of a collection, in the order of their ids.

    Attributes:
        ids: 16 bytes each.
        digests: Of what does not depend on the model.
    """

    ids: bytearray = field(default_factory=bytearray)
    digests: array[int] = field(default_factory=lambda: array("Q"))
    _at: int = 0
    _retired: list[bytes] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.digests)

    @classmethod
    def of(cls, collection: Collection) -> Inventory:
        """Read all points of a collection."""
        inventory = cls()
        for point in collection.scroll():
            inventory.add(point)
        return inventory

    def add(self, point: NamePoint) -> None:
        """Add a point, in the order of their ids."""
        self.ids += uuid.UUID(point.id).bytes
        self.digests.append(digest_of(point))

    def has(self, point: NamePoint) -> bool:
        """Whether a point of another collection is here in the same state. They are asked in the order of their ids."""
        wanted = uuid.UUID(point.id).bytes
        while self._at < len(self) and self._id(self._at) < wanted:
            self._retired.append(self._id(self._at))
            self._at += 1
        is_there = self._at < len(self) and self._id(self._at) == wanted
        self._at += is_there
        return is_there and self.digests[self._at - 1] == digest_of(point)

    def lacks(self, point: NamePoint, seen: Inventory) -> NamePoint | None:
        """Return a point of another collection if it is not here in the same state, and note it as seen."""
        seen.add(point)
        return None if self.has(point) else point

    def retired(self) -> set[str]:
        """The ids here that the other collection has not, once it was asked for all of its points."""
        rest = (self._id(i) for i in range(self._at, len(self)))
        return {str(uuid.UUID(bytes=one)) for one in (*self._retired, *rest)}

    def _id(self, i: int) -> bytes:
        return bytes(self.ids[i * _ID_BYTES : (i + 1) * _ID_BYTES])


def digest_of(point: NamePoint) -> int:
    """Digest of what does not depend on the model: all but the predicted types.

    A store may change the last digits of a popularity (`store.points.is_same_point`), so it counts with `_DIGITS`.
    """
    popularity = None if point.popularity is None else float(f"{point.popularity:.{_DIGITS}g}")
    plain = replace(
        point, phrase_type=None, lexical_class=None, predicted_type=None, type_probability=None, popularity=popularity
    )
    return int.from_bytes(blake2b(_encode(plain), digest_size=8).digest(), "big")


_encode = msgspec.msgpack.Encoder(order="deterministic").encode
