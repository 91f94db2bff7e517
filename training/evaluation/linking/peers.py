"""Common alternatives to the linker, and what users write in thirty lines instead of it.

Those of the linking tasks rank the entities of a base by their best name, without what the query excludes: exact
lookup, rapidfuzz and character TF-IDF, which compare each mention with every name. Those of everyday mentions link or
answer NIL:

    exact             the folded mention is a name of exactly one entity; else NIL
    exact+WRatio      the same; other mentions are linked to the first name of the highest score of rapidfuzz
    exact+ratio       the same with rapidfuzz's plain ratio, which is the edit distance
    tfidf             the name of the highest cosine of character n-grams (scikit-learn)

A name of several entities is NIL. Each half of the mentions is answered with the cutoff that gives the other half the
most right minus wrong answers.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from pearl_qdrant.lexical.ngrams import fold_name
from training.evaluation.linking.sets import DEPTH, Base, LinkingSet, MentionQuery, Ranking, rank_entities
from training.evaluation.methods import Need

_ROWS = 32
"""Mentions that are compared with all names at once: 55 MB of scores for 433 thousand names."""

_NAMES = 4 * DEPTH
"""Number of best names that are grouped by entity."""

ALL_SIZES: frozenset[Need] = frozenset({"linking", "large_linking"})
_SMALL_BASES: frozenset[Need] = frozenset({"linking"})

Scores = Iterator[Any]
"""For each mention, the scores of all names, (n_names,); 0 or less means no candidate."""


_READ = 50
"""Best names that are read for a mention, since some may be excluded."""

EVERYDAY: frozenset[Need] = frozenset({"everyday"})


class Excluding(Protocol):
    """A mention, and what is not in the base for it."""

    @property
    def mention(self) -> str: ...

    def excludes(self, entity_id: str, name: str) -> bool:
        """Whether a name of an entity is treated as if it were not in the base."""
        ...


class Mention(Excluding, Protocol):
    """A mention with its right answer."""

    @property
    def entity_id(self) -> str | None:
        """The right entity; None for NIL."""
        ...


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of a method."""

    entity_ids: tuple[str | None, ...]  # the entity of each mention; None for NIL
    milliseconds: float  # wall clock a mention, without preparing the base
    # the least score of a link in each half of the mentions; none if the method has no cutoff
    cutoffs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class _Best:
    """The best name of a mention: its score, and its entity if it has only one."""

    score: float = -np.inf
    entity_id: str | None = None


class Names:
    """The names of a base: distinct strings with their entities, and a table of folded names."""

    def __init__(self, base: Base) -> None:
        owners: dict[str, list[str]] = {}
        self._folded: dict[str, list[tuple[str, str]]] = {}
        for entity in base.entities:
            for name in entity.names():
                owners.setdefault(name, []).append(entity.entity_id)
                self._folded.setdefault(fold_name(name) or name, []).append((entity.entity_id, name))
        self.texts = list(owners)
        self.owners = list(owners.values())

    def exact(self, mention: Excluding) -> set[str]:
        """Entities with a name that equals the mention after folding."""
        found = self._folded.get(fold_name(mention.mention) or mention.mention, ())
        return {entity_id for entity_id, name in found if not mention.excludes(entity_id, name)}

    def best(self, scored: Iterator[tuple[int, float]], mention: Mention) -> _Best | None:
        """The first name, of names and scores in order, that is not excluded; None if all are."""
        for row, score in scored:
            name = self.texts[row]
            if left := [one for one in self.owners[row] if not mention.excludes(one, name)]:
                return _Best(score, left[0] if len(left) == 1 else None)
        return None


class Peer(ABC):
    """A way to link without a linker."""

    name: str
    supports = EVERYDAY

    @abstractmethod
    def answer(self, mentions: Sequence[Mention], base: Base) -> Answers:
        """Link mentions to the entities of a base."""


