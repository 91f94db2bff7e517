"""The part of searching that both stores share: arguments checked, batches, ties in order, payloads read.

An engine returns any of several points with an equal score. Which of them stand at the end of a result must not be
left to it: equal scores are ordered by point id, and where a tie reaches over the end more points are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol

import numpy as np

from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.store.protocol import ScoredName
from pearl_qdrant.store.schema import NamePoint

BATCH_QUERIES = 64
"""Queries at a time: enough to hide a round trip, few enough for a time-out; Edge holds the interpreter lock."""

_MAX_TIES = 1000  # points of one score that are put in order at the end of a result


class FoundPoint(Protocol):
    """A point that a query found, as either engine gives it. Reading a field may cost: it converts."""

    @property
    def score(self) -> float: ...

    @property
    def id(self) -> object: ...

    @property
    def payload(self) -> dict[str, Any] | None: ...


_score = itemgetter(0)

QueryBatch = Callable[[FloatArray, int], "Sequence[Sequence[FoundPoint]]"]
"""Query vectors (q, dim) and how many points to find for each, to q lists, best first."""


def search(
    query: QueryBatch, vectors: FloatArray, *, dim: int, limit: int, read: Callable[[dict[str, Any] | None], NamePoint]
) -> list[list[ScoredName]]:
    """Nearest names of each vector, best first, equal scores by point id; see `protocol.Collection.search`.

    Args:
        query: One call of the engine.
        vectors: (q, dim); a row of zeros finds nothing.
        dim: Width of the collection's vectors.
        limit: Names a query at most.
        read: From a payload to the point.

    Returns:
        q lists.

    Raises:
        ValueError: If the vectors are of another width or not finite, or `limit` is not positive.
    """
    if vectors.ndim != 2 or vectors.shape[1] != dim or not np.isfinite(vectors).all():
        raise ValueError(f"query vectors must be finite and of shape (q, {dim}), these are {vectors.shape}")
    if limit < 1:
        raise ValueError(f"limit must be positive, it is {limit}")
    results: list[list[ScoredName]] = [[] for _ in range(len(vectors))]
    rows = np.flatnonzero(vectors.any(axis=1))
    for start in range(0, len(rows), BATCH_QUERIES):
        batch = rows[start : start + BATCH_QUERIES]
        for row, found in zip(batch.tolist(), _search_batch(query, vectors[batch], limit), strict=True):
            # Rounding can take a cosine just past 1.
            results[row] = [ScoredName(read(point.payload), max(-1.0, min(1.0, point.score))) for point in found]
    return results


def _search_batch(query: QueryBatch, vectors: FloatArray, limit: int) -> list[list[FoundPoint]]:
    """One batch; asks again, for more points, where a tie reaches over the end of a result."""
    results: list[list[FoundPoint]] = [[] for _ in range(len(vectors))]
    open_rows, fetch, most = list(range(len(vectors))), limit + 1, limit + _MAX_TIES
    while open_rows:
        tied = []
        for i, points in zip(open_rows, query(vectors[open_rows], fetch), strict=True):
            ordered, scores = _in_order(points)
            results[i] = ordered[:limit]
            if len(points) == fetch and fetch < most and scores[limit - 1] == scores[-1]:
                tied.append(i)
        open_rows, fetch = tied, min(4 * fetch, most)
    return results


def _in_order(points: Sequence[FoundPoint]) -> tuple[list[FoundPoint], list[float]]:
    """Best first, equal scores by point id; and their scores."""
    scored = sorted([(point.score, point) for point in points], key=_score, reverse=True)
    ordered: list[FoundPoint] = []
    for _, group in groupby(scored, key=_score):
        equal = [point for _, point in group]
        if len(equal) > 1:  # an id takes 4 us to read
            equal.sort(key=lambda point: str(point.id))
        ordered += equal
    return ordered, [score for score, _ in scored]


def storable(values: Iterable[str]) -> list[str]:
    """The values that a point can have at all: one with a lone surrogate matches nothing and cannot be sent."""
    kept = []
    for value in values:
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            continue
        kept.append(value)
    return kept


def chunks(values: Sequence[str], n: int) -> Iterable[list[str]]:
    """Cut values into lists of at most `n`."""
    for start in range(0, len(values), n):
        yield list(values[start : start + n])
