"""Points on their way to a server: checked, encoded as JSON once, and cut into batches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.errors import InvalidPointError
from pearl_qdrant.lexical.ngrams import ngram_rows
from pearl_qdrant.store.schema import DENSE, LEXICAL, Manifest, NamePoint


@dataclass(frozen=True, slots=True)
class CheckedPoint:
    """A point that may be stored.

    Attributes:
        id: UUID5.
        label: What to call it in an error.
        data: The point, or for an update of payloads its operation, as JSON; 4.5 KB with 448 dimensions.
    """

    id: str
    label: str
    data: bytes


def check_points(
    points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray, manifest: Manifest
) -> list[CheckedPoint]:
    """Check points before any of them is sent; of points with one id the last stays, as a server would have it.

    Args:
        points: n points.
        vectors: (n, dim).
        encodable: (n,).
        manifest: Of the collection: the width of its vectors, and whether it has sparse ones, made here of the names.

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
    if vectors.shape[1] != manifest.dim:
        raise InvalidPointError(
            f"The vector of {_label(points[0])} has {vectors.shape[1]} dimensions, "
            f"but the collection holds vectors of {manifest.dim}. Use the model that made the collection."
        )
    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    bad = encodable & ~(np.isfinite(rows).all(axis=1) & rows.any(axis=1))
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        what = "is zero" if np.isfinite(rows[first]).all() else "holds NaN or infinity"
        raise InvalidPointError(
            f"The vector of {_label(points[first])} {what}. A name without a vector must be marked as not encodable."
        )
    lexical = ngram_rows([point.name for point in points]) if manifest.has_lexical else None
    checked: dict[str, CheckedPoint] = {}
    for i, (point, has_vector) in enumerate(zip(points, encodable.tolist(), strict=True)):
        named: dict[str, Any] = {DENSE: rows[i]} if has_vector else {}
        if lexical is not None and lexical.offsets[i] < lexical.offsets[i + 1]:
            indices, values = lexical.row(i)
            named[LEXICAL] = {"indices": indices, "values": values}
        identifier = _identify(point)
        content = {"id": identifier, "payload": point.to_payload(), "vector": named}
        checked.pop(identifier, None)
        checked[identifier] = CheckedPoint(identifier, _label(point), _dump(point, content))
    return list(checked.values())


def check_payloads(points: Sequence[NamePoint]) -> list[CheckedPoint]:
    """Operations that replace the payloads of points that are stored.

    Raises:
        InvalidPointError: If a text is no valid Unicode.
    """
    checked = []
    for point in points:
        identifier = _identify(point)
        content = {"overwrite_payload": {"payload": point.to_payload(), "points": [identifier]}}
        checked.append(CheckedPoint(identifier, _label(point), _dump(point, content)))
    return checked


def cut_batches(points: Sequence[CheckedPoint], *, max_points: int, max_bytes: int) -> Iterator[list[CheckedPoint]]:
    """Cut points into batches within both bounds; a point over `max_bytes` goes alone."""
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
    """The body of a request that holds these under one field."""
    return b'{"%s":[' % field.encode() + b",".join(point.data for point in points) + b"]}"


def _identify(point: NamePoint) -> str:
    try:
        return point.id
    except ValueError as error:
        raise _invalid(point, error) from error


def _dump(point: NamePoint, content: dict[str, Any]) -> bytes:
    """As JSON; orjson writes float32 with the digits that they have, half of a double's."""
    try:
        if point.type_probability is not None and not math.isfinite(point.type_probability):
            raise ValueError("type_probability is not finite")
        return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    except (ValueError, TypeError) as error:
        raise _invalid(point, error) from error


def _invalid(point: NamePoint, error: Exception) -> InvalidPointError:
    reason = "holds a lone surrogate" if "surrogate" in str(error) else f"is no JSON ({error})"
    return InvalidPointError(f"The payload of {_label(point)} {reason}. Repair it where it was read.")


def _label(point: NamePoint) -> str:
    """What to call a point in an error; ascii() shows what cannot be printed, long names are cut."""
    name = point.name if point.name.isprintable() else ascii(point.name)[1:-1]
    entity_id = point.entity_id if point.entity_id.isprintable() else ascii(point.entity_id)[1:-1]
    return f"'{name if len(name) <= 80 else name[:77] + '...'}' (entity {entity_id})"