class ExactNames(Peer):
    """Exact lookup of names after folding of case, accents, punctuation and numbers."""

    name = "exact"
    supports = EVERYDAY | ALL_SIZES

    def rank(self, one: LinkingSet) -> list[Ranking]:
        """All entities that have the name, tied."""
        names = Names(one.base)
        found = (sorted(names.exact(query)) for query in one.queries)
        return [Ranking(tuple(ids), len(ids)) for ids in found]

    def answer(self, mentions: Sequence[Mention], base: Base) -> Answers:
        """Link the mentions that are a name of exactly one entity."""
        names = Names(base)
        start = time.perf_counter()
        found = [names.exact(one) for one in mentions]
        milliseconds = _milliseconds(start, mentions)
        return Answers(tuple(_only(ids) for ids in found), milliseconds)


class ExactThenFuzzy(Peer):
    """Exact lookup of folded names, then the most similar name by a scorer of `rapidfuzz.fuzz`."""

    def __init__(self, scorer: Literal["WRatio", "ratio"]) -> None:
        self.name = f"exact+{scorer}"
        self._scorer = scorer

    def answer(self, mentions: Sequence[Mention], base: Base) -> Answers:
        """Link mentions; a score is in [0, 100]."""
        from rapidfuzz import fuzz, process, utils

        names, scorer = Names(base), getattr(fuzz, self._scorer)
        processed = [utils.default_process(name) for name in names.texts]

        def best_of(mention: Mention) -> _Best:
            text = utils.default_process(mention.mention)
            first = process.extractOne(text, processed, scorer=scorer)
            found = first and names.best(iter([(first[2], float(first[1]))]), mention)
            if first and found is None:  # the best name is excluded: read more of them
                more = process.extract(text, processed, scorer=scorer, limit=_READ)
                found = names.best(((row, float(score)) for _, score, row in more), mention)
            return found or _Best()

        start = time.perf_counter()
        exact = [names.exact(one) for one in mentions]
        best = [_Best() if ids else best_of(one) for one, ids in zip(mentions, exact, strict=True)]
        milliseconds = _milliseconds(start, mentions)
        linked, cutoffs = cut_off(best, mentions)
        ids = tuple(_only(known) if known else one for known, one in zip(exact, linked, strict=True))
        return Answers(ids, milliseconds, cutoffs)


class Tfidf(Peer):
    """The most similar name by TF-IDF of character 3- to 5-grams within words."""

    name = "tfidf"

    def answer(self, mentions: Sequence[Mention], base: Base) -> Answers:
        """Link mentions; a score is a cosine."""
        if not mentions:  # which scikit-learn refuses
            return Answers((), 0.0)
        names = Names(base)
        rows, matrix = _tfidf([one.mention for one in mentions], names.texts, longest=5)
        start = time.perf_counter()
        scores = products(rows, matrix)
        best = [names.best(_in_order(row), one) or _Best() for one, row in zip(mentions, scores, strict=True)]
        milliseconds = _milliseconds(start, mentions)
        linked, cutoffs = cut_off(best, mentions)
        return Answers(linked, milliseconds, cutoffs)


def everyday_peers() -> list[Peer]:
    """All peers, in the order of the report."""
    return [ExactNames(), ExactThenFuzzy("WRatio"), ExactThenFuzzy("ratio"), Tfidf()]


def cut_off(best: Sequence[_Best], mentions: Sequence[Mention]) -> tuple[tuple[str | None, ...], tuple[float, ...]]:
    """Links of the best names whose score reaches the cutoff that is chosen on the other half of the mentions. Returns
    the entity of each mention, None for NIL; and the cutoff of the two halves, infinite if nothing is linked.
    """
    halves = [range(half, len(mentions), 2) for half in (0, 1)]
    cutoffs = [best_cutoff([best[i] for i in half], [mentions[i] for i in half]) for half in reversed(halves)]
    linked = tuple(one.entity_id if one.score >= cutoffs[i % 2] else None for i, one in enumerate(best))
    return linked, tuple(cutoffs)


