"""Points on their way into an embedded collection: checked, and packed to travel to the writing process."""

from __future__ import annotations

import marshal
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from qdrant_edge import Point, SparseVector

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.errors import InvalidPointError, ManifestError
from pearl_qdrant.lexical.ngrams import SparseRows, ngram_rows
from pearl_qdrant.store.schema import DENSE, FILTER_FIELD, LEXICAL, NamePoint

BATCH_POINTS = 1000
"""Points an update: Edge holds the interpreter lock for its 50 ms."""

CANONICAL_FIELD = "is_canonical"
"""Indexed beside `INDEXED_FIELDS`: a filter cannot match a bool (MatchValue(True) becomes the number 1), facets can."""

RECORD_FIELD = "record"
"""The whole `NamePoint` as JSON."""

_HEADER = struct.Struct("!II")  # rows, width


@dataclass(frozen=True, slots=True)
class PointBatch:
    """Checked points.

    Attributes:
        ids: n point ids.
        payloads: n payloads as Edge keeps them, see `edge_payload`.
        vectors: (n, dim), finite, a copy of the caller's.
        encodable: (n,).
    """

    ids: list[str]
    payloads: list[dict[str, Any]]
    vectors: FloatArray
    encodable: BoolArray

    def __len__(self) -> int:
        return len(self.encodable)

    def points(self, *, has_lexical: bool) -> list[Point]:
        """As Edge takes them; the sparse vectors are made here, from the names, if there are to be any."""
        # A memoryview takes 12 us where a list takes 30.
        vectors: list[dict[str, Any]] = [
            {DENSE: memoryview(row)} if ok else {}
            for row, ok in zip(self.vectors, self.encodable.tolist(), strict=True)
        ]
        if has_lexical:
            rows = sparse_vectors(ngram_rows([payload["name"] for payload in self.payloads]))
            for named, sparse in zip(vectors, rows, strict=True):
                if sparse is not None:
                    named[LEXICAL] = sparse
        return [Point(*parts) for parts in zip(self.ids, vectors, self.payloads, strict=True)]

    def pack(self) -> bytes:
        """As bytes, for a child of this very interpreter; the vectors come first, where they are aligned."""
        rows, width = self.vectors.shape
        header = _HEADER.pack(rows, width)
        texts = marshal.dumps((self.ids, self.payloads))  # three times as fast as JSON
        return b"".join((header, self.vectors.tobytes(), self.encodable.tobytes(), texts))

    @classmethod
    def unpack(cls, packed: bytes) -> PointBatch:
        """The reverse of `pack`; the arrays look into `packed`."""
        rows, width = _HEADER.unpack_from(packed)
        flags = _HEADER.size + 4 * rows * width
        vectors = np.frombuffer(packed, dtype=np.float32, count=rows * width, offset=_HEADER.size)
        encodable = np.frombuffer(packed, dtype=np.bool_, count=rows, offset=flags)
        ids, payloads = marshal.loads(memoryview(packed)[flags + rows :])  # noqa: S302 - our own parent wrote it
        return cls(ids, payloads, vectors.reshape(rows, width), encodable)


def sparse_vectors(rows: SparseRows) -> list[SparseVector | None]:
    """Rows as Edge takes them; None for an empty one."""
    # Slices of one list take a third of the time of a list for each row.
    indices, values, offsets = rows.indices.tolist(), rows.values.tolist(), rows.offsets.tolist()
    return [
        SparseVector(indices[start:stop], values[start:stop]) if stop > start else None
        for start, stop in pairwise(offsets)
    ]


def edge_payload(point: NamePoint) -> dict[str, Any]:
    """A payload as Edge keeps it: the point as a record, and beside it only the fields that are indexed.

    Edge takes 5 us to convert each text, and a list of one takes twice as long as its item, which stands in its place:
    to a filter it is the same.

    Raises:
        UnicodeEncodeError, TypeError: If it cannot be stored.
    """
    payload: dict[str, Any] = {
        RECORD_FIELD: _encode(point).decode(),
        CANONICAL_FIELD: bool(point.is_canonical),
        "entity_id": str(point.entity_id),
        "name": str(point.name),
    }
    if point.predicted_type is not None:
        payload["predicted_type"] = str(point.predicted_type)
    for key, values in (
        ("kb_types", point.kb_types),
        ("types", point.types),
        (FILTER_FIELD, point.filter_types),
    ):
        if len(values) == 1:
            payload[key] = str(values[0])
        elif values:
            payload[key] = list(map(str, values))
    return payload


def read_record(payload: Mapping[str, Any] | None, collection: str) -> NamePoint:
    """The reverse of `edge_payload`.

    Raises:
        ManifestError: If it was not written by pearl-qdrant.
    """
    try:
        return _decode((payload or {}).get(RECORD_FIELD, ""))
    except msgspec.DecodeError as error:
        raise ManifestError(collection, f"a point has no valid record in its payload ({error})") from error


def _plain(value: Any) -> Any:
    """What numpy's numbers are."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no JSON")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode
_decode = msgspec.json.Decoder(NamePoint).decode


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
        try:
            payloads = [edge_payload(point) for point in points[part]]
        except (ValueError, TypeError):
            payloads = [checked_payload(point) for point in points[part]]
        yield PointBatch([point.id for point in points[part]], payloads, rows[part], flags[part])


def checked_payload(point: NamePoint) -> dict[str, Any]:
    """`edge_payload`, with an error of ours that names the point.

    Raises:
        InvalidPointError: If it cannot be stored.
    """
    try:
        return edge_payload(point)
    except (ValueError, TypeError) as error:
        reason = "holds a lone surrogate" if isinstance(error, UnicodeEncodeError) else f"is no JSON ({error})"
        raise InvalidPointError(f"The payload of {_label(point)} {reason}. Repair it where it was read.") from error


def _label(point: NamePoint) -> str:
    """What to call a point in an error; ascii() shows what cannot be printed, long names are cut."""
    name = point.name if point.name.isprintable() else ascii(point.name)[1:-1]
    entity_id = point.entity_id if point.entity_id.isprintable() else ascii(point.entity_id)[1:-1]
    return f"'{name if len(name) <= 80 else name[:77] + '...'}' (entity {entity_id})"
