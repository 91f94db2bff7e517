"""String similarities as baselines: Jaccard of character n-grams, and character TF-IDF."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from training.evaluation.methods import Need
from training.evaluation.outcome import FloatArray, IntArray

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
