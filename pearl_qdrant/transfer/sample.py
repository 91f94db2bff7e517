"""A sample of names: compared point by point and by search, after a collection was moved."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.errors import StoreError
from pearl_qdrant.store.points import is_same_point
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.rows import NameRows
from pearl_qdrant.store.schema import NamePoint

SAMPLE = 100
"""Names that are compared: enough to find a wrong layout, model or index; 0.1 s."""

_SCORE_TOLERANCE = 1e-3
"""Of a cosine; vectors lose some digits as JSON, and graphs are built anew."""

_AGREEING = 0.95
"""Share of searches that must agree: in two graphs, a few of the nearest names differ."""


@dataclass
class NameSample:
    """Some names of a stream of unknown length, each with the same probability.

    Attributes:
        rng: Chooses them.
        size: How many.
    """

    rng: random.Random
    size: int = SAMPLE
    _seen: int = 0
    _chosen: list[tuple[NamePoint, FloatArray, bool]] = field(default_factory=list)

    def take(self, rows: NameRows) -> None:
        """Take some of these names."""
        for i in range(len(rows.points)):
            self._seen += 1
            place = len(self._chosen) if len(self._chosen) < self.size else self.rng.randrange(self._seen)
            if place < self.size:
                one = (rows.points[i], np.array(rows.vectors[i]), bool(rows.encodable[i]))
                self._chosen[place : place + 1] = [one]

    def vectors(self) -> FloatArray:
        """The vectors of the names that have one: (n, dim), n at most `size`."""
        found: FloatArray = np.array([vector for _, vector, is_encodable in self._chosen if is_encodable], np.float32)
        return found

    @property
    def is_full(self) -> bool:
        """Whether it has as many names as are wanted."""
        return len(self._chosen) == self.size

    def compare(self, source: Collection, target: Collection) -> int:
        """Compare the points and the answers of two collections; returns the number of names compared.

        Raises:
            StoreError: If a point differs, or more than a few answers do.
        """
        points = [point for point, _, _ in self._chosen]
        stored = target.get([point.id for point in points])
        for point in points:
            found = stored.get(point.id)
            if found is None or not is_same_point(found, point):
                there = "is missing" if found is None else "differs"
                raise StoreError(
                    f"Collection '{source.name}' was not moved: the name '{point.name}' of entity {point.entity_id} "
                    f"{there} in the target. Nothing was changed there. Run the same command again; if that does not "
                    f"help, please report it."
                )
        vectors = self.vectors()
        if len(vectors):
            self._compare_answers(source, target, vectors)
        return len(points)

    def _compare_answers(self, source: Collection, target: Collection, vectors: FloatArray) -> None:
        ours = source.search(vectors, limit=1)
        theirs = target.search(vectors, limit=1)
        agreeing = sum(
            bool(a) and bool(b) and abs((a[0].score or 0) - (b[0].score or 0)) < _SCORE_TOLERANCE
            for a, b in zip(ours, theirs, strict=True)
        )
        if agreeing < _AGREEING * len(vectors):
            raise StoreError(
                f"Collection '{source.name}' was not moved: only {agreeing} of {len(vectors)} sample searches have the "
                f"same answer in the target. Nothing was changed there. Run the same command again; if that does not "
                f"help, please report it."
            )
