"""The methods that are evaluated: encoders, word vectors, Jaccard and TF-IDF of character n-grams, and BM25.

    score(q, d) = sum over words w of q: idf(w) * f(w, d) * (k1 + 1) / (f(w, d) + k1 * (1 - b + b * |d| / mean |d|))
    idf(w) = log((N - n(w) + 0.5) / (n(w) + 0.5)); a negative one is 0.25 times the mean of all

A word that the query repeats counts each time. Words are case-folded. Each distinct string is encoded once in a run,
over all tasks, and takes 4 x dim bytes of memory.

Source of BM25: Robertson & Zaragoza 2009, section 3.4; constants and the floor of negative IDF as in rank-bm25.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from pearl_qdrant.encoder.protocol import Encoded, Encoder, ModelInfo, type_marginals
from pearl_qdrant.encoder.protocol import FloatArray as Vectors
from pearl_qdrant.phrase_types import ENTITY_TYPES
from training.augment.variants import read_vectors
from training.evaluation.outcome import FloatArray, IntArray

Need = Literal["similarity", "ranking", "arithmetic", "vectors", "types", "linking", "large_linking", "everyday"]

_WITHOUT_HEAD: frozenset[Need] = frozenset({"similarity", "ranking", "arithmetic", "vectors"})
_WITH_HEAD: frozenset[Need] = _WITHOUT_HEAD | {"types"}

_MATRIX = 20_000_000
"""Scores in memory at once in a search for the nearest name: 80 MB."""


_OFFSETS = 10_000
"""Rows of vector arithmetic in memory at once."""


class Method(Protocol):
    """A method under evaluation. A task runs on methods that support its need.

    similarity    pair_scores(left, right)      similarity of each pair, (n,); higher is closer
                  nearest(mentions, names)      index of the most similar name of each mention, (n,), the first one
    ranking       score_matrix(queries, candidates)     scores of all candidates for each query, (n, m)
    arithmetic    offset_scores(a, b, c, d)     cosine of c + b - a and d for each row, (n,), with vectors of
                                                length 1; 0 where one side is zero
    vectors, types                              `EncoderMethod` alone
    linking, everyday                           `rank` and `answer` of `linking_methods`
    """

    name: str  # in the report, as the user gave it
    supports: frozenset[Need]  # the needs of tasks that it can meet


class EncoderMethod:
    """An encoder with a cache of all its vectors; similarity is the cosine."""

    def __init__(self, encoder: Encoder, *, name: str | None = None) -> None:
        self._encoder = encoder
        self._row: dict[str, int] = {}
        self._vectors = np.zeros((0, encoder.info.dim), dtype=np.float32)
        self._types = np.zeros(0, dtype=np.int8)
        self.name = name or encoder.info.name
        self.supports: frozenset[Need] = _WITH_HEAD if encoder.info.has_head else _WITHOUT_HEAD

    def vectors(self, names: Sequence[str]) -> Vectors:
        """Vectors of length 1, (n, dim); zeros for a name that cannot be encoded."""
        rows = self._rows(names)
        found: Vectors = self._vectors[rows]
        return found

    def entity_types(self, names: Sequence[str]) -> list[str]:
        """The most probable entity type of each name, summed over lexical classes."""
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
                types = type_marginals(encoded.type_probabilities).argmax(1)
                self._types = np.concatenate([self._types, types.astype(np.int8)])
        return np.fromiter((self._row[name] for name in names), dtype=np.int64, count=len(names))


_WORD = re.compile(r"\w+")


class WordVectors:
    """An encoder that adds up the vectors of a name's words, each of length 1, from a `.vec` file of FastText or GloVe.
    A word that the file lacks counts in small letters, else not at all.
    """

    def __init__(self, path: Path) -> None:
        words, self._vectors = read_vectors(path)
        self._row = {word: i for i, word in enumerate(words)}
        dim = self._vectors.shape[1]
        self.info = ModelInfo(str(path), "", dim, "mean", "", False, device="cpu", precision="fp32", runtime="numpy")

    def encode(self, names: Sequence[str]) -> Encoded:
        vectors = np.zeros((len(names), self.info.dim), dtype=np.float32)
        for i, name in enumerate(names):
            rows = (self._row.get(word, self._row.get(word.casefold())) for word in _WORD.findall(name))
            vectors[i] = self._vectors[[row for row in rows if row is not None]].sum(axis=0)
        lengths = np.linalg.norm(vectors, axis=1)
        return Encoded(vectors / np.maximum(lengths, 1e-9)[:, None], lengths > 0, None)


_NGRAM = 3
_ROWS = 128
"""Mentions that are compared with all names at once."""

StringKind = Literal["jaccard", "tfidf"]

_NEEDS: dict[StringKind, frozenset[Need]] = {
    "jaccard": frozenset({"similarity", "ranking"}),
    "tfidf": frozenset({"similarity", "ranking", "arithmetic"}),
}


class StringMethod:
    """Similarity of case-folded character 3-grams within words: Jaccard of sets, or cosine of TF-IDF weights.

    `pair_scores` takes the document frequencies from both sides, `nearest` from the names.
    """

    def __init__(self, kind: StringKind) -> None:
        self.name: str = kind
        self.supports: frozenset[Need] = _NEEDS[kind]

    def pair_scores(self, left: Sequence[str], right: Sequence[str]) -> FloatArray:
        vectorizer = self._fitted([*left, *right])
        a, b = vectorizer.transform(left), vectorizer.transform(right)
        shared = np.asarray(a.multiply(b).sum(axis=1)).ravel()
        if self.name == "tfidf":
            return shared.astype(np.float64)
        return _jaccard(shared, _sizes(a), _sizes(b))

    def nearest(self, mentions: Sequence[str], names: Sequence[str]) -> IntArray:
        found = [scores.argmax(axis=1) for scores in self._blocks(mentions, names)]
        nearest: IntArray = np.concatenate(found).astype(np.int64)
        return nearest

    def score_matrix(self, queries: Sequence[str], candidates: Sequence[str]) -> FloatArray:
        """Scores of all candidates for each query, (n, m)."""
        return np.concatenate(list(self._blocks(queries, candidates))).astype(np.float64)

    def offset_scores(self, a: Sequence[str], b: Sequence[str], c: Sequence[str], d: Sequence[str]) -> FloatArray:
        """Cosine of c + b - a and d for each row, (n,); TF-IDF only. The document frequencies come from all strings."""
        vectorizer = self._fitted(list(dict.fromkeys([*a, *b, *c, *d])))
        first, second, third, fourth = (vectorizer.transform(part) for part in (a, b, c, d))
        offset = third + second - first
        lengths = np.sqrt(np.asarray(offset.multiply(offset).sum(axis=1), dtype=np.float64).ravel())
        # scikit-learn's rows have length 1, or 0 for a string without n-grams.
        products = np.asarray(offset.multiply(fourth).sum(axis=1), dtype=np.float64).ravel()
        scores: FloatArray = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
        return scores

    def _blocks(self, mentions: Sequence[str], names: Sequence[str]) -> Iterator[Any]:
        """Scores of all names, for some mentions at a time, (up to `_ROWS`, m)."""
        vectorizer = self._fitted(names)
        # The size of a mention's set includes n-grams that no name has.
        sizes = (
            [_sizes(self._fitted(part).transform(part)) for part in (mentions, names)] if self.name != "tfidf" else []
        )
        rows, columns = vectorizer.transform(mentions), vectorizer.transform(names).T.tocsr()
        for start in range(0, rows.shape[0], _ROWS):
            scores = (rows[start : start + _ROWS] @ columns).toarray()
            if sizes:
                scores = _jaccard(scores, sizes[0][start : start + _ROWS, None], sizes[1][None, :])
            yield scores

    def _fitted(self, strings: Sequence[str]) -> Any:
        from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

        shape = {"analyzer": "char_wb", "ngram_range": (_NGRAM, _NGRAM), "dtype": np.float32}
        made = TfidfVectorizer(**shape) if self.name == "tfidf" else CountVectorizer(binary=True, **shape)
        # scikit-learn refuses input without any n-gram, such as blank strings alone.
        return made.fit([*strings, "blank"])


def _sizes(counts: Any) -> FloatArray:
    sizes: FloatArray = np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()
    return sizes


def _jaccard(shared: Any, left: FloatArray, right: FloatArray) -> FloatArray:
    """Number of shared n-grams over number of all n-grams of both."""
    union: FloatArray = left + right - shared
    scores: FloatArray = np.divide(shared, union, out=np.zeros_like(union), where=union > 0)
    return scores


_K1, _B, _FLOOR = 1.5, 0.75, 0.25
_DECIMALS = 9  # so that equal scores are equal whatever the order of summation


class Bm25Method:
    """BM25 of words; the document frequencies come from the candidates."""

    name = "bm25"
    supports: frozenset[Need] = frozenset({"ranking"})

    def score_matrix(self, queries: Sequence[str], candidates: Sequence[str]) -> FloatArray:
        """Scores of all candidates for each query, (n, m)."""
        from sklearn.feature_extraction.text import CountVectorizer

        vectorizer = CountVectorizer(preprocessor=str.casefold, tokenizer=_WORD.findall, token_pattern=None)
        counts = (
            vectorizer.fit_transform([*candidates, "blank"])[:-1].toarray().astype(np.float64)
        )  # no words at all are refused
        lengths, n_with = counts.sum(axis=1, keepdims=True), (counts > 0).sum(axis=0)
        raw = np.log((len(counts) - n_with + 0.5) / (n_with + 0.5))
        idf = np.where(raw >= 0, raw, _FLOOR * raw[n_with > 0].mean()) if n_with.any() else raw
        saturation = _K1 * (1 - _B + _B * lengths / max(lengths.mean(), 1))
        weights = idf * counts * (_K1 + 1) / (counts + saturation)
        scores: FloatArray = np.round(vectorizer.transform(queries) @ weights.T, _DECIMALS)
        return scores
