"""Scoring the names that were found for a mention: features, logits, order.

names, one for each entity  ->  features  ->  logit of each, and of NIL  ->  best first, ties marked
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pearl_qdrant.errors import ModelError
from pearl_qdrant.linking.ranking import string_features as facts
from pearl_qdrant.linking.ranking.model import FEATURES, RankingModel
from pearl_qdrant.linking.ranking.reranker import TOP, Reranker
from pearl_qdrant.linking.ranking.string_features import StringFeatures, string_features
from pearl_qdrant.linking.ranking.type_agreement import type_agreement
from pearl_qdrant.records import Candidate
from pearl_qdrant.store.schema import NamePoint

LEXICAL_SHARE = 0.5
"""Of the lexical score in the order in which names are folded and cut, before they are scored."""

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
        """What names are ordered by before they are scored, in [-1, 1.5]."""
        return (self.lexical if self.dense is None else self.dense) + LEXICAL_SHARE * self.lexical


@dataclass(frozen=True, slots=True)
class ScoredEntity:
    """An entity that was found and scored.

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
class ScoredMention:
    """A mention with its candidate entities.

    Attributes:
        mention: As given.
        found: Best first.
        nil_logit: That of NIL.
        nil_features: (len(NIL_FEATURES),).
    """

    mention: str
    found: list[ScoredEntity]
    nil_logit: float
    nil_features: npt.NDArray[np.float64]

    @property
    def logits(self) -> list[float]:
        """Those of the candidates."""
        return [entity.logit for entity in self.found]


@dataclass(frozen=True, slots=True)
class LinkQuery:
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
class Scorer:
    """What candidates are scored by.

    Attributes:
        model: Coefficients.
        baseline: Cosine of unrelated names with this encoder, in [0, 1).
        log_size: Natural logarithm of the names in all collections.
    """

    model: RankingModel
    baseline: float
    log_size: float


def score_names(
    mention: str, names: Sequence[Name], types: npt.NDArray[np.float32] | None, link_query: LinkQuery, scorer: Scorer
) -> ScoredMention:
    """Features, logits and order of the entities of one mention."""
    ours = string_features(mention)
    nil_features = _nil_features(ours, names, scorer)
    nil_logit = float(nil_features @ scorer.model.nil_features)
    if not names:
        return ScoredMention(mention, [], nil_logit, nil_features)
    features = np.array([_features(ours, name, types, link_query, scorer) for name in names])
    logits = (features @ scorer.model.features).tolist()
    found = in_order(ScoredEntity(name, row, logit) for name, row, logit in zip(names, features, logits, strict=True))
    n_tied = sum(entity.tie for entity in found)
    return ScoredMention(mention, found[: max(link_query.limit, n_tied)], nil_logit, nil_features)


def rerank(scored: ScoredMention, reranker: Reranker, mention: str) -> ScoredMention:
    """The same with what a reranker says of the first candidates added to their logits, in the new order of all.

    Its scores count less their mean, so that they say of the others, which it has not seen, as much as it says of the
    first ones on average: nothing. These keep their logits, and may come before those that it speaks against.

    Raises:
        ModelError: If it does not give one finite score for each candidate.
    """
    first = scored.found[:TOP]
    if len(first) < 2:
        return scored
    scores = reranker.score(mention, [entity.point for entity in first])
    if len(scores) != len(first) or not all(map(math.isfinite, scores)):
        raise ModelError(
            f"The reranker was given {len(first)} candidates and gave the scores {list(scores)}. One finite number for "
            f"each is needed."
        )
    mean = math.fsum(scores) / len(scores)
    moved = [replace(entity, logit=entity.logit + score - mean) for entity, score in zip(first, scores, strict=True)]
    return replace(scored, found=in_order([*moved, *scored.found[TOP:]]))


def best_first(logits: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The order of candidates: first those that nothing separates from the best one, then the others by their logits.

    Args:
        logits: Finite ones, and minus infinity where there is no candidate, (..., k); k > 0.

    Returns:
        Places in `logits`, (..., k), equal ones as they come; and how many of the first nothing separates, (...,): 1
        for a single best one, 0 where there is none.
    """
    is_tied = np.isfinite(logits) & (logits >= logits.max(axis=-1, keepdims=True) - SAME_LOGIT)
    order = np.argsort(np.where(is_tied, -np.inf, -np.round(logits, 4)), axis=-1, kind="stable")
    return order, is_tied.sum(axis=-1)


def in_order(found: Iterable[ScoredEntity]) -> list[ScoredEntity]:
    """Entities, best first, equal ones by base and id, with the ties marked; at least one."""
    by_key = sorted(found, key=lambda entity: entity.key)
    order, tied = best_first(np.array([entity.logit for entity in by_key]))
    n_tied = int(tied)
    return [replace(by_key[i], tie=place < n_tied and n_tied > 1) for place, i in enumerate(order.tolist())]


def _dense(name: Name, scorer: Scorer) -> float:
    if name.dense is None:
        return name.lexical
    return (name.dense - scorer.baseline) / (1 - scorer.baseline)


def _features(
    ours: StringFeatures, name: Name, types: npt.NDArray[np.float32] | None, link_query: LinkQuery, scorer: Scorer
) -> tuple[float, ...]:
    """In the order of `FEATURES`."""
    theirs = string_features(name.point.name)
    is_wanted = bool(link_query.types) and not link_query.is_filter and _has_type(name.point, link_query.types)
    dense = _dense(name, scorer)
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


def _nil_features(ours: StringFeatures, names: Sequence[Name], scorer: Scorer) -> npt.NDArray[np.float64]:
    """In the order of `NIL_FEATURES`."""
    behind = names[BACKGROUND]
    dense = [_dense(name, scorer) for name in behind]
    lexical = [name.lexical for name in behind]
    return np.array(
        [
            1.0,
            sum(dense) / len(dense) if dense else 0.0,
            sum(lexical) / len(lexical) if lexical else 0.0,
            min(len(ours.joined), _LONG) / _LONG,
            scorer.log_size / 10,
        ]
    )
