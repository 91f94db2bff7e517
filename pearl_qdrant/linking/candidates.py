"""Candidates for mentions: dense and lexical search in every collection, folded to entities by their best name.

    search      names near by vector and, unless the mention's own name is among them, names that share rare n-grams;
                under the type filter
    score       lexical cosine of every name; before = dense + lexical / 2 orders them
    fold        one for each entity, by its best name
    judge       features of the first `limit` entities, logits, order

A mention that the tokenizer cannot see has no meaningful vector: its n-grams find names, and a mention without any
n-gram (an emoji) finds the entities that bear exactly its name. Its lexical score stands in for the dense one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from pearl_qdrant.encoder.ngrams import SparseRows, fold_name, ngram_rows
from pearl_qdrant.encoder.protocol import Encoded
from pearl_qdrant.encoder.type_head import type_marginals
from pearl_qdrant.linking import surface as facts
from pearl_qdrant.linking.lexical import LexicalScores, NgramRarity, compare, most_telling
from pearl_qdrant.linking.ranking import FEATURES, RankingModel
from pearl_qdrant.linking.reranker import TOP, Reranker
from pearl_qdrant.linking.surface import Surface, surface
from pearl_qdrant.linking.type_agreement import type_agreement
from pearl_qdrant.records import Candidate
from pearl_qdrant.store.protocol import Collection, Settles
from pearl_qdrant.store.schema import NamePoint

QUERY_FEATURES = 8
"""N-grams a mention is searched by, the most telling ones: a third of the time of all of them, see
docs/experiments.md."""

MAX_NAMESAKES = 10_000
"""Of entities with one name, those that are put in order; which of them is the first by id is decided among these."""

LEXICAL_SHARE = 0.5
"""Of the lexical score in the order in which names are folded and cut, before they are judged."""

SAME_LOGIT = 1e-4
"""Logits closer than this are equal: cosines of one and the same name differ by rounding."""

SOME_LEXICAL = 0.5
"""Lexical score from which on more of it counts for less."""

BACKGROUND = slice(5, 10)
"""Ranks of the candidates that tell how crowded the base is."""

_LONG = 30  # letters of a long mention


@dataclass(slots=True)
class Name:
    """A name that was found, with its scores.

    Attributes:
        point: Its payload.
        dense: Cosine, or None without vectors.
        lexical, mention_coverage, name_coverage: As in `lexical.LexicalScores`.
    """

    point: NamePoint
    dense: float | None
    lexical: float = 0.0
    mention_coverage: float = 0.0
    name_coverage: float = 0.0

    @property
    def before(self) -> float:
        """What names are ordered by before they are judged, in [-1, 1.5]."""
        return (self.lexical if self.dense is None else self.dense) + LEXICAL_SHARE * self.lexical


@dataclass(frozen=True, slots=True)
class Found:
    """An entity that was found and judged.

    Attributes:
        name: Its best name.
        features: (len(FEATURES),).
        logit: Sum of the features by their coefficients.
        tie: Whether nothing separates it from another one with an equal best name.
    """

    name: Name
    features: npt.NDArray[np.float64]
    logit: float
    tie: bool = False

    @property
    def point(self) -> NamePoint:
        """The best name's payload."""
        return self.name.point

    @property
    def key(self) -> tuple[str, str]:
        """What tells an entity apart: base and id."""
        return self.point.kb, self.point.entity_id

    def to_candidate(self, probability: float) -> Candidate:
        """The candidate, with its probability."""
        point = self.point
        return Candidate(
            entity_id=point.entity_id,
            kb=point.kb,
            canonical_name=point.canonical_name,
            name=point.name,
            kb_types=point.kb_types,
            types=point.types,
            phrase_type=point.phrase_type,
            type_probability=point.type_probability,
            description=point.description,
            dense_score=self.name.dense,
            lexical_score=self.name.lexical,
            score=self.logit,
            probability=probability,
            tie=self.tie,
            features=dict(zip(FEATURES, self.features.tolist(), strict=True)),
        )


@dataclass(frozen=True, slots=True)
class Judged:
    """A mention with its candidate entities.

    Attributes:
        mention: As given.
        found: Best first.
        nil_logit: That of NIL.
        nil_features: (len(NIL_FEATURES),).
    """

    mention: str
    found: list[Found]
    nil_logit: float
    nil_features: npt.NDArray[np.float64]

    @property
    def logits(self) -> list[float]:
        """Those of the candidates."""
        return [entity.logit for entity in self.found]


