"""Scores the names found for a mention: features, logits, order.

names, one per entity  ->  features  ->  logits of the entities and of NIL  ->  best first, ties marked
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pearl_qdrant.errors import ModelError
from pearl_qdrant.linking.ranking.edit_features import edits, margin, sorted_similarity, word_changes
from pearl_qdrant.linking.ranking.model import FEATURES, RankingModel
from pearl_qdrant.linking.ranking.reranker import TOP, Reranker
from pearl_qdrant.linking.ranking.rules import (
    BONUS,
    EXACT_CERTAINTY,
    ID_CERTAINTY,
    RuleName,
    namesakes,
    own_names,
    shares,
)
from pearl_qdrant.linking.ranking.string_features import (
    StringFeatures,
    equal_core,
    equal_first_word,
    equal_keys,
    equal_numbers,
    extra_numbers,
    is_acronym,
    missing_numbers,
    string_features,
)
from pearl_qdrant.linking.ranking.type_agreement import type_agreement
from pearl_qdrant.records import Candidate
from pearl_qdrant.store.schema import NamePoint

LEXICAL_SHARE = 0.5
"""Weight of the lexical score in the preliminary score, which sorts names before they are grouped and cut."""

EDIT_SHARE = 0.5
"""Weight of the edit similarity in the same."""

SAME_LOGIT = 1e-4
"""Logits this close are equal: two cosines of the same name differ by rounding."""

SOME_LEXICAL = 0.5
"""Lexical score above which more of it adds less."""

SUPPORT = 3
"""Other names of an entity among the found ones, from which on more of them add nothing."""

BACKGROUND = slice(5, 10)
"""Ranks of the candidates that measure how crowded the base is around the mention."""

_NONE_KNOWN: Mapping[str, float] = {}

_LONG = 30  # letters and digits; the length feature does not grow beyond


@dataclass(slots=True)
class MatchedName:
    """A name that the search found, with its scores.

    Attributes:
        point: Payload of the name.
        dense: Cosine, or None without vectors.
        lexical, mention_coverage, name_coverage: As in `lexical.idf.LexicalScores`.
        folded: The folded name (`lexical.ngrams.fold_name`).
        edit_similarity: Edit similarity to the mention, in [0, 1]; 0 below 0.5.
        is_same_spelling: Whether it has the mention's spelling key (`lexical.keys`).
        n_others: Number of other names of the same entity that the search found.
    """

    point: NamePoint
    dense: float | None
    lexical: float = 0.0
    mention_coverage: float = 0.0
    name_coverage: float = 0.0
    folded: str | None = None
    edit_similarity: float = 0.0
    is_same_spelling: bool = False
    n_others: int = 0

    @property
    def preliminary_score(self) -> float:
        """Sorts names before they are ranked; in [-1, 3]. A name of the mention's own spelling comes first."""
        dense = self.lexical if self.dense is None else self.dense
        return dense + LEXICAL_SHARE * self.lexical + EDIT_SHARE * self.edit_similarity + self.is_same_spelling


