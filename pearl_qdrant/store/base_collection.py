"""The methods that collections of both stores share. An adapter supplies the raw calls of its engine."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from heapq import merge
from itertools import islice, product

import numpy as np

from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.lexical.ngrams import SparseRows
from pearl_qdrant.store.hybrid import search_hybrid
from pearl_qdrant.store.protocol import IsMatch
from pearl_qdrant.store.schema import DENSE, DESCRIPTION, FACET_FIELDS, Manifest, NamePoint, point_id
from pearl_qdrant.store.search import (
    MakeSlipQuery,
    ScoredName,
    SearchEngine,
    check_limit,
    chunks,
    keep_valid,
    search_dense,
)
from pearl_qdrant.store.versions.rows import NameRows


@dataclass(frozen=True, slots=True)
class PointFilter:
    """Which points pass: all conditions must hold. All values are valid Unicode.

    Attributes:
        entity_ids: The point has one of these entity ids; empty: no condition.
        names: The point has one of these names; empty: no condition.
        types: The point has one of these types, as in `NamePoint.filter_types`; empty: no condition.
    """

    entity_ids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


class BaseCollection(ABC):
    """One open collection; see `protocol.Collection`.

    The public methods check arguments, cut them into parts that the engine takes, and merge the answers. They call the
    abstract methods, which do one call of the engine each.
    """

    @property
    @abstractmethod
    def manifest(self) -> Manifest:
        """The manifest as read on opening, or as last written here."""

    @property
    @abstractmethod
    def _page_size(self) -> int:
        """Points that one scroll or retrieve requests."""

    @property
    @abstractmethod
    def _max_values(self) -> int:
        """The most values in one condition of a filter, or ids in one delete."""

    @abstractmethod
    def _check_open(self) -> None:
        """Refuse to work on a closed collection, or in a forked process.

        Raises:
            StoreClosedError: If it was closed.
            StoreForkedError: If another process opened it.
        """

    @abstractmethod
    def _engine(self, types: tuple[str, ...], n_wanted: int) -> SearchEngine:
        """Return the engine for searches under a type filter; without types there is no filter.

        Raises:
            StoreRejectedError: If a query may not return `n_wanted` points.
        """

    @abstractmethod
    def _scroll(self, point_filter: PointFilter | None, page: int) -> Iterator[NamePoint]:
        """Yield the points that pass, ordered by id; `page` points for each call of the engine."""

    @abstractmethod
    def _scroll_rows(self) -> Iterator[NameRows]:
        """Yield all points with their dense vectors, ordered by id, in pages."""

    @abstractmethod
    def _retrieve(self, ids: list[str]) -> dict[str, NamePoint]:
        """Return the points of these ids; missing ones are left out."""

    @abstractmethod
    def _retrieve_vectors(self, ids: list[str], vector: str) -> Mapping[str, Sequence[float]]:
        """Return this vector of the points of these ids; points without it are left out."""

    @abstractmethod
    def _count(self, point_filter: PointFilter | None) -> int:
        """Count the points that pass, exactly."""

    @abstractmethod
    def _count_values(self, field: str, limit: int) -> dict[str, int]:
        """Count the points by value of a payload field; the `limit` most frequent values."""

    @abstractmethod
    def _delete_matching(self, point_filter: PointFilter) -> int:
        """Delete the points that pass; return how many there were."""

    @abstractmethod
    def _delete_ids(self, ids: list[str]) -> None:
        """Delete points by id; unknown ids do not matter."""

    def search(self, vectors: FloatArray, *, limit: int, types: Sequence[str] = ()) -> list[list[ScoredName]]:
        """Find the nearest names of each query vector, best first; see `protocol.Collection.search`.

        Raises:
            ValueError: If the vectors have another width or are not finite, or `limit` is not positive.
            StoreRejectedError: If the server's strict mode does not allow a query for `limit` points.
        """
        self._check_open()
        valid_types = keep_valid(types)
        if types and not valid_types:
            return [[] for _ in range(len(vectors))]
        return search_dense(self._engine(tuple(valid_types), limit), vectors, limit=limit)

    def search_hybrid(
        self,
        vectors: FloatArray,
        lexical: SparseRows,
        *,
        limit: int,
        lexical_limit: int,
        types: Sequence[str] = (),
        is_match: IsMatch | None = None,
        keys: SparseRows | None = None,
        slips: MakeSlipQuery | None = None,
    ) -> list[list[ScoredName]]:
        """Find names near by dense vector, by keys, slips or n-grams; see `protocol.Collection.search_hybrid`.

        Raises:
            ValueError: If vectors and rows do not pair up, have another width or are not finite, or a limit is not
                positive.
            StoreRejectedError: If the server's strict mode does not allow a query for `lexical_limit` points.
        """
        self._check_open()
        valid_types = keep_valid(types)
        if types and not valid_types:
            return [[] for _ in range(len(vectors))]
        return search_hybrid(
            # The caller wants `lexical_limit` names. `limit` is a little larger, and is cut to what is allowed.
            self._engine(tuple(valid_types), lexical_limit),
            vectors,
            lexical,
            limit=limit,
            lexical_limit=lexical_limit,
            is_match=is_match,
            keys=keys,
            slips=slips,
        )

    def find(
        self, *, entity_ids: Sequence[str] = (), names: Sequence[str] = (), types: Sequence[str] = (), limit: int
    ) -> list[NamePoint]:
        """Find points by exact entity id or name, ordered by point id; if both are given, both must match.

        Raises:
            ValueError: If neither ids nor names are given, or `limit` is not positive.
        """
        if not entity_ids and not names:
            raise ValueError("find needs entity_ids or names")
        check_limit(limit)
        self._check_open()
        valid_types = tuple(keep_valid(types))
        if types and not valid_types:
            return []
        page = min(limit, self._page_size)
        # A condition takes a limited number of values: one filter for each pair of parts. If no id or no name is
        # valid, there is no part, so no filter, and nothing is found.
        pages = [
            self._scroll(PointFilter(id_part, name_part, valid_types), page)
            for id_part, name_part in product(self._cut(entity_ids), self._cut(names))
        ]
        return list(islice(merge(*pages, key=lambda point: point.id), limit))

    def get(self, ids: Sequence[str]) -> dict[str, NamePoint]:
        """Return points by id; missing ones are left out."""
        self._check_open()
        points: dict[str, NamePoint] = {}
        for some in chunks(ids, self._page_size):
            points.update(self._retrieve(some))
        return points

    def description_vectors(self, points: Sequence[NamePoint]) -> FloatArray:
        """Return the vector of the description of each point's entity; see `protocol.Collection.description_vectors`.

        Only the points without a vector of a description are requested again, for that of the canonical name.
        """
        self._check_open()
        ids = [point_id(point.kb, point.entity_id, point.canonical_name) for point in points]
        row = struct.Struct(f"={self.manifest.dim}f")  # takes a third of the time that numpy takes to read a list
        found: dict[str, bytes] = {}
        for vector in (DESCRIPTION, DENSE) if self.manifest.has_descriptions else (DENSE,):
            for some in chunks([one for one in dict.fromkeys(ids) if one not in found], self._page_size):
                found |= {one: row.pack(*values) for one, values in self._retrieve_vectors(some, vector).items()}
        packed = b"".join(found.get(one, bytes(row.size)) for one in ids)
        rows = np.frombuffer(packed, dtype=np.float32).reshape(len(ids), self.manifest.dim)
        # Vectors of descriptions are stored with half the digits. A point without a vector stays zero.
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(rows / np.where(norms == 0, 1, norms), dtype=np.float32)

    def scroll(self) -> Iterator[NamePoint]:
        """Yield all points, ordered by point id."""
        return self._scroll(None, self._page_size)

    def scroll_rows(self) -> Iterator[NameRows]:
        """Yield all points with their vectors, ordered by point id; see `protocol.Collection.scroll_rows`."""
        return self._scroll_rows()

    def count(self) -> int:
        """Return the exact number of points."""
        return self._count(None)

    def type_counts(self, limit: int = 1000) -> dict[str, dict[str, int]]:
        """Count the points by value of each type field, most frequent first."""
        return {field: self._count_values(field, limit) for field in FACET_FIELDS}

    def has_type(self, name: str) -> bool:
        """Whether any point passes a filter for this type."""
        valid = tuple(keep_valid([name]))
        return bool(valid) and self._count(PointFilter(types=valid)) > 0

    @property
    def is_outdated(self) -> bool:
        """False: each answer is from the newest state."""
        return False

    @property
    def state_token(self) -> str | None:
        """None: other clients may change it at any time."""
        return None

    def editing(self) -> AbstractContextManager[None]:
        """Nothing: other processes see each change at once."""
        return nullcontext()

    def delete_entities(self, entity_ids: Sequence[str]) -> int:
        """Delete all points of these entities; return how many points were deleted."""
        self._check_open()
        with self.editing():
            return sum(self._delete_matching(PointFilter(entity_ids=part)) for part in self._cut(entity_ids) if part)

    def delete_points(self, ids: AbstractSet[str]) -> None:
        """Delete points by id; unknown ids do not matter."""
        with self.editing():
            for some in chunks(sorted(ids), self._max_values):
                self._delete_ids(some)

    def _cut(self, values: Sequence[str]) -> list[tuple[str, ...]]:
        """Cut the valid and distinct values into parts for one condition each; no values make one empty part."""
        if not values:
            return [()]
        return [tuple(part) for part in chunks(keep_valid(dict.fromkeys(values)), self._max_values)]
