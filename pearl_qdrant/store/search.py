"""The part of searching that both stores share: arguments checked, batches, ties in order, payloads read.

An engine returns any of several points with an equal score. Which of them stand at the end of a result must not be
left to it: equal scores are ordered by point id, and where a tie reaches over the end more points are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol
from uuid import UUID

import numpy as np

from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.lexical.ngrams import UInt32Array
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
    def id(self) -> str | int | UUID: ...

    @property
    def payload(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class NameQuery:
    """One query of a batch: points by dense vector, or by n-grams.

    Attributes:
        limit: Points to find at most.
        vector: (dim,), not zero; None searches by `lexical`.
        lexical: Indices and values, not empty.
        ids: Keep only these points, as the engine gave their ids; then `vector` is compared with whole vectors, and
            the type filter does not count.
        has_payload: Whether payloads are wanted.
        is_thorough: Whether the graph is searched for names that are hard to find; if not, for the mention's own.
    """

    limit: int
    vector: FloatArray | None = None
    lexical: tuple[UInt32Array, FloatArray] | None = None
    ids: frozenset[str | int | UUID] | None = None
    has_payload: bool = True
    is_thorough: bool = False


RunQueries = Callable[[Sequence[NameQuery]], "Sequence[Sequence[FoundPoint]]"]
"""One call of the engine: q queries to q lists, best first."""

_score = itemgetter(0)


def search(
    run: RunQueries,
    vectors: FloatArray,
    *,
    dim: int,
    limit: int,
    read: Callable[[Any], NamePoint],
    most: int | None = None,
) -> list[list[ScoredName]]:
    """Nearest names of each vector, best first, equal scores by point id; see `protocol.Collection.search`.

    Args:
        run: One call of the engine.
        vectors: (q, dim); a row of zeros finds nothing.
        dim: Width of the collection's vectors.
        limit: Names a query at most.
        read: From a payload to the point.
        most: Points that one query may ask for; None: any number.

    Returns:
        q lists.

    Raises:
        ValueError: If the vectors are of another width or not finite, or `limit` is not positive.
    """
    check_vectors(vectors, dim, limit)
    results: list[list[ScoredName]] = [[] for _ in range(len(vectors))]
    rows = np.flatnonzero(vectors.any(axis=1)).tolist()
    for start in range(0, len(rows), BATCH_QUERIES):
        batch = rows[start : start + BATCH_QUERIES]
        queries = [NameQuery(limit, vector=vectors[row], is_thorough=True) for row in batch]
        for row, found in zip(batch, best(run, queries, most), strict=True):
            results[row] = [ScoredName(read(point.payload), cosine(point.score)) for point in found]
    return results


def best(run: RunQueries, queries: Sequence[NameQuery], most: int | None = None) -> list[list[FoundPoint]]:
    """One batch of queries; asks again, for more points, where a tie reaches over the end of a result.

    Args:
        run: One call of the engine.
        queries: q queries; each finds at most its `limit`.
        most: Points that one query may ask for; None: any number.

    Returns:
        q lists, best first, equal scores by point id.
    """
    results: list[list[FoundPoint]] = [[] for _ in queries]
    ends = [query.limit + _MAX_TIES if most is None else min(most, query.limit + _MAX_TIES) for query in queries]
    fetch = [min(query.limit + 1, end) for query, end in zip(queries, ends, strict=True)]
    open_rows = list(range(len(queries)))
    while open_rows:
        tied = []
        found = run([replace(queries[i], limit=fetch[i]) for i in open_rows])
        for i, points in zip(open_rows, found, strict=True):
            ordered, scores = in_order(points)
            limit = min(queries[i].limit, fetch[i])
            results[i] = ordered[:limit]
            if len(points) == fetch[i] < ends[i] and scores[limit - 1] == scores[-1]:
                tied.append(i)
                fetch[i] = min(4 * fetch[i], ends[i])
        open_rows = tied
    return results


def check_vectors(vectors: FloatArray, dim: int, limit: int) -> None:
    """Refuse what makes no sense.

    Raises:
        ValueError: If the vectors are of another width or not finite, or `limit` is not positive.
    """
    if vectors.ndim != 2 or vectors.shape[1] != dim or not np.isfinite(vectors).all():
        raise ValueError(f"query vectors must be finite and of shape (q, {dim}), these are {vectors.shape}")
    if limit < 1:
        raise ValueError(f"limit must be positive, it is {limit}")


def cosine(score: float) -> float:
    """A score of the engine; rounding can take it just past 1."""
    return max(-1.0, min(1.0, score))


def in_order(points: Sequence[FoundPoint]) -> tuple[list[FoundPoint], list[float]]:
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
