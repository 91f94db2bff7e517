"""What users have today, measured in the same run: exact lookup, rapidfuzz, character TF-IDF, n-grams alone.

Each ranks the entities of a base by their best name, with what the query must not find left out. All are exact: each
mention is compared with every name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pearl_qdrant.lexical.ngrams import fold_name, ngram_rows
from training.evaluation.linking.scores import DEPTH, Ranked, rank
from training.evaluation.linking.sets import Base, LinkingSet, Query
from training.evaluation.methods import Need

_ROWS = 32
"""Mentions compared with all names at once: 55 MB of scores for 433 thousand names."""

_NAMES = 4 * DEPTH
"""Best names that are folded to entities."""

_BUCKETS = 1 << 20

_ANY: frozenset[Need] = frozenset({"linking", "large_linking"})
_SMALL: frozenset[Need] = frozenset({"linking"})

Scores = Iterator[Any]
"""For each mention in turn the scores of all names, (n_names,); 0 or less: no candidate."""


class _Names:
    """The distinct names of a base with the entities that bear them."""

    def __init__(self, base: Base) -> None:
        owners: dict[str, list[str]] = {}
        for entity in base.entities:
            for name in entity.names():
                owners.setdefault(name, []).append(entity.entity_id)
        self.texts = list(owners)
        self.owners = list(owners.values())


class ExactLookup:
    """Entities with a name equal to the mention but for case, accents, punctuation and number formats."""

    def __init__(self) -> None:
        self.name = "exact"
        self.offers = _ANY

    def rank(self, one: LinkingSet) -> list[Ranked]:
        table: dict[str, list[tuple[str, str]]] = {}
        for entity in one.base.entities:
            for name in entity.names():
                table.setdefault(fold_name(name) or name, []).append((entity.entity_id, name))
        found = []
        for query in one.queries:
            entries = table.get(fold_name(query.mention) or query.mention, [])
            ids = sorted({key for key, name in entries if not query.leaves_out(key, name)})
            found.append(Ranked(tuple(ids), len(ids)))
        return found


class ScoredNames:
    """A similarity of strings that scores every name of a base.

    Args:
        name: In the report.
        scores: From mentions and the base's distinct names to `Scores`.
        offers: Whether it is fast enough for large bases.
    """

    def __init__(self, name: str, scores: Callable[[Sequence[str], Sequence[str]], Scores], offers: frozenset[Need]):
        self.name = name
        self.offers = offers
        self._scores = scores

    def rank(self, one: LinkingSet) -> list[Ranked]:
        names = _Names(one.base)
        rows = self._scores([query.mention for query in one.queries], names.texts)
        return [_best(query, row, names) for query, row in zip(one.queries, rows, strict=True)]


def _best(query: Query, scores: Any, names: _Names) -> Ranked:
    """Fold the best names to entities."""
    n = min(_NAMES, len(scores))
    best = np.argpartition(-scores, n - 1)[:n]
    found: dict[str, float] = {}
    for i in best[np.argsort(-scores[best], kind="stable")].tolist():
        if scores[i] <= 0 or len(found) >= DEPTH:
            break
        for key in names.owners[i]:
            if not query.leaves_out(key, names.texts[i]):
                found.setdefault(key, float(scores[i]))
    return rank(list(found.items())) if found else Ranked((), 0)


def peers() -> list[ExactLookup | ScoredNames]:
    """All of them, in the order of the report."""
    return [
        ExactLookup(),
        ScoredNames("rapidfuzz", _fuzzy_scores, _SMALL),
        ScoredNames("tfidf", _tfidf_scores, _ANY),
        ScoredNames("lexical", _ngram_scores, _ANY),
    ]


def _fuzzy_scores(mentions: Sequence[str], names: Sequence[str]) -> Scores:
    """WRatio of rapidfuzz, of case-folded strings."""
    from rapidfuzz import fuzz, process, utils

    folded = [utils.default_process(name) for name in names]
    for start in range(0, len(mentions), _ROWS):
        asked = [utils.default_process(mention) for mention in mentions[start : start + _ROWS]]
        yield from process.cdist(asked, folded, scorer=fuzz.WRatio, dtype=np.float32)


def _tfidf_scores(mentions: Sequence[str], names: Sequence[str]) -> Scores:
    """TF-IDF of character 3-grams within words, case folded, as scispaCy finds candidates, but exact."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 3), dtype=np.float32)
    # Blank names alone would leave no n-gram, which scikit-learn refuses.
    vectorizer.fit([*names, "blank"])
    yield from _products(vectorizer.transform(mentions), vectorizer.transform(names))


def _ngram_scores(mentions: Sequence[str], names: Sequence[str]) -> Scores:
    """Cosine of this project's n-grams, weighed by idf: lexical search alone."""
    from scipy.sparse import csr_matrix, diags

    def matrix(texts: Sequence[str]) -> Any:
        rows = ngram_rows(texts)
        columns = (rows.indices % _BUCKETS).astype(np.int32)
        return csr_matrix((rows.values, columns, rows.offsets), shape=(len(texts), _BUCKETS))

    def weighed(rows: Any, idf: Any) -> Any:
        scaled = rows @ diags(idf)
        norms = np.sqrt(np.asarray(scaled.multiply(scaled).sum(axis=1)).ravel())
        return (diags(1 / np.maximum(norms, 1e-12)) @ scaled).tocsr()

    every = matrix(names)
    counts = np.bincount(every.indices, minlength=_BUCKETS)
    # As Qdrant weighs sparse vectors.
    idf = np.log((len(names) - np.minimum(counts, len(names)) + 0.5) / (counts + 0.5) + 1)
    yield from _products(weighed(matrix(mentions), idf), weighed(every, idf))


def _products(mentions: Any, names: Any) -> Scores:
    """Dot products of sparse rows, a few mentions at a time."""
    among = names.T.tocsr()
    for start in range(0, mentions.shape[0], _ROWS):
        yield from (mentions[start : start + _ROWS] @ among).toarray()
