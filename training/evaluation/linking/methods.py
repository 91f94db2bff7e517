"""What is measured on linking: the linker as users have it, without one feature, and parts of it alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.calibration.held_out import HeldOut, score_held_out
from pearl_qdrant.linking.calibration.samples import Samples, collect
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.mentions import clean_mention
from pearl_qdrant.linking.ranking.model import Calibration, RankingModel, shipped_model
from pearl_qdrant.linking.ranking.scoring import ScoredMention, in_order
from pearl_qdrant.settings import DEFAULT_LIMIT
from pearl_qdrant.store.schema import NamePoint
from training.evaluation.linking.base import Bases
from training.evaluation.linking.scores import DEPTH, Ranked, rank
from training.evaluation.linking.sets import LinkingSet, Query
from training.evaluation.methods import Method, Need

_ANY: frozenset[Need] = frozenset({"linking", "large_linking"})

_RRF = 60
"""Constant of reciprocal rank fusion; Cormack et al. 2009."""

_TIMED = 1000
"""Mentions that the linker is timed on."""

_MORE_NAMES = 3
"""Names fetched for an entity wanted, since several may be of one."""


class LinkingMethod(Method, Protocol):
    """A method that ranks the entities of a base for each mention."""

    def rank(self, one: LinkingSet) -> list[Ranked]:
        """Entities of each query with an entity."""
        ...


@dataclass(frozen=True, slots=True)
class LinkVerdict:
    """What the linker says of a set.

    Attributes:
        ranked: Of the queries with an entity, n.
        samples, nil_samples: Of the queries and their NIL twins, n each.
        scored, nil_judged: What they were made from.
    """

    ranked: list[Ranked]
    samples: Samples
    nil_samples: Samples
    scored: list[ScoredMention] = field(repr=False)
    nil_judged: list[ScoredMention] = field(repr=False)


class Linker:
    """The linker, with the number of candidates that `link` judges.

    Args:
        encoder: The model.
        bases: Where its collections are.
        calibration: By default what comes with the package.
        name: In the report.
    """

    def __init__(
        self, encoder: Encoder, bases: Bases, *, calibration: Calibration | None = None, name: str | None = None
    ) -> None:
        self.name = name or encoder.info.name
        self.offers = _ANY
        self.calibration = calibration or Calibration()
        self._encoder = encoder
        self._bases = bases
        self._last: tuple[LinkingSet, LinkVerdict] | None = None

    def rank(self, one: LinkingSet) -> list[Ranked]:
        return self.verdict(one).ranked

    def verdict(self, one: LinkingSet) -> LinkVerdict:
        """What it says of the mentions of a set, with and without their entities; the last set is remembered."""
        if self._last is None or self._last[0] is not one:
            scored = list(self._score_mentions([*one.queries, *one.nil_queries], one, DEFAULT_LIMIT))
            n = len(one.queries)
            self._last = one, _verdict(one, scored[:n], scored[n:])
        return self._last[1]

    def recall(self, one: LinkingSet) -> float:
        """Share of the mentions whose entity is among the best 64 candidates."""
        found = [
            any(entity.point.entity_id in query.gold for entity in answer.found[:DEPTH])
            for query, answer in zip(one.queries, self._score_mentions(one.queries, one, DEPTH), strict=True)
        ]
        return sum(found) / len(found)

    def milliseconds(self, one: LinkingSet) -> float:
        """Wall clock of `link_batch` a mention, nothing left out; the first mentions of the set."""
        mentions = [query.mention for query in one.queries[:_TIMED]]
        collection = self._bases.collection(one.base, self._encoder)
        linker = EntityLinker(self._bases.store, [collection], self._encoder)
        linker.link(mentions[0])
        start = time.perf_counter()
        for _ in linker.link_batch(mentions):
            pass
        return 1000 * (time.perf_counter() - start) / len(mentions)

    def _score_mentions(self, queries: Sequence[Query], one: LinkingSet, limit: int) -> Iterator[ScoredMention]:
        collection = self._bases.collection(one.base, self._encoder)
        return score_held_out(self._bases.store, collection, self._encoder, map(_held_out, queries), limit=limit)


class Ablation:
    """The linker without one feature, on the candidates that the whole one scored.

    Args:
        linker: The whole one.
        feature: One of `ranking.FEATURES`, whose coefficient is made 0.
    """

    def __init__(self, linker: Linker, feature: str) -> None:
        self.name = f"without {feature}"
        self.offers = _ANY
        self._linker = linker
        self._model = shipped_model().without(feature)

    def rank(self, one: LinkingSet) -> list[Ranked]:
        return [_ranked(_score_again(scored, self._model)) for scored in self._linker.verdict(one).scored]


class Dense:
    """The entities with the nearest vectors.

    Args:
        encoder: Any.
        bases: Where its collections are.
        name: In the report.
    """

    def __init__(self, encoder: Encoder, bases: Bases, *, name: str) -> None:
        self.name = name
        self.offers = _ANY
        self._encoder = encoder
        self._bases = bases
        self._last: tuple[LinkingSet, list[Ranked]] | None = None

    def rank(self, one: LinkingSet) -> list[Ranked]:
        if self._last is None or self._last[0] is not one:
            vectors = self._encoder.encode([clean_mention(query.mention) for query in one.queries]).vectors
            ranked = []
            collection = self._bases.collection(one.base, self._encoder)
            for query, vector in zip(one.queries, vectors, strict=True):
                found: dict[str, float] = {}
                for scored in collection.search(vector[None], limit=_MORE_NAMES * DEPTH)[0]:
                    if scored.score is not None and not query.leaves_out(scored.point.entity_id, scored.point.name):
                        found.setdefault(scored.point.entity_id, scored.score)
                ranked.append(rank(list(found.items())) if found else Ranked((), 0))
            self._last = one, ranked
        return self._last[1]


class Fusion:
    """Reciprocal rank fusion of methods: the sum over them of 1 / (60 + rank), tied ones sharing a rank."""

    def __init__(self, methods: Sequence[LinkingMethod]) -> None:
        self.name = "rrf"
        self.offers = _ANY
        self._methods = tuple(methods)

    def rank(self, one: LinkingSet) -> list[Ranked]:
        every = zip(*(method.rank(one) for method in self._methods), strict=True)
        return [_fused(answers) for answers in every]


def _fused(answers: Sequence[Ranked]) -> Ranked:
    scores: dict[str, float] = {}
    for answer in answers:
        for place, key in enumerate(answer.ids):
            scores[key] = scores.get(key, 0.0) + 1 / (_RRF + (1 if place < answer.n_tied else place + 1))
    return rank(list(scores.items()), same=1e-12) if scores else Ranked((), 0)


def _held_out(query: Query) -> HeldOut:
    def leaves_out(point: NamePoint) -> bool:
        return query.leaves_out(point.entity_id, point.name)

    return HeldOut(query.mention, leaves_out if query.without or query.loses_string else None)


def _verdict(one: LinkingSet, scored: list[ScoredMention], nil_judged: list[ScoredMention]) -> LinkVerdict:
    return LinkVerdict(
        [_ranked(answer) for answer in scored],
        collect(scored, [query.gold for query in one.queries]),
        collect(nil_judged, [query.gold for query in one.nil_queries]),
        scored,
        nil_judged,
    )


def _ranked(scored: ScoredMention) -> Ranked:
    n_tied = sum(entity.tie for entity in scored.found)
    return Ranked(tuple(entity.point.entity_id for entity in scored.found), max(n_tied, min(1, len(scored.found))))


def _score_again(scored: ScoredMention, model: RankingModel) -> ScoredMention:
    """The same candidates by other coefficients."""
    if not scored.found:
        return scored
    logits = (np.array([entity.features for entity in scored.found]) @ model.features).tolist()
    found = in_order(replace(entity, logit=logit) for entity, logit in zip(scored.found, logits, strict=True))
    return ScoredMention(scored.mention, found, float(scored.nil_features @ model.nil_features), scored.nil_features)
