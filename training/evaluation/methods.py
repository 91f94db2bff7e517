"""The methods that are evaluated: encoders and string similarities.

Cost: each distinct string is encoded once in a run, over all tasks, and takes 4 x dim bytes of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.encoder.protocol import FloatArray as Vectors
from pearl_qdrant.phrase_types import ENTITY_TYPES, LEXICAL_CLASSES
from training.evaluation.outcome import FloatArray, IntArray

Need = Literal["similarity", "ranking", "arithmetic", "vectors", "types", "linking", "large_linking", "everyday"]

_WITHOUT_HEAD: frozenset[Need] = frozenset({"similarity", "ranking", "arithmetic", "vectors"})
_WITH_HEAD: frozenset[Need] = _WITHOUT_HEAD | {"types"}

_MATRIX = 20_000_000
"""Scores in memory at once in a search for the nearest name: 80 MB."""


_OFFSETS = 10_000
"""Rows of vector arithmetic in memory at once."""


class Method(Protocol):
    """A method under evaluation. A task runs on methods that support its need."""

    @property
    def name(self) -> str:
        """Name in the report, as the user gave it."""
        ...

    @property
    def supports(self) -> frozenset[Need]:
        """The needs of tasks that it can meet."""
        ...


class Similarity(Method, Protocol):
    """A method that compares strings."""

    def pair_scores(self, left: Sequence[str], right: Sequence[str]) -> FloatArray:
        """Similarity of each pair, (n,); higher is closer."""
        ...

    def nearest(self, mentions: Sequence[str], names: Sequence[str]) -> IntArray:
        """Index of the most similar name for each mention, (n,); the first one if several are equal."""
        ...


class Ranking(Method, Protocol):
    """A method that scores candidates for queries."""

    def score_matrix(self, queries: Sequence[str], candidates: Sequence[str]) -> FloatArray:
        """Scores of all candidates for each query, (n, m); higher is closer."""
        ...


class Arithmetic(Method, Protocol):
    """A method whose vectors can be added."""

    def offset_scores(self, a: Sequence[str], b: Sequence[str], c: Sequence[str], d: Sequence[str]) -> FloatArray:
        """Cosine of c + b - a and d for each row, (n,), with vectors of length 1; 0 where one side is zero."""
        ...


class EncoderMethod:
    """An encoder with a cache of all its vectors; similarity is the cosine."""

    def __init__(self, encoder: Encoder, *, name: str | None = None) -> None:
        self._encoder = encoder
        self._row: dict[str, int] = {}
        self._vectors = np.zeros((0, encoder.info.dim), dtype=np.float32)
        self._types = np.zeros(0, dtype=np.int8)
        self.name = name or encoder.info.name
        self.supports: frozenset[Need] = _WITH_HEAD if encoder.info.has_head else _WITHOUT_HEAD

    @property
    def n_encoded(self) -> int:
        """Distinct strings encoded so far."""
        return len(self._row)

    def vectors(self, names: Sequence[str]) -> Vectors:
        """Vectors of length 1, (n, dim); zeros for a name that cannot be encoded."""
        rows = self._rows(names)
        found: Vectors = self._vectors[rows]
        return found

    def entity_types(self, names: Sequence[str]) -> list[str]:
        """The most probable entity type of each name, summed over lexical classes.

        Raises:
            ValueError: If the encoder has no type head.
        """
        if "types" not in self.supports:
            raise ValueError(f"{self.name} has no type head")
        rows = self._rows(names)
        return [ENTITY_TYPES[i] for i in self._types[rows].tolist()]

    def pair_scores(self, left: Sequence[str], right: Sequence[str]) -> FloatArray:
        self._rows([*left, *right])
        scores: FloatArray = np.einsum("nd,nd->n", self.vectors(left), self.vectors(right)).astype(np.float64)
        return scores

    def nearest(self, mentions: Sequence[str], names: Sequence[str]) -> IntArray:
        self._rows([*mentions, *names])
        rows, columns = self.vectors(mentions), self.vectors(names)
        step = max(1, _MATRIX // len(names))
        found = [np.argmax(rows[start : start + step] @ columns.T, axis=1) for start in range(0, len(rows), step)]
        nearest: IntArray = np.concatenate(found)
        return nearest

    def score_matrix(self, queries: Sequence[str], candidates: Sequence[str]) -> FloatArray:
        self._rows([*queries, *candidates])
        scores: FloatArray = (self.vectors(queries) @ self.vectors(candidates).T).astype(np.float64)
        return scores

    def offset_scores(self, a: Sequence[str], b: Sequence[str], c: Sequence[str], d: Sequence[str]) -> FloatArray:
        rows = [self._rows(names) for names in (a, b, c, d)]
        scores = np.zeros(len(d))
        for start in range(0, len(d), _OFFSETS):
            # (n, dim) each, as a copy
            first, second, third, fourth = (self._vectors[part[start : start + _OFFSETS]] for part in rows)
            offset = third + second - first
            lengths = np.linalg.norm(offset, axis=1) * np.linalg.norm(fourth, axis=1)
            products = np.einsum("nd,nd->n", offset, fourth)
            np.divide(products, lengths, out=scores[start : start + _OFFSETS], where=lengths > 0)
        return scores

    def _rows(self, names: Sequence[str]) -> IntArray:
        """Rows of the names in the cache; new names are encoded first."""
        new = [name for name in dict.fromkeys(names) if name not in self._row]
        if new:
            encoded = self._encoder.encode(new)
            start = len(self._row)
            self._row.update((name, start + i) for i, name in enumerate(new))
            self._vectors = np.concatenate([self._vectors, encoded.vectors])
            if encoded.type_probabilities is not None:
                marginal = encoded.type_probabilities.reshape(-1, len(LEXICAL_CLASSES), len(ENTITY_TYPES)).sum(1)
                self._types = np.concatenate([self._types, marginal.argmax(1).astype(np.int8)])
        return np.fromiter((self._row[name] for name in names), dtype=np.int64, count=len(names))
