"""Common alternatives to the linker: exact lookup, rapidfuzz, character TF-IDF, and n-gram search alone.

Each ranks the entities of a base by their best name, without what the query excludes. All are exact: they compare each
mention with every name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pearl_qdrant.lexical.ngrams import fold_name, ngram_rows
from training.evaluation.linking.rankings import DEPTH, Ranking, rank_entities
from training.evaluation.linking.sets import Base, LinkingSet, MentionQuery
from training.evaluation.methods import Need

_ROWS = 32
"""Mentions that are compared with all names at once: 55 MB of scores for 433 thousand names."""

_NAMES = 4 * DEPTH
"""Number of best names that are grouped by entity."""

_BUCKETS = 1 << 20

_ALL_SIZES: frozenset[Need] = frozenset({"linking", "large_linking"})
_SMALL_BASES: frozenset[Need] = frozenset({"linking"})

Scores = Iterator[Any]
"""For each mention, the scores of all names, (n_names,); 0 or less means no candidate."""


class _Names:
    """The distinct names of a base, with the ids of their entities."""

    def __init__(self, base: Base) -> None:
        owners: dict[str, list[str]] = {}
        for entity in base.entities:
            for name in entity.names():
                owners.setdefault(name, []).append(entity.entity_id)
        self.texts = list(owners)
        self.owners = list(owners.values())


class ExactLookup:
    """Finds entities with a name that equals the mention after folding of case, accents, punctuation and numbers."""

    def __init__(self) -> None:
        self.name = "exact"
        self.supports = _ALL_SIZES

    def rank(self, one: LinkingSet) -> list[Ranking]:
        table: dict[str, list[tuple[str, str]]] = {}
        for entity in one.base.entities:
            for name in entity.names():
                table.setdefault(fold_name(name) or name, []).append((entity.entity_id, name))
        found = []
        for query in one.queries:
            entries = table.get(fold_name(query.mention) or query.mention, [])
            ids = sorted({key for key, name in entries if not query.excludes(key, name)})
            found.append(Ranking(tuple(ids), len(ids)))
        return found


class ScoredNames:
    """A string similarity that scores every name of a base.

    Args:
        name: Name in the report.
        scores: From mentions and the base's distinct names to `Scores`.
        supports: Without `large_linking` if it is too slow for large bases.
    """

    def __init__(self, name: str, scores: Callable[[Sequence[str], Sequence[str]], Scores], supports: frozenset[Need]):
        self.name = name
        self.supports = supports
        self._scores = scores

    def rank(self, one: LinkingSet) -> list[Ranking]:
        names = _Names(one.base)
        rows = self._scores([query.mention for query in one.queries], names.texts)
        return [_rank_by_name(query, row, names) for query, row in zip(one.queries, rows, strict=True)]


def _rank_by_name(query: MentionQuery, scores: Any, names: _Names) -> Ranking:
    """Group the best names by entity."""
    n = min(_NAMES, len(scores))
    best = np.argpartition(-scores, n - 1)[:n]
    found: dict[str, float] = {}
    for i in best[np.argsort(-scores[best], kind="stable")].tolist():
        if scores[i] <= 0 or len(found) >= DEPTH:
            break
        for key in names.owners[i]:
            if not query.excludes(key, names.texts[i]):
                found.setdefault(key, float(scores[i]))
    return rank_entities(list(found.items()))


def peers() -> list[ExactLookup | ScoredNames]:
    """All alternatives, in the order of the report."""
    return [
        ExactLookup(),
        ScoredNames("rapidfuzz", _fuzzy_scores, _SMALL_BASES),
        ScoredNames("tfidf", _tfidf_scores, _ALL_SIZES),
        ScoredNames("lexical", _ngram_scores, _ALL_SIZES),
    ]


def _fuzzy_scores(mentions: Sequence[str], names: Sequence[str]) -> Scores:
    """WRatio of rapidfuzz on case-folded strings."""
    from rapidfuzz import fuzz, process, utils

    folded = [utils.default_process(name) for name in names]
    for start in range(0, len(mentions), _ROWS):
        rows = [utils.default_process(mention) for mention in mentions[start : start + _ROWS]]
        yield from process.cdist(rows, folded, scorer=fuzz.WRatio, dtype=np.float32)


def _tfidf_scores(mentions: Sequence[str], names: Sequence[str]) -> Scores:
    """TF-IDF of case-folded character 3-grams within words: scispaCy's candidate generation, but exact."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 3), dtype=np.float32)
    # scikit-learn refuses input without any n-gram, such as blank names alone.
    vectorizer.fit([*names, "blank"])
    yield from products(vectorizer.transform(mentions), vectorizer.transform(names))


def _ngram_scores(mentions: Sequence[str], names: Sequence[str]) -> Scores:
    """Cosine of this project's n-grams, weighted by IDF: lexical search alone."""
    from scipy.sparse import csr_matrix, diags

    def matrix(texts: Sequence[str]) -> Any:
        rows = ngram_rows(texts)
        columns = (rows.indices % _BUCKETS).astype(np.int32)
        return csr_matrix((rows.values, columns, rows.offsets), shape=(len(texts), _BUCKETS))

    def weighted(rows: Any, idf: Any) -> Any:
        scaled = rows @ diags(idf)
        norms = np.sqrt(np.asarray(scaled.multiply(scaled).sum(axis=1)).ravel())
        return (diags(1 / np.maximum(norms, 1e-12)) @ scaled).tocsr()

    every = matrix(names)
    counts = np.bincount(every.indices, minlength=_BUCKETS)
    # The IDF of Qdrant for sparse vectors.
    idf = np.log((len(names) - np.minimum(counts, len(names)) + 0.5) / (counts + 0.5) + 1)
    yield from products(weighted(matrix(mentions), idf), weighted(every, idf))


def products(mentions: Any, names: Any) -> Scores:
    """Dot products of sparse rows, for `_ROWS` mentions at a time."""
    columns = names.T.tocsr()
    for start in range(0, mentions.shape[0], _ROWS):
        yield from (mentions[start : start + _ROWS] @ columns).toarray()
