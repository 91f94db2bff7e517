"""Points on their way into an embedded collection: checked, and packed to travel to the writing process."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.errors import InvalidPointError
from pearl_qdrant.store.schema import NamePoint

BATCH_POINTS = 1000
"""Points an update: Edge holds the interpreter lock for its 50 ms."""

_HEADER = struct.Struct("!III")  # rows, width, bytes of JSON


@dataclass(frozen=True, slots=True)
class PointBatch:
    """Checked points.

    Attributes:
        payloads: JSON array of n payloads, UTF-8. Encoding it is what finds invalid Unicode.
        vectors: (n, dim), finite, a copy of the caller's.
        encodable: (n,).
    """

    payloads: bytes
    vectors: FloatArray
    encodable: BoolArray

    def __len__(self) -> int:
        return len(self.encodable)

    def load_payloads(self) -> list[dict[str, object]]:
        """The payloads as objects."""
        loaded: list[dict[str, object]] = json.loads(self.payloads)
        return loaded

    def pack(self) -> bytes:
        """As bytes, for the pipe."""
        rows, width = self.vectors.shape
        header = _HEADER.pack(rows, width, len(self.payloads))
        return b"".join((header, self.payloads, self.encodable.tobytes(), self.vectors.tobytes()))

    @classmethod
    def unpack(cls, packed: bytes) -> PointBatch:
        """The reverse of `pack`; the arrays look into `packed`."""
        rows, width, size = _HEADER.unpack_from(packed)
        flags = _HEADER.size + size
        return cls(
            payloads=packed[_HEADER.size : flags],
            encodable=np.frombuffer(packed, dtype=np.bool_, count=rows, offset=flags),
            vectors=np.frombuffer(packed, dtype=np.float32, count=rows * width, offset=flags + rows).reshape(
                rows, width
            ),
        )


def check_points(
    points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray, *, dim: int
) -> list[PointBatch]:
    """Check points before any of them is written, and cut them into batches.

    Args:
        points: n points.
        vectors: (n, dim); the row of an unencodable name is not looked at.
        encodable: (n,).
        dim: Width of the collection's vectors.

    Raises:
        InvalidPointError: If a vector is NaN, zero or of another width, or a text no valid Unicode.
        ValueError: If the three do not pair up.
    """
    if vectors.ndim != 2 or not len(points) == len(vectors) == len(encodable):
        raise ValueError(
            f"{len(points)} points, vectors {vectors.shape} and encodable {encodable.shape} do not pair up"
        )
    if not len(points):
        return []
    if vectors.shape[1] != dim:
        raise InvalidPointError(
            f"The vector of {_label(points[0])} has {vectors.shape[1]} dimensions, but the collection holds vectors "
            f"of {dim}. Use the model that made the collection."
        )
    flags: BoolArray = np.array(encodable, dtype=np.bool_)
    rows = np.where(flags.reshape(-1, 1), vectors, 0).astype(np.float32, copy=False)  # a copy in any case
    finite: BoolArray = np.asarray(np.isfinite(rows).all(axis=1))
    bad: BoolArray = flags & ~(finite & np.asarray(rows.any(axis=1)))
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        raise InvalidPointError(
            f"The vector of {_label(points[first])} {'is zero' if finite[first] else 'holds NaN or infinity'}. "
            f"A name without a vector must be marked as not encodable."
        )
    return list(_batches(points, rows, flags))


def _batches(points: Sequence[NamePoint], rows: FloatArray, flags: BoolArray) -> Iterator[PointBatch]:
    """Cut into batches; encoding the payloads checks their text."""
    for start in range(0, len(points), BATCH_POINTS):
        part = slice(start, start + BATCH_POINTS)
        payloads = [point.to_payload() for point in points[part]]
        try:
            encoded = json.dumps(payloads, ensure_ascii=False, allow_nan=False).encode("utf-8")
        except (ValueError, TypeError):
            for point in points[part]:
                _check_payload(point)
            raise
        yield PointBatch(encoded, rows[part], flags[part])


def _check_payload(point: NamePoint) -> None:
    """Raise for a payload that cannot be stored."""
    try:
        json.dumps(point.to_payload(), ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (ValueError, TypeError) as error:
        reason = "holds a lone surrogate" if isinstance(error, UnicodeEncodeError) else f"is no JSON ({error})"
        raise InvalidPointError(f"The payload of {_label(point)} {reason}. Repair it where it was read.") from error


def _label(point: NamePoint) -> str:
    """What to call a point in an error; ascii() shows what cannot be printed, long names are cut."""
    name = point.name if point.name.isprintable() else ascii(point.name)[1:-1]
    entity_id = point.entity_id if point.entity_id.isprintable() else ascii(point.entity_id)[1:-1]
    return f"'{name if len(name) <= 80 else name[:77] + '...'}' (entity {entity_id})"
