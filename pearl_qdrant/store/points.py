"""Entities to points and back, points with their vectors, and the checks of points that both stores share."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pearl_qdrant.encoder.protocol import BoolArray, Encoded, FloatArray, predict_types
from pearl_qdrant.errors import InvalidPointError
from pearl_qdrant.records import Entity
from pearl_qdrant.store.schema import NamePoint

MAX_NAMES = 10_000
"""More names than any entity has: Wikidata's longest list of aliases has a few thousand."""

_LABEL_CHARS = 80  # of a name in an error message

_RELATIVE_ERROR = 1e-12  # of a number that was stored and read several times; one time adds 1e-16


def name_points(kb: str, names: Iterable[tuple[Entity, str]], encoded: Encoded) -> list[NamePoint]:
    """Make one point of a base for each of n names, which are in the order of the rows of `encoded`.

    An unencodable name gets no phrase type.
    """
    kinds = predicted_types(encoded)
    return [_point(kb, entity, name, kind) for (entity, name), kind in zip(names, kinds, strict=True)]


class PredictedType(NamedTuple):
    """What the type head says of a name; the fields are those of `NamePoint`."""

    phrase_type: str | None = None
    lexical_class: str | None = None
    predicted_type: str | None = None
    type_probability: float | None = None


_NO_TYPE = PredictedType()


def predicted_types(encoded: Encoded) -> list[PredictedType]:
    """What the type head says of each row: n types, without any for an unencodable name, of which it saw no letter."""
    encodable = encoded.encodable.tolist()
    if encoded.type_probabilities is None:
        return [_NO_TYPE] * len(encodable)
    types = predict_types(encoded.type_probabilities)
    kinds = zip(types.phrase_types, types.lexical_classes, types.predicted_types, types.type_probabilities, strict=True)
    return [PredictedType(*kind) if ok else _NO_TYPE for ok, kind in zip(encodable, kinds, strict=True)]


def _point(kb: str, entity: Entity, name: str, kind: PredictedType = _NO_TYPE) -> NamePoint:
    return NamePoint(
        kb=kb,
        entity_id=entity.entity_id,
        name=name,
        canonical_name=entity.canonical_name,
        is_canonical=name == entity.canonical_name,
        kb_types=entity.kb_types,
        types=entity.types,
        description=entity.description,
        phrase_type=kind.phrase_type,
        lexical_class=kind.lexical_class,
        predicted_type=kind.predicted_type,
        type_probability=kind.type_probability,
        popularity=entity.popularity,
        language=entity.languages.get(name),
        extra=entity.extra,
    )


def is_same_point(first: NamePoint, second: NamePoint) -> bool:
    """Whether two points have the same content, but for the last digits of their numbers.

    Qdrant reads a number of more than 15 digits with an error in the last one.
    """
    if first == second:
        return True
    numbers = ("type_probability", "popularity")
    alike = {name: getattr(first, name) for name in numbers if _is_close(getattr(first, name), getattr(second, name))}
    return first == replace(second, **alike)


def _is_close(first: float | None, second: float | None) -> bool:
    return first is not None and second is not None and math.isclose(first, second, rel_tol=_RELATIVE_ERROR)


def names_of(entities: Iterable[Entity]) -> Iterator[tuple[Entity, str]]:
    """Yield each name of each entity, with its entity."""
    for entity in entities:
        for name in entity.names():
            yield entity, name


def plain_points(kb: str, entities: Iterable[Entity]) -> list[NamePoint]:
    """Make one point for each name of each entity, without phrase types."""
    return [_point(kb, entity, name) for entity, name in names_of(entities)]


def entity_from_points(points: Sequence[NamePoint]) -> Entity:
    """Return the entity that all these points belong to; at least one point."""
    first = next((p for p in points if p.is_canonical), points[0])
    aliases = sorted({p.name for p in points} - {first.canonical_name})
    return Entity(
        entity_id=first.entity_id,
        canonical_name=first.canonical_name,
        aliases=tuple(aliases),
        kb_types=first.kb_types,
        types=first.types,
        description=first.description,
        extra=dict(first.extra),
        popularity=first.popularity,
        languages={p.name: p.language for p in points if p.language is not None},
    )