def best_cutoff(best: Sequence[_Best], mentions: Sequence[Mention]) -> float:
    """The least score of a link that gives the most right minus wrong answers; NIL counts as an answer where it is one.

    Of equally good cutoffs the highest; infinite if no link is better than some.
    """
    gains: dict[float, int] = {}
    for one, mention in zip(best, mentions, strict=True):
        if one.entity_id is not None:
            # A link where NIL is right loses a right answer and gives a wrong one.
            gain = 1 if one.entity_id == mention.entity_id else -1 if mention.entity_id is not None else -2
            gains[one.score] = gains.get(one.score, 0) + gain
    chosen, most, total = float("inf"), 0, 0
    for score in sorted(gains, reverse=True):
        total += gains[score]
        if total > most:
            chosen, most = score, total
    return chosen


def _in_order(scores: Any) -> Iterator[tuple[int, float]]:
    """The best rows with their scores, best first, and in the order of the base where scores are equal."""
    n = min(_READ, len(scores))
    least = np.partition(scores, len(scores) - n)[len(scores) - n]
    rows = np.flatnonzero((scores >= least) & (scores > 0))
    for row in rows[np.argsort(-scores[rows], kind="stable")].tolist():
        yield row, float(scores[row])


def _only(entity_ids: set[str]) -> str | None:
    return next(iter(entity_ids)) if len(entity_ids) == 1 else None


def _milliseconds(start: float, mentions: Sequence[Mention]) -> float:
    return 1000 * (time.perf_counter() - start) / max(1, len(mentions))


class ScoredNames:
    """A string similarity that scores every name of a base, from mentions and the base's distinct names to `Scores`."""

    def __init__(self, name: str, scores: Callable[[Sequence[str], Sequence[str]], Scores], supports: frozenset[Need]):
        self.name = name
        self.supports = supports
        self._scores = scores

    def rank(self, one: LinkingSet) -> list[Ranking]:
        names = Names(one.base)
        rows = self._scores([query.mention for query in one.queries], names.texts)
        return [_rank_by_name(query, row, names) for query, row in zip(one.queries, rows, strict=True)]


def _rank_by_name(query: MentionQuery, scores: Any, names: Names) -> Ranking:
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


def peers() -> list[ExactNames | ScoredNames]:
    """All alternatives, in the order of the report."""
    return [
        ExactNames(),
        ScoredNames("rapidfuzz", _fuzzy_scores, _SMALL_BASES),
        # scispaCy's candidate generation, but exact.
        ScoredNames("tfidf", lambda mentions, names: products(*_tfidf(mentions, names, longest=3)), ALL_SIZES),
    ]


def _fuzzy_scores(mentions: Sequence[str], names: Sequence[str]) -> Scores:
    """WRatio of rapidfuzz on case-folded strings."""
    from rapidfuzz import fuzz, process, utils

    folded = [utils.default_process(name) for name in names]
    for start in range(0, len(mentions), _ROWS):
        rows = [utils.default_process(mention) for mention in mentions[start : start + _ROWS]]
        yield from process.cdist(rows, folded, scorer=fuzz.WRatio, dtype=np.float32)


def _tfidf(mentions: Sequence[str], names: Sequence[str], *, longest: int) -> tuple[Any, Any]:
    """Sparse TF-IDF rows of mentions and of names, of character n-grams of 3 and more within words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, longest), dtype=np.float32)
    # scikit-learn refuses input without any n-gram, such as blank names alone.
    vectorizer.fit([*names, "blank"])
    return vectorizer.transform(mentions), vectorizer.transform(names)


def products(mentions: Any, names: Any) -> Scores:
    """Dot products of sparse rows, for `_ROWS` mentions at a time."""
    columns = names.T.tocsr()
    for start in range(0, mentions.shape[0], _ROWS):
        yield from (mentions[start : start + _ROWS] @ columns).toarray()
