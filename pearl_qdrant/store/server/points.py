"""Points for a server: checked, encoded as JSON once, and cut into batches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.lexical.keys import stored_rows
from pearl_qdrant.store.points import check_vectors, invalid_payload, label_point
from pearl_qdrant.store.schema import DENSE, LEXICAL, NamePoint


@dataclass(frozen=True, slots=True)
class CheckedPoint:
    """A point that may be stored.

    Attributes:
        id: UUID5.
        label: Its name in error messages.
        data: The point as JSON, or for an update of payloads the operation; 4.5 KB with 448 dimensions.
    """

    id: str
    label: str
    data: bytes


def check_points(
    points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray, *, dim: int
) -> list[CheckedPoint]:
    """Check points before any of them is sent. Of points with one id the last is kept, as a server would do.

    Args:
        points: n points.
        vectors: (n, dim).
        encodable: (n,).
        dim: Width of the collection's vectors.

    Raises:
        InvalidPointError: If a vector is NaN, zero or has another width, or a text is not valid Unicode.
        ValueError: If the arrays have different lengths.
    """
    rows, flags = check_vectors(points, vectors, encodable, dim=dim)
    if not len(points):
        return []
    lexical = stored_rows([point.name for point in points])
    checked: dict[str, CheckedPoint] = {}
    for i, (point, has_vector) in enumerate(zip(points, flags.tolist(), strict=True)):
        named: dict[str, Any] = {DENSE: rows[i]} if has_vector else {}
        if lexical.offsets[i] < lexical.offsets[i + 1]:
            indices, values = lexical.row(i)
            named[LEXICAL] = {"indices": indices, "values": values}
        identifier = _point_id(point)
        content = {"id": identifier, "payload": point.to_payload(), "vector": named}
        checked.pop(identifier, None)
        checked[identifier] = CheckedPoint(identifier, label_point(point), _to_json(point, content))
    return list(checked.values())


def check_payloads(points: Sequence[NamePoint]) -> list[CheckedPoint]:
    """Make the operations that replace the payloads of stored points.

    Raises:
        InvalidPointError: If a text is not valid Unicode.
    """
    checked = []
    for point in points:
        identifier = _point_id(point)
        content = {"overwrite_payload": {"payload": point.to_payload(), "points": [identifier]}}
        checked.append(CheckedPoint(identifier, label_point(point), _to_json(point, content)))
    return checked


def cut_batches(points: Sequence[CheckedPoint], *, max_points: int, max_bytes: int) -> Iterator[list[CheckedPoint]]:
    """Cut points into batches within both limits; a point over `max_bytes` is a batch alone."""
    batch: list[CheckedPoint] = []
    size = 0
    for point in points:
        if batch and (len(batch) == max_points or size + len(point.data) > max_bytes):
            yield batch
            batch, size = [], 0
        batch.append(point)
        size += len(point.data) + 1  # the comma
    if batch:
        yield batch


def join(points: Sequence[CheckedPoint], field: str) -> bytes:
    """Make the body of a request that holds these points in one field."""
    return b'{"%s":[' % field.encode() + b",".join(point.data for point in points) + b"]}"


def _point_id(point: NamePoint) -> str:
    try:
        return point.id
    except ValueError as error:
        raise invalid_payload(point, error) from error


def _to_json(point: NamePoint, content: dict[str, Any]) -> bytes:
    """Write JSON. orjson writes float32 with the digits that they have, half of a double's."""
    try:
        if point.type_probability is not None and not math.isfinite(point.type_probability):
            raise ValueError("type_probability is not finite")
        return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    except (ValueError, TypeError) as error:
        raise invalid_payload(point, error) from error