@dataclass(frozen=True, slots=True)
class ScoredEntity:
    """A candidate entity with its features and logit.

    Attributes:
        name: The best name of the entity.
        features: (len(FEATURES),).
        logit: Dot product of features and coefficients, plus the offset.
        offset: What rules add to the logit (`rules.py`): the share among namesakes, and the bonus of an exact name.
        is_namesake: Whether its best name is that of the first candidate, after folding; that one included.
        tie: Whether another entity has an equal best name, and nothing separates the two.
    """

    name: MatchedName
    features: npt.NDArray[np.float64]
    logit: float
    offset: float = 0.0
    is_namesake: bool = False
    tie: bool = False

    @property
    def point(self) -> NamePoint:
        """Payload of the best name."""
        return self.name.point

    @property
    def key(self) -> tuple[str, str]:
        """Base and id, which identify an entity."""
        return self.point.kb, self.point.entity_id

    def to_candidate(self, probability: float) -> Candidate:
        """The public record of this entity."""
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
            popularity=point.popularity,
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
        mention: The string as given.
        found: The entities, best first.
        nil_logit: Logit of NIL.
        nil_features: (len(NIL_FEATURES),).
        rule: The rule that chose or ordered the first candidates, or None.
        certainty: Precision of the rule, in (0, 1]; multiplies the probabilities of the candidates.
    """

    mention: str
    found: list[ScoredEntity]
    nil_logit: float
    nil_features: npt.NDArray[np.float64]
    rule: RuleName | None = None
    certainty: float = 1.0

    @property
    def logits(self) -> list[float]:
        """Logits of the entities."""
        return [entity.logit for entity in self.found]


@dataclass(frozen=True, slots=True)
class LinkQuery:
    """What to search for, for every mention of a batch.

    Attributes:
        limit: Entities per mention.
        types: Types that the caller named.
        is_filter: Whether only entities of these types are searched; otherwise the types are a feature.
        is_typed: Whether the mention's predicted type counts.
    """

    limit: int
    types: tuple[str, ...] = ()
    is_filter: bool = True
    is_typed: bool = True

    @property
    def filter(self) -> tuple[str, ...]:
        """Types that restrict the search; empty for all."""
        return self.types if self.is_filter else ()


@dataclass(frozen=True, slots=True)
class Scorer:
    """The parameters of the scoring.

    Attributes:
        model: Coefficients of the ranking.
        baseline: Mean cosine of unrelated names with this encoder, in [0, 1).
        log_size: Natural logarithm of the number of names in all collections.
    """

    model: RankingModel
    baseline: float
    log_size: float


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
    nil_features = _nil_features(of_mention, names, scorer)
    nil_logit = float(nil_features @ scorer.model.nil_features)
    if not names:
        return ScoredMention(mention, [], nil_logit, nil_features)
    nearest = _Nearest.among(names, scorer)
    features = np.array([_features(of_mention, name, types, link_query, scorer, nearest, known) for name in names])
    logits = features @ scorer.model.features
    offsets, chosen, rule = _apply_rules(mention, of_mention, names, logits, link_query)
    found = in_order(
        ScoredEntity(name, row, logit + offset, offset, i in chosen)
        for i, (name, row, logit, offset) in enumerate(zip(names, features, logits.tolist(), offsets, strict=True))
    )
    n_kept = max(link_query.limit, sum(entity.tie for entity in found))
    certainty = EXACT_CERTAINTY if rule is not None and names[min(chosen)].is_same_spelling else 1.0
    return ScoredMention(mention, found[:n_kept], nil_logit, nil_features, rule, certainty)


def _apply_rules(
    mention: str,
    of_mention: StringFeatures,
    names: Sequence[MatchedName],
    logits: npt.NDArray[np.float64],
    link_query: LinkQuery,
) -> tuple[list[float], frozenset[int], RuleName | None]:
    """Offsets of all logits, the rows of the entities that the rule is about, and the rule."""
    own = own_names(names, mention, of_mention.folded)
    group = own or namesakes(names, int(logits.argmax()))
    if link_query.types and not link_query.is_filter:
        group = [i for i in group if _has_type(names[i].point, link_query.types)] or group
    offsets = [0.0] * len(names)
    rule: RuleName | None = "exact name" if own else None
    if len(group) > 1:
        parts, rule = shares([names[i] for i in group], mention)
        for i, part in zip(group, parts, strict=True):
            offsets[i] = math.log(max(part, 1e-9) * len(group))
    if own:
        # The bonus replaces what features say: of one name they differ by the predicted type alone.
        level = max(logits[i] for i in group)
        for i in group:
            offsets[i] += BONUS + level - logits[i]
    return offsets, frozenset(group), rule


def put_first(scored: ScoredMention, point: NamePoint) -> ScoredMention:
    """The mention with the entity whose id it is as the first candidate."""
    others = [
        replace(entity, is_namesake=False, tie=False)
        for entity in scored.found
        if (entity.point.kb, entity.point.entity_id) != (point.kb, point.entity_id)
    ]
    logit = BONUS + max((entity.logit for entity in others), default=0.0)
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
    """Entities best first, equal ones by base and id, with ties marked; expects at least one."""
    by_key = sorted(found, key=lambda entity: entity.key)
    order, tied = best_first(np.array([entity.logit for entity in by_key]))
    n_tied = int(tied)
    return [replace(by_key[i], tie=rank < n_tied and n_tied > 1) for rank, i in enumerate(order.tolist())]


@dataclass(frozen=True, slots=True)
class _Nearest:
    """The two highest values among the entities of a mention, of edit similarity and of the `dense` feature."""

    edits: tuple[float, float]
    dense: tuple[float, float]

    @classmethod
    def among(cls, names: Sequence[MatchedName], scorer: Scorer) -> _Nearest:
        edits = heapq.nlargest(2, (name.edit_similarity for name in names))
        dense = heapq.nlargest(2, (_dense(name, scorer) for name in names))
        return cls((edits[0], edits[-1] if len(edits) > 1 else 0.0), (dense[0], dense[-1] if len(dense) > 1 else 0.0))

    def other_edits(self, own: float) -> float:
        """The highest edit similarity of another entity."""
        return self.edits[1] if own == self.edits[0] else self.edits[0]

    def other_dense(self, own: float) -> float:
        """The highest `dense` of another entity."""
        return self.dense[1] if own == self.dense[0] else self.dense[0]


def _dense(name: MatchedName, scorer: Scorer) -> float:
    """The `dense` feature: the cosine relative to that of unrelated names; the lexical score without vectors."""
    if name.dense is None:
        return name.lexical
    return (name.dense - scorer.baseline) / (1 - scorer.baseline)


def _features(
    of_mention: StringFeatures,
    name: MatchedName,
    types: npt.NDArray[np.float32] | None,
    link_query: LinkQuery,
    scorer: Scorer,
    nearest: _Nearest,
    known: Mapping[str, float],
) -> tuple[float, ...]:
    """Features in the order of `FEATURES`."""
    of_name = string_features(name.point.name, name.folded)
    is_wanted = bool(link_query.types) and not link_query.is_filter and _has_type(name.point, link_query.types)
    dense = _dense(name, scorer)
    return (
        dense,
        max(dense, 0.0) ** 2,
        max(0.0, dense - max(0.0, nearest.other_dense(dense))),
        min(name.n_others, SUPPORT) / SUPPORT,
        name.lexical,
        min(name.lexical, SOME_LEXICAL),
        name.mention_coverage,
        name.name_coverage,
        *equal_keys(of_mention, of_name),
        equal_core(of_mention, of_name),
        missing_numbers(of_mention, of_name),
        extra_numbers(of_mention, of_name),
        equal_numbers(of_mention, of_name),
        is_acronym(of_mention, of_name),
        equal_first_word(of_mention, of_name),
        *edits(of_mention, of_name, name.edit_similarity),
        sorted_similarity(of_mention, of_name, name.edit_similarity),
        margin(name.edit_similarity, nearest.other_edits(name.edit_similarity)),
        *word_changes(of_mention, of_name, known),
        float(name.point.is_canonical),
        type_agreement(types, name.point.types),
        float(is_wanted),
    )


def _has_type(point: NamePoint, types: Sequence[str]) -> bool:
    return not set(types).isdisjoint(point.filter_types)


def _nil_features(of_mention: StringFeatures, names: Sequence[MatchedName], scorer: Scorer) -> npt.NDArray[np.float64]:
    """Features in the order of `NIL_FEATURES`."""
    background = names[BACKGROUND]
    dense = [_dense(name, scorer) for name in background]
    lexical = [name.lexical for name in background]
    return np.array(
        [
            1.0,
            sum(dense) / len(dense) if dense else 0.0,
            sum(lexical) / len(lexical) if lexical else 0.0,
            min(len(of_mention.joined), _LONG) / _LONG,
            scorer.log_size / 10,
        ]
    )