@dataclass(frozen=True, slots=True)
class Place:
    """A collection to look in.

    Attributes:
        collection: Open.
        rarity: Of n-grams in it.
    """

    collection: Collection
    rarity: NgramRarity


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of every mention of a batch.

    Attributes:
        limit: Entities a mention.
        types: Types that the caller named.
        is_filter: Whether they filter; if not, they weigh.
        is_typed: Whether the head's view of the mention's type counts.
    """

    limit: int
    types: tuple[str, ...] = ()
    is_filter: bool = True
    is_typed: bool = True

    @property
    def filter(self) -> tuple[str, ...]:
        """The types that candidates must have one of."""
        return self.types if self.is_filter else ()


@dataclass(frozen=True, slots=True)
class Judge:
    """What candidates are judged by.

    Attributes:
        model: Coefficients.
        unrelated: Cosine of unrelated names with this encoder, in [0, 1).
        log_size: Natural logarithm of the names in all collections.
    """

    model: RankingModel
    unrelated: float
    log_size: float


Hide = Callable[[int, NamePoint], bool]
"""Whether a name must not be found for the mention of that number: how a measurement holds names back from a base."""


def find_candidates(
    places: Sequence[Place],
    mentions: Sequence[str],
    encoded: Encoded,
    question: Question,
    judge: Judge,
    *,
    hide: Hide | None = None,
) -> list[Judged]:
    """Entities for each mention, best first.

    Args:
        places: Where to look.
        mentions: m strings, cleaned.
        encoded: Of the mentions, by the model that made the collections.
        question: What is asked.
        judge: What candidates are judged by.
        hide: Names that must not be found, by the number of the mention.
    """
    rows = ngram_rows(mentions)
    found: list[list[Name]] = [[] for _ in mentions]
    for place in places:
        for names, more in zip(found, _search(place, mentions, rows, encoded, question, hide), strict=True):
            names.extend(more)
    marginals = None if encoded.type_probabilities is None else type_marginals(encoded.type_probabilities)
    judged = []
    for i, (mention, names) in enumerate(zip(mentions, found, strict=True)):
        if hide is not None:
            names = [name for name in names if not hide(i, name.point)]
        types = marginals[i] if marginals is not None and question.is_typed and encoded.encodable[i] else None
        judged.append(_judge(mention, _fold(names, question.limit), types, question, judge))
    return judged


def _search(
    place: Place, mentions: Sequence[str], rows: SparseRows, encoded: Encoded, question: Question, hide: Hide | None
) -> list[list[Name]]:
    """Names for each mention in one collection, enough of them for `limit` entities if there are so many."""
    folded = [fold_name(mention) for mention in mentions]

    def is_own_name(number: int, point: NamePoint) -> bool:
        return fold_name(point.name) == folded[number] and not (hide is not None and hide(number, point))

    weighed = place.rarity.weigh(rows)
    query = place.rarity.weigh(most_telling(weighed, QUERY_FEATURES))
    # By each of the two searches. Reading a payload costs Qdrant more than finding the point.
    n_names = question.limit + question.limit // 2
    found = _find(place.collection, encoded, query, n_names, question, is_own_name)
    short = [i for i, names in enumerate(found) if len(names) >= n_names and _n_entities(names) < question.limit]
    if short:

        def is_own_name_of_short(number: int, point: NamePoint) -> bool:
            return is_own_name(short[number], point)

        of_short = encoded.take(short), query.take(short)
        more = _find(place.collection, *of_short, 4 * n_names, question, is_own_name_of_short)
        for i, names in zip(short, more, strict=True):
            found[i] = names
    for i, mention in enumerate(mentions):
        if not found[i] and mention and not encoded.encodable[i]:
            points = place.collection.find(names=[mention], types=question.filter, limit=MAX_NAMESAKES)
            found[i] = [Name(point, None, 1.0, 1.0, 1.0) for point in points]
    _score(place.rarity, weighed, found)
    for i, names in enumerate(found):
        found[i] = [*names, *_namesakes(place.collection, names, question)]
    return found


def _find(
    collection: Collection,
    encoded: Encoded,
    query: SparseRows,
    n_names: int,
    question: Question,
    settles: Settles,
) -> list[list[Name]]:
    """One search."""
    answers = collection.search_hybrid(
        encoded.vectors, query, limit=n_names, lexical_limit=n_names, types=question.filter, settles=settles
    )
    return [[Name(scored.point, scored.score) for scored in names] for names in answers]


def _n_entities(names: Iterable[Name]) -> int:
    return len({(name.point.kb, name.point.entity_id) for name in names})


def _score(rarity: NgramRarity, mentions: SparseRows, found: Sequence[Sequence[Name]]) -> None:
    """Fill in the lexical scores of all names that were found, those of one string once."""
    distinct: dict[str, int] = {}
    pairs = [
        (i, distinct.setdefault(name.point.name, len(distinct))) for i, names in enumerate(found) for name in names
    ]
    scores: LexicalScores = compare(mentions, rarity.weigh(ngram_rows(list(distinct))), pairs)
    every = zip(scores.cosine.tolist(), scores.mention_coverage.tolist(), scores.name_coverage.tolist(), strict=True)
    for name, (cosine, ours, theirs) in zip(chain.from_iterable(found), every, strict=True):
        if name.lexical < 1.0:  # found by its very name, which may have no n-gram
            name.lexical, name.mention_coverage, name.name_coverage = cosine, ours, theirs


def _namesakes(collection: Collection, names: Sequence[Name], question: Question) -> list[Name]:
    """The other entities that bear the best name, where so many were found that there may be more."""
    best = max(names, key=lambda name: name.before, default=None)
    if best is None:
        return []
    known = {name.point.id for name in names if name.point.name == best.point.name}
    if len(known) < question.limit:
        return []
    points = collection.find(names=[best.point.name], types=question.filter, limit=MAX_NAMESAKES)
    return [
        Name(p, best.dense, best.lexical, best.mention_coverage, best.name_coverage)
        for p in points
        if p.id not in known
    ]


def _fold(names: Iterable[Name], limit: int) -> list[Name]:
    """One name for each entity, its best; equal ones in the order of base and id."""
    best: dict[tuple[str, str], Name] = {}
    for name in sorted(names, key=_rank):
        best.setdefault((name.point.kb, name.point.entity_id), name)
    kept = list(best.values())
    # Namesakes of the best one stay together: all of them are tied.
    n_tied = sum(name.point.name == kept[0].point.name for name in kept) if kept else 0
    return kept[: max(limit, n_tied)]


def _rank(name: Name) -> tuple[float, str, str, bool]:
    point = name.point
    return -round(name.before, 6), point.kb, point.entity_id, not point.is_canonical


def _judge(
    mention: str, names: Sequence[Name], types: npt.NDArray[np.float32] | None, question: Question, judge: Judge
) -> Judged:
    """Features, logits and order of the entities of one mention."""
    ours = surface(mention)
    nil_features = _nil_features(ours, names, judge)
    nil_logit = float(nil_features @ judge.model.nil_features)
    if not names:
        return Judged(mention, [], nil_logit, nil_features)
    features = np.array([_features(ours, name, types, question, judge) for name in names])
    logits = (features @ judge.model.features).tolist()
    order = sorted(range(len(names)), key=lambda i: (-round(logits[i], 4), names[i].point.kb, names[i].point.entity_id))
    highest = logits[order[0]]
    tied = {i for i in order if highest - logits[i] <= SAME_LOGIT}
    found = [Found(names[i], features[i], logits[i], len(tied) > 1 and i in tied) for i in order]
    return Judged(mention, found[: max(question.limit, len(tied))], nil_logit, nil_features)


def rerank(judged: Judged, reranker: Reranker, mention: str) -> Judged:
    """The same with what a reranker says of the first candidates added to their logits, in the new order."""
    first = judged.found[:TOP]
    if len(first) < 2:
        return judged
    scores = reranker.score(mention, [entity.point for entity in first])
    mean = sum(scores) / len(scores)
    again = [replace(e, logit=e.logit + s - mean, tie=False) for e, s in zip(first, scores, strict=True)]
    again.sort(key=lambda entity: (-round(entity.logit, 4), entity.key))
    highest = again[0].logit
    n_tied = sum(highest - entity.logit <= SAME_LOGIT for entity in again)
    tied = [replace(entity, tie=n_tied > 1 and i < n_tied) for i, entity in enumerate(again)]
    return replace(judged, found=[*tied, *judged.found[TOP:]])


def _dense(name: Name, judge: Judge) -> float:
    if name.dense is None:
        return name.lexical
    return (name.dense - judge.unrelated) / (1 - judge.unrelated)


def _features(
    ours: Surface, name: Name, types: npt.NDArray[np.float32] | None, question: Question, judge: Judge
) -> tuple[float, ...]:
    """In the order of `FEATURES`."""
    theirs = surface(name.point.name)
    is_wanted = bool(question.types) and not question.is_filter and _has_type(name.point, question.types)
    dense = _dense(name, judge)
    return (
        dense,
        max(dense, 0.0) ** 2,
        name.lexical,
        min(name.lexical, SOME_LEXICAL),
        name.mention_coverage,
        name.name_coverage,
        facts.equal_core(ours, theirs),
        facts.missing_numbers(ours, theirs),
        facts.extra_numbers(ours, theirs),
        facts.equal_numbers(ours, theirs),
        facts.is_acronym(ours, theirs),
        facts.equal_first_word(ours, theirs),
        type_agreement(types, name.point.types),
        float(is_wanted),
    )


def _has_type(point: NamePoint, types: Sequence[str]) -> bool:
    return not set(types).isdisjoint(point.filter_types)


def _nil_features(ours: Surface, names: Sequence[Name], judge: Judge) -> npt.NDArray[np.float64]:
    """In the order of `NIL_FEATURES`."""
    behind = names[BACKGROUND]
    dense = [_dense(name, judge) for name in behind]
    lexical = [name.lexical for name in behind]
    return np.array(
        [
            1.0,
            sum(dense) / len(dense) if dense else 0.0,
            sum(lexical) / len(lexical) if lexical else 0.0,
            min(len(ours.joined), _LONG) / _LONG,
            judge.log_size / 10,
        ]
    )