def check_vectors(
    points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray, *, dim: int
) -> tuple[FloatArray, BoolArray]:
    """Check n points, vectors (n, dim) and `encodable` (n,) before anything is written.

    Returns copies: the vectors as float32, with zeros for unencodable names, and `encodable`. Raises InvalidPointError
    if a vector is NaN, zero or has another width than `dim`, ValueError if the three have different lengths.
    """
    if vectors.ndim != 2 or not len(points) == len(vectors) == len(encodable):
        raise ValueError(
            f"{len(points)} points, vectors {vectors.shape} and encodable {encodable.shape} do not pair up"
        )
    if len(points) and vectors.shape[1] != dim:
        raise InvalidPointError(
            f"The vector of {label_point(points[0])} has {vectors.shape[1]} dimensions, but the collection holds "
            f"vectors of {dim}. Use the model that made the collection."
        )
    flags: BoolArray = np.array(encodable, dtype=np.bool_)
    rows: FloatArray = np.array(vectors, dtype=np.float32)
    rows[~flags] = 0
    finite: BoolArray = np.asarray(np.isfinite(rows).all(axis=1))
    bad: BoolArray = flags & ~(finite & np.asarray(rows.any(axis=1)))
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        raise InvalidPointError(
            f"The vector of {label_point(points[first])} {'is zero' if finite[first] else 'holds NaN or infinity'}. "
            f"Mark a name without a vector as not encodable."
        )
    return rows, flags


def invalid_payload(point: NamePoint, error: Exception) -> InvalidPointError:
    """Make the error for a payload that cannot be written as JSON."""
    reason = "holds a lone surrogate" if "surrogate" in str(error) else f"cannot be written as JSON ({error})"
    return InvalidPointError(f"The payload of {label_point(point)} {reason}. Correct it where it was read.")


def label_point(point: NamePoint) -> str:
    """Name a point in an error message. Unprintable characters are escaped, long names are cut."""
    name = point.name if point.name.isprintable() else ascii(point.name)[1:-1]
    entity_id = point.entity_id if point.entity_id.isprintable() else ascii(point.entity_id)[1:-1]
    return f"'{name if len(name) <= _LABEL_CHARS else name[: _LABEL_CHARS - 3] + '...'}' (entity {entity_id})"


@dataclass(frozen=True, slots=True)
class NameRows:
    """n points with their vectors, (n, dim) float32, and whether each has one, (n,); zeros where not.

    Sparse vectors are made of the names where they are written.
    """

    points: list[NamePoint]
    vectors: FloatArray
    encodable: BoolArray

    def where(self, wanted: BoolArray) -> NameRows:
        """Return some of the points: (n,) says which."""
        points = [point for point, is_wanted in zip(self.points, wanted.tolist(), strict=True) if is_wanted]
        return NameRows(points, self.vectors[wanted], self.encodable[wanted])


def pack_rows(points: list[NamePoint], vectors: Iterable[Sequence[float] | None], *, dim: int) -> NameRows:
    """Make arrays of the vectors that an engine returned, None for a name without one.

    They are taken one by one and not held: 448 numbers of Python are 14 KB. ValueError for another width than `dim`.
    """
    row = struct.Struct(f"={dim}f")  # takes a third of the time that numpy takes to read a list
    packed, encodable = list[bytes](), list[bool]()
    for values in vectors:
        if values is not None and len(values) != dim:
            raise ValueError(f"a vector does not have {dim} dimensions")
        packed.append(bytes(row.size) if values is None else row.pack(*values))
        encodable.append(values is not None)
    rows: FloatArray = np.frombuffer(b"".join(packed), dtype=np.float32).reshape(len(encodable), dim)
    return NameRows(points, rows, np.array(encodable, dtype=np.bool_))
