"""Names with their vectors, as they move from one collection to another."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.store.schema import NamePoint


@dataclass(frozen=True, slots=True)
class NameRows:
    """Some points with their vectors. Sparse vectors are made of the names where they are written.

    Attributes:
        points: n points.
        vectors: (n, dim) float32; zeros for a name without a vector.
        encodable: (n,); whether a name has a vector.
    """

    points: list[NamePoint]
    vectors: FloatArray
    encodable: BoolArray

    def where(self, wanted: BoolArray) -> NameRows:
        """Return some of the points: (n,) says which."""
        points = [point for point, is_wanted in zip(self.points, wanted.tolist(), strict=True) if is_wanted]
        return NameRows(points, self.vectors[wanted], self.encodable[wanted])


def pack_rows(points: list[NamePoint], vectors: Iterable[Sequence[float] | None], *, dim: int) -> NameRows:
    """Make arrays of the vectors that an engine returned.

    Args:
        points: n points.
        vectors: The vector of each, None for a name without one. They are taken one by one and not held: 448 numbers
            of Python are 14 KB, and making many takes twice as long if all of them stay.
        dim: Their width.

    Raises:
        ValueError: If a vector has another width.
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
