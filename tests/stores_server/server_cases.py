"""Shared by the tests of the server adapter: stores that do not wait long, and points."""

from __future__ import annotations

import numpy as np
from qdrant_double import QdrantDouble
from store_cases import DIM

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.store import Collection
from pearl_qdrant.store.schema import NamePoint

NAME = "toy"
ANY = r".*"


def points_of(
    n: int, *, start: int = 0, description: str | None = None
) -> tuple[list[NamePoint], FloatArray, BoolArray]:
    """Make points with one name for each entity and random unit vectors."""
    vectors = np.random.default_rng(start).normal(size=(n, DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    numbers = range(start, start + n)
    made = [NamePoint("test", f"E{i}", f"n{i}", f"n{i}", True, description=description) for i in numbers]
    return made, vectors, np.ones(n, dtype=np.bool_)


def load(collection: Collection, n: int, *, step: int = 100) -> None:
    """Write n points through a writer, in pieces."""
    points, vectors, encodable = points_of(n)
    with collection.writer() as writer:
        for start in range(0, n, step):
            piece = slice(start, start + step)
            writer.write(points[piece], vectors[piece], encodable[piece])


def ids_in(double: QdrantDouble) -> list[str]:
    """Ids of all points that the double holds."""
    return [str(record.id) for record in double.client.scroll(NAME, limit=10_000)[0]]
