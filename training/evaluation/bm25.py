"""BM25 as a baseline of retrieval: the sum over the words of the query of IDF times a saturated count.

    score(q, d) = sum over words w of q: idf(w) * f(w, d) * (k1 + 1) / (f(w, d) + k1 * (1 - b + b * |d| / mean |d|))
    idf(w) = log((N - n(w) + 0.5) / (n(w) + 0.5)); a negative one is 0.25 times the mean of all

A word that the query repeats counts each time. Words are case-folded.
Source: Robertson & Zaragoza 2009, section 3.4; constants and the floor of negative IDF as in the library rank-bm25.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from training.evaluation.methods import Need
from training.evaluation.outcome import FloatArray

_K1 = 1.5
_B = 0.75
_FLOOR = 0.25
_WORD = re.compile(r"\w+")
_DECIMALS = 9
"""Rounding, so that equal scores are equal whatever the order of summation."""


class Bm25Method:
    """BM25 of words; the document frequencies come from the candidates."""

    name = "bm25"
    supports: frozenset[Need] = frozenset({"ranking"})

    def score_matrix(self, queries: Sequence[str], candidates: Sequence[str]) -> FloatArray:
        """Scores of all candidates for each query, (n, m)."""
        documents = [Counter(_words(candidate)) for candidate in candidates]
        idf = _idf(documents)
        column = {word: i for i, word in enumerate(idf)}
        weights = np.zeros((len(candidates), len(column)))
        lengths = [sum(document.values()) for document in documents]
        mean = max(sum(lengths) / max(len(lengths), 1), 1)
        for row, document, length in zip(weights, documents, lengths, strict=True):
            saturation = _K1 * (1 - _B + _B * length / mean)
            for word, count in document.items():
                row[column[word]] = idf[word] * count * (_K1 + 1) / (count + saturation)
        counts = np.zeros((len(queries), len(column)))
        for row, query in zip(counts, queries, strict=True):
            for word in _words(query):
                if word in column:
                    row[column[word]] += 1
        scores: FloatArray = np.round(counts @ weights.T, _DECIMALS)
        return scores


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _idf(documents: Sequence[Counter[str]]) -> dict[str, float]:
    """Inverse document frequency of each word."""
    n_with = Counter(word for document in documents for word in document)
    raw = {word: math.log((len(documents) - n + 0.5) / (n + 0.5)) for word, n in n_with.items()}
    floor = _FLOOR * sum(raw.values()) / max(len(raw), 1)
    return {word: value if value >= 0 else floor for word, value in raw.items()}
