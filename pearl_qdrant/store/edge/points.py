"""Points for an embedded collection, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from qdrant_edge import Point, SparseVector

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.errors import ManifestError
from pearl_qdrant.lexical.keys import stored_rows
from pearl_qdrant.lexical.ngrams import SparseRows
from pearl_qdrant.store.points import check_vectors, invalid_payload
from pearl_qdrant.store.schema import DENSE, FILTER_FIELD, LANGUAGE_FIELD, LEXICAL, Manifest, NamePoint

BATCH_POINTS = 1000
"""Points in one update. Edge holds the interpreter lock for its 50 ms."""

CANONICAL_FIELD = "is_canonical"
"""Indexed beside `INDEXED_FIELDS`. A filter cannot match a bool (MatchValue(True) becomes 1), but a facet can."""

RECORD_FIELD = "record"
"""The whole `NamePoint` as JSON, in the payload of an embedded store."""

_PLAIN_FIELD = "canonical_name"  # in every plain payload; a base may have a column of its own called `record`


@dataclass(frozen=True, slots=True)
class PointBatch:
    """Checked points: n ids, payloads (`edge_payload`), vectors (n, dim), and whether each has one, (n,)."""

    ids: list[str]
    payloads: list[dict[str, Any]]
    vectors: FloatArray
    encodable: BoolArray

    def __len__(self) -> int:
        return len(self.encodable)

    def points(self) -> list[Point]:
        """Make the points that Edge takes. Sparse vectors are made of the names here."""
        # A memoryview takes 12 us where a list takes 30.
        vectors: list[dict[str, Any]] = [
            {DENSE: memoryview(row)} if ok else {}
            for row, ok in zip(self.vectors, self.encodable.tolist(), strict=True)
        ]
        rows = sparse_vectors(stored_rows([payload["name"] for payload in self.payloads]))
        for named, sparse in zip(vectors, rows, strict=True):
            if sparse is not None:
                named[LEXICAL] = sparse
        return [Point(*parts) for parts in zip(self.ids, vectors, self.payloads, strict=True)]


def sparse_vectors(rows: SparseRows) -> list[SparseVector | None]:
    """Make the sparse vectors that Edge takes; None for an empty row."""
    # Slicing one list takes a third of the time of making a list for each row.
    indices, values, offsets = rows.indices.tolist(), rows.values.tolist(), rows.offsets.tolist()
    return [
        SparseVector(indices[start:stop], values[start:stop]) if stop > start else None
        for start, stop in pairwise(offsets)
    ]


def edge_payload(point: NamePoint) -> dict[str, Any]:
    """Make the payload that Edge stores: the point as one record, and beside it only the indexed fields.

    Edge takes 5 us to convert each text. A list of one item takes twice as long as the item, which is stored instead: a
    filter treats both alike. Raises UnicodeEncodeError or TypeError if it cannot be stored.
    """
    payload: dict[str, Any] = {
        RECORD_FIELD: _encode(point).decode(),
        CANONICAL_FIELD: bool(point.is_canonical),
        "entity_id": str(point.entity_id),
        "name": str(point.name),
    }
    if point.predicted_type is not None:
        payload["predicted_type"] = str(point.predicted_type)
    if point.language is not None:
        payload[LANGUAGE_FIELD] = str(point.language)
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


def payload_fields(manifest: Manifest) -> list[str] | bool:
    """Return which fields of a payload are read: the record alone, or all where there are points without one."""
    return True if manifest.has_plain_payloads else [RECORD_FIELD]


def _plain(value: Any) -> Any:
    """Turn numpy's numbers into plain ones."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode


def check_points(
    points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray, *, dim: int
) -> list[PointBatch]:
    """Check points before any of them is written, and cut them into batches; as for `Writer.write`."""
    rows, flags = check_vectors(points, vectors, encodable, dim=dim)
    parts = [slice(start, start + BATCH_POINTS) for start in range(0, len(points), BATCH_POINTS)]
    return [_batch(points[part], rows[part], flags[part]) for part in parts]


def _batch(points: Sequence[NamePoint], rows: FloatArray, flags: BoolArray) -> PointBatch:
    """Make one batch. Encoding the payloads checks their texts."""
    try:
        payloads = [edge_payload(point) for point in points]
    except (ValueError, TypeError):
        payloads = [checked_payload(point) for point in points]
    return PointBatch([point.id for point in points], payloads, rows, flags)


def checked_payload(point: NamePoint) -> dict[str, Any]:
    """Make the payload as `edge_payload` does; InvalidPointError names the point if it cannot be stored."""
    try:
        return edge_payload(point)
    except (ValueError, TypeError) as error:
        raise invalid_payload(point, error) from error


_decode = msgspec.json.Decoder(NamePoint).decode


def read_record(payload: Mapping[str, Any] | None, collection: str) -> NamePoint:
    """Read the payload of a point, which is one record; ManifestError if it was not written by pearl-qdrant."""
    try:
        return _decode((payload or {}).get(RECORD_FIELD, ""))
    except (msgspec.DecodeError, TypeError) as error:
        raise ManifestError(collection, f"a point has no valid record in its payload ({error})") from error


def read_payload(payload: Mapping[str, Any] | None, collection: str) -> NamePoint:
    """Read the payload of a point of a pulled snapshot: plain fields as on a server, or a record written since."""
    if payload and RECORD_FIELD in payload and _PLAIN_FIELD not in payload:
        return read_record(payload, collection)
    return NamePoint.from_json(msgspec.json.encode(payload or {}), collection)
