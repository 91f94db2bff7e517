"""Names with their vectors, as they move from one collection to another."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.store.schema import DENSE, DESCRIPTION, NamePoint


@dataclass(frozen=True, slots=True)
class NameRows:
    """Some points with their vectors. Sparse vectors are made of the names where they are written.

    Attributes:
        points: n points.
        vectors: (n, dim) float32; zeros for a name without a vector.
        encodable: (n,); whether a name has a vector.
        descriptions: (n, dim) float32, zeros for a point without one; None if the collection keeps none.
    """

    points: list[NamePoint]
    vectors: FloatArray
    encodable: BoolArray
    descriptions: FloatArray | None = None

    def where(self, wanted: BoolArray) -> NameRows:
        """Return some of the points: (n,) says which."""
        points = [point for point, is_wanted in zip(self.points, wanted.tolist(), strict=True) if is_wanted]
        descriptions = None if self.descriptions is None else self.descriptions[wanted]
        return NameRows(points, self.vectors[wanted], self.encodable[wanted], descriptions)


def pack_rows(
    points: list[NamePoint], vectors: Iterable[Mapping[str, Sequence[float]]], *, dim: int, has_descriptions: bool
) -> NameRows:
    """Make arrays of the vectors that an engine returned.

    Args:
        points: n points.
        vectors: The named vectors of each. They are taken one by one and not held: 448 numbers of Python are 14 KB,
            and making many takes twice as long if all of them stay.
        dim: Their width.
        has_descriptions: Whether the collection keeps vectors of descriptions.

    Raises:
        ValueError: If a vector has another width.
    """
    packers = [_Packer(name, dim) for name in ((DENSE, DESCRIPTION) if has_descriptions else (DENSE,))]
    for named in vectors:
        for packer in packers:
            packer.add(named)
    (dense, encodable), *others = (packer.rows() for packer in packers)
    return NameRows(points, dense, encodable, others[0][0] if others else None)


class _Packer:
    """One vector of each point as an array."""

    def __init__(self, name: str, dim: int) -> None:
        self._name, self._dim = name, dim
        self._row = struct.Struct(f"={dim}f")  # takes a third of the time that numpy takes to read a list
        self._zeros = bytes(self._row.size)
        self._packed: list[bytes] = []
        self._has: list[bool] = []

    def add(self, named: Mapping[str, Sequence[float]]) -> None:
        """Take the vector of the next point, if it has one."""
        values = named.get(self._name)
        if values is not None and len(values) != self._dim:
            raise ValueError(f"a vector '{self._name}' does not have {self._dim} dimensions")
        self._packed.append(self._zeros if values is None else self._row.pack(*values))
        self._has.append(values is not None)

    def rows(self) -> tuple[FloatArray, BoolArray]:
        """The vectors, (n, dim), zeros for points without one; and which points have one, (n,)."""
        rows: FloatArray = np.frombuffer(b"".join(self._packed), dtype=np.float32).reshape(len(self._has), self._dim)
        return rows, np.array(self._has, dtype=np.bool_)
