"""Scores the names found for a mention: features, rules, logits, order.

names, one per entity  ->  features  ->  logits of the entities and of NIL  ->  best first, ties marked
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pearl_qdrant.errors import ModelError
from pearl_qdrant.linking.ranking.candidate_features import candidate_features, has_type, nil_features, type_gaps
from pearl_qdrant.linking.ranking.model import FEATURES, with_margins
from pearl_qdrant.linking.ranking.reranker import TOP, Reranker
from pearl_qdrant.linking.ranking.rules import (
    BONUS,
    EXACT_CERTAINTY,
    ID_CERTAINTY,
    namesakes,
    of_one_core,
    own_names,
    shares,
)
from pearl_qdrant.linking.ranking.scored import LinkQuery, MatchedName, RuleName, ScoredEntity, ScoredMention, Scorer
from pearl_qdrant.linking.ranking.string_features import StringFeatures, string_features
from pearl_qdrant.store.schema import NamePoint

SAME_LOGIT = 1e-4
"""Logits this close are equal: two cosines of the same name differ by rounding."""

_NONE_KNOWN: Mapping[str, float] = {}


def score_names(
    mention: str,
    names: Sequence[MatchedName],
    types: npt.NDArray[np.float32] | None,
    link_query: LinkQuery,
    scorer: Scorer,
    known: Mapping[str, float] = _NONE_KNOWN,
) -> ScoredMention:
    """Score and sort the entities of one mention.

    Args:
        mention: The cleaned string.
        names: The best name of each entity, sorted by preliminary score.
        types: (19,), probabilities of the mention's entity types; None if they do not count.
        link_query: The search that found the names.
        scorer: Parameters of the scoring.
        known: How frequent the mention's content words are in the base, in [0, 1].
    """
    of_mention = string_features(mention)
    of_nil = nil_features(of_mention, names, scorer)
    if not names:
        return ScoredMention(mention, [], float(of_nil @ scorer.model.nil_features), of_nil)
    nearest = (*heapq.nlargest(2, ((name.closer or name).edit_similarity for name in names)), 0.0)[:2]
    gaps = type_gaps(types)

    def features_of(some: Sequence[MatchedName]) -> npt.NDArray[np.float64]:
        rows = [candidate_features(of_mention, name, gaps, link_query, scorer, nearest, known) for name in some]
        return np.array(rows)

    features = features_of(names)
    logits = features @ scorer.model.features
    if closer := [(i, name.closer) for i, name in enumerate(names) if name.closer is not None]:
        names, others = list(names), features_of([name for _, name in closer])
        for (i, name), row, logit in zip(closer, others, others @ scorer.model.features, strict=True):
            if logit > logits[i]:
                names[i], features[i], logits[i] = name, row, logit
    of_nil = with_margins(of_nil, logits, features)
    nil_logit = scorer.model.nil_logit(logits, features, of_nil)
    offsets, chosen, rule = _apply_rules(mention, of_mention, names, logits, nil_logit, link_query)
    found = in_order(
        ScoredEntity(name, row, logit + offset, offset, i in chosen)
        for i, (name, row, logit, offset) in enumerate(zip(names, features, logits.tolist(), offsets, strict=True))
    )
    n_kept = max(link_query.limit, sum(entity.tie for entity in found))
    certainty = EXACT_CERTAINTY if rule is not None and names[min(chosen)].is_same_spelling else 1.0
    return ScoredMention(mention, found[:n_kept], nil_logit, of_nil, rule, certainty)


def _apply_rules(
    mention: str,
    of_mention: StringFeatures,
    names: Sequence[MatchedName],
    logits: npt.NDArray[np.float64],
    nil_logit: float,
    link_query: LinkQuery,
) -> tuple[list[float], frozenset[int], RuleName | None]:
    """Offsets of all logits, the rows of the entities that the rule is about, and the rule."""
    own = own_names(names, mention, of_mention.folded)
    best = int(logits.argmax())
    of_core = [] if own else of_one_core(names, best, of_mention.folded)
    group = own or of_core or namesakes(names, best)
    if link_query.types and not link_query.is_filter:
        group = [i for i in group if has_type(names[i].point, link_query.types)] or group
    offsets = [0.0] * len(names)
    rule: RuleName | None = "exact name" if own else None
    if len(group) > 1:
        parts, rule = shares([names[i] for i in group], mention)
        for i, part in zip(group, parts, strict=True):
            offsets[i] = math.log(max(part, 1e-9) * len(group))
        if of_core:
            # Vectors differ by what is in brackets, which the mention does not say.
            level = float(np.logaddexp.reduce(logits[group])) - math.log(len(group))
            for i in group:
                offsets[i] += level - float(logits[i])
    if own:
        # The bonus replaces what features say: of one name they differ by the predicted type alone.
        level = max(nil_logit, float(logits.max()))
        for i in group:
            offsets[i] += BONUS + level - float(logits[i])
    return offsets, frozenset(group), rule


def put_first(scored: ScoredMention, point: NamePoint) -> ScoredMention:
    """The mention with the entity whose id it is as the first candidate."""
    others = [
        replace(entity, is_namesake=False, tie=False)
        for entity in scored.found
        if (entity.point.kb, entity.point.entity_id) != (point.kb, point.entity_id)
    ]
    logit = BONUS + max([scored.nil_logit, *(entity.logit for entity in others)])
    features = np.zeros(len(FEATURES))
    first = ScoredEntity(MatchedName(point, None), features, logit, offset=logit, is_namesake=True)
    return replace(scored, found=[first, *others], rule="entity id", certainty=ID_CERTAINTY)


def rerank(scored: ScoredMention, reranker: Reranker, mention: str) -> ScoredMention:
    """Add a reranker's scores to the logits of the first candidates, and sort all candidates again.

    A mention that a rule has decided keeps its order; of namesakes that nothing separates, the reranker chooses one.
    The scores are centred on their mean. So the reranker changes the order of the candidates that it read, and does
    not change their odds as a group against NIL and against the candidates that it did not read.

    Raises:
        ModelError: If the reranker does not return one finite score per candidate.
    """
    first = scored.found[:TOP]
    if len(first) < 2 or (scored.certainty < 1 and not first[0].tie):
        return scored
    scores = reranker.score(mention, [entity.point for entity in first])
    if len(scores) != len(first) or not all(map(math.isfinite, scores)):
        raise ModelError(
            f"The reranker read {len(first)} candidates and returned the scores {list(scores)}. It must return one "
            f"finite number for each."
        )
    mean = math.fsum(scores) / len(scores)
    moved = [replace(entity, logit=entity.logit + score - mean) for entity, score in zip(first, scores, strict=True)]
    return replace(scored, found=in_order([*moved, *scored.found[TOP:]]))


def best_first(logits: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Order of candidates: first those tied with the best one, then the others by logit.

    Args:
        logits: (..., k), k > 0; minus infinity where there is no candidate.

    Returns:
        Indices into `logits`, (..., k), equal logits in their given order; and the number of tied first candidates,
        (...,): 1 for a single best one, 0 without candidates.
    """
    is_tied = np.isfinite(logits) & (logits >= logits.max(axis=-1, keepdims=True) - SAME_LOGIT)
    # Rounded to the same 1e-4 as ties, and stable: differences of rounding never change the order of equal names.
    order = np.argsort(np.where(is_tied, -np.inf, -np.round(logits, 4)), axis=-1, kind="stable")
    return order, is_tied.sum(axis=-1)


def in_order(found: Iterable[ScoredEntity]) -> list[ScoredEntity]:
    """Entities best first, equal ones by base and id, with ties marked; expects at least one.

    The same order as by `best_first`, without arrays: for ten entities they take longer than all else here.
    """
    entities = list(found)
    least = max([entity.logit for entity in entities]) - SAME_LOGIT
    # Those tied with the best one come first, by base and id alone.
    keyed = [
        (math.inf if entity.logit >= least else round(entity.logit, 4), entity.name.point, entity)
        for entity in entities
    ]
    keyed.sort(key=lambda one: (-one[0], one[1].kb, one[1].entity_id))
    has_ties = len(keyed) > 1 and keyed[1][0] == math.inf
    return [_marked(entity, has_ties and rank == math.inf) for rank, _, entity in keyed]


def _marked(entity: ScoredEntity, is_tied: bool) -> ScoredEntity:
    return entity if entity.tie is is_tied else replace(entity, tie=is_tied)
