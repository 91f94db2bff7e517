"""The log-linear model of a document: what its other mentions and its words say of the candidates of one mention.

    logit_i   = sum over features of coefficient * value_i                       which candidate
    d         = sum over NIL features of coefficient * value                     whether any
    p_i       = exp(logit_i) / sum_j exp(logit_j) * logistic(d)

It works on the candidates of the ranking model. The coefficients are in `documents.json`; `runs/document_model.py` fits
them and documents the data. A coefficient has the sign that its feature's meaning requires, or is 0.

Features of a candidate:
    names           the logit of the ranking model, without what rules add, where the base has popularity
    popularity      log(1 + popularity / the least one above 0 of the document's candidates)    `features.py`
    rules           the logit of the ranking model and its rules, where the base has no popularity; as it is. Where it
                    has, of entities that have the mention as their name: what keeps them as probable as alone
    learned         log(1 + n / 0.3), n how often the mention meant it in labelled text
    word_type       log probability of its type by the words around, less the highest one
    passage         cosine of the passage to its canonical name, of namesakes to their descriptions
    surname         probability of the person whose longer name ends with the mention
    first_name      the same, where the longer name begins with it
    part_of_name    the same for an entity that is no person
    acronym         the same, where the mention has the initials of the longer name
    other_form      the same, where the other mention is of the same stem: Israeli, Israel
    same_entity     probability that another string of the document means it
    linked          how many of the entities of the document are linked to it
    shared_links    how many links they have in common with it

Features of the decision:
    rules           the decision of the ranking model and its rules, as it is, where those below are 0; else what keeps
                    an exact name as sure as alone
    bias            1 where the base has popularity, and coherence counts or something was learned of the mention
    names           there: the decision of the ranking model, in [-6, 6]; 0 for an exact name
    exact_name      there: the mention is a name of the base, up to spelling
    learned, learned_nil    log(1 + n / 0.3), n how often the mention meant any entity, and none
    part            probability of the entities of the other name that the mention is a part or form of
    part_of_nil     if it is a part or form of another name: the probability that this one has no entity
    same_entity, linked, shared_links     those of the first candidate
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Literal

import numpy as np
import numpy.typing as npt

from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.learned.names import LearnedMention
from pearl_qdrant.linking.mentions import clean_mention
from pearl_qdrant.linking.ranking.model import ScoredEntity, ScoredMention, in_order, log_sum_exp
from pearl_qdrant.linking.ranking.scoring import BONUS
from pearl_qdrant.records import LearnedCount

FloatArray = npt.NDArray[np.float64]

FEATURES = (
    "names", "popularity", "rules", "learned", "word_type", "passage", "surname", "first_name", "part_of_name",
    "acronym", "other_form", "same_entity", "linked", "shared_links",
)  # fmt: skip
NIL_FEATURES = (
    "bias", "names", "exact_name", "rules", "learned", "learned_nil", "part", "part_of_nil",
    "same_entity", "linked", "shared_links",
)  # fmt: skip

PARTS: Mapping[str, tuple[str, ...]] = {
    "partial names": ("surname", "first_name", "part_of_name", "acronym", "other_form"),
    "popularity": ("popularity",),
    "learned names": ("learned",),
    "types": ("word_type",),
    "passages": ("passage",),
    "coherence": ("same_entity", "linked", "shared_links"),
}
"""What a caller can switch off (`without`), and the features that it has."""

UNFITTED = frozenset(("rules",))
"""Features with the coefficient 1: a base without popularity keeps the order and the decisions of names."""

Setting = Literal["coherence", "no_coherence", "context"]
"""What the coefficients were fitted for: documents with coherence, documents without it, whose other features and
above all whose decision count for more, and single mentions with a text around them."""

COLUMN = {name: i for i, name in enumerate(FEATURES)}
NIL_COLUMN = {name: i for i, name in enumerate(NIL_FEATURES)}


@dataclass(frozen=True, slots=True)
class DocumentModel:
    """The coefficients of the candidates, (len(FEATURES),), and of the decision, (len(NIL_FEATURES),)."""

    features: FloatArray
    decision: FloatArray

    @classmethod
    def from_names(cls, features: Mapping[str, float], decision: Mapping[str, float]) -> DocumentModel:
        """Coefficients by name; missing ones are 0. Raises ValueError if a name is unknown."""
        return cls(in_order(features, FEATURES), in_order(decision, NIL_FEATURES))

    def by_name(self) -> dict[str, dict[str, float]]:
        """The coefficients by name, as `from_names` takes them."""
        return {
            "features": dict(zip(FEATURES, self.features.tolist(), strict=True)),
            "decision": dict(zip(NIL_FEATURES, self.decision.tolist(), strict=True)),
        }

    def probabilities(self, values: FloatArray, of_mention: FloatArray) -> FloatArray:
        """Probabilities of candidates, (k,), by their features, (k, len(FEATURES)), and those of the decision. 1 minus
        their sum is the probability of NIL.
        """
        if not len(values):
            return np.zeros(0)
        logits = values @ self.features
        odds = np.exp(logits - logits.max())
        probability: FloatArray = odds / odds.sum() / (1.0 + np.exp(-(of_mention @ self.decision)))
        return probability


def check_parts(without: Iterable[str]) -> frozenset[str]:
    """The names of parts to switch off, checked. Raises ValueError if one of them is no part of the model."""
    chosen = frozenset((without,) if isinstance(without, str) else without)
    if unknown := chosen - set(PARTS):
        raise ValueError(f"without is one or several of {', '.join(map(repr, PARTS))}, not {min(unknown)!r}")
    return chosen


def shipped_document_model(setting: Setting = "coherence", *, learned_share: float = 0.0) -> DocumentModel:
    """The coefficients that come with this package. By the share of the mentions of which something was learned, in
    [0, 1], they lie between those for documents without learned names and with them; counts have one coefficient.
    """
    without = _shipped(setting)
    if setting == "context":
        return without
    learned = _shipped(f"{setting}_learned")
    features = without.features + learned_share * (learned.features - without.features)
    decision = without.decision + learned_share * (learned.decision - without.decision)
    features[COLUMN["learned"]] = learned.features[COLUMN["learned"]]
    for name in ("learned", "learned_nil"):
        decision[NIL_COLUMN[name]] = learned.decision[NIL_COLUMN[name]]
    return DocumentModel(features, decision)


@lru_cache(maxsize=8)
def _shipped(name: str) -> DocumentModel:
    loaded = json.loads(files(__package__).joinpath("documents.json").read_text("utf-8"))
    return DocumentModel.from_names(**loaded[name])


MOST_CERTAIN = 6.0  # logits beyond which the decision of the ranking model counts for no more
BEST, OPEN, OPEN_POPULAR = 10, 0.95, 0.999
"""Candidates that passages and coherence can help; a first candidate more probable than `OPEN` needs no help. Where the
base has popularity, coherence may help where a name is exact, too: in news a city's name means its team.
"""

EntityKey = tuple[str, str]  # base and id of an entity


@dataclass(slots=True)
class DocumentMention:
    """A mention of a document with its candidates."""

    start: int  # offset of its first character; orders the mentions of the document
    scored: ScoredMention  # the mention and its candidates, as the ranking model leaves them
    words: tuple[str, ...]  # its folded words, without an article at the start
    entities: list[ScoredEntity]  # the candidates, and those that a longer mention of the document added
    values: FloatArray  # their features, (k, len(FEATURES))
    of_decision: FloatArray  # features of the decision, (len(NIL_FEATURES),)
    row: dict[EntityKey, int] = field(init=False)
    learned: tuple[LearnedCount, ...] = ()  # how often it meant what in labelled text
    # (len(word_types.TYPES),), log probabilities of its type by the words around it; None if unknown.
    type_scores: FloatArray | None = None
    is_compared: bool = True  # whether its passage is compared with its candidates
    is_id: bool = False  # whether the mention is the id of an entity, which nothing in a document can change
    has_popularity: bool = False  # whether popularity counts
    alone: float = -MOST_CERTAIN  # log odds of all candidates together, by the ranking model and its rules
    has_name: bool = False  # whether popularity counts, and the mention is a name of the base
    # Rows of the entities of that name, which stay as sure as alone; none if something was learned of it.
    own: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.row = {entity.key: i for i, entity in enumerate(self.entities)}

    def add(self, entity: ScoredEntity) -> int:
        """The row of an entity, which becomes a candidate if it is none yet."""
        row = self.row.get(entity.key)
        if row is None:
            row = self.row[entity.key] = len(self.entities)
            self.entities.append(entity)
            values = np.zeros(len(FEATURES))
            if row:  # what a search does not find is no nearer than the last of what it finds
                for name in ("names", "rules"):
                    values[COLUMN[name]] = self.values[:, COLUMN[name]].min()
            self.values = np.vstack([self.values, values])
        return row


def _log_odds(share: float) -> float:
    return math.log(share / (1.0 - min(share, 1.0 - 1e-9)))


def document_mention(
    scored: ScoredMention,
    start: int,
    *,
    has_popularity: bool = True,
    learned: LearnedMention | None = None,
    type_scores: FloatArray | None = None,
) -> DocumentMention:
    """A mention with the features that the ranking model and its rules give. If popularity does not count, the base is
    taken for one without it. Where it counts, learned counts are features; else they have changed the probabilities.
    """
    is_popular = has_popularity and any(entity.point.popularity is not None for entity in scored.found)
    is_id = scored.rule == "entity id"
    if learned is not None and not is_popular and not is_id:
        scored = learned.scored
    words = fold_name(clean_mention(scored.mention)).split()
    while len(words) > 1 and words[0] in ("the", "a", "an"):
        del words[0]
    found = scored.found
    values = np.zeros((len(found), len(FEATURES)))
    alone, own = -MOST_CERTAIN, tuple[int, ...]()
    if found:
        logits = np.array(scored.logits)
        known = log_sum_exp(logits) - scored.nil_logit
        # The certainty of a rule multiplies the probability; here it is a part of the decision.
        alone = _log_odds(scored.certainty / (1.0 + math.exp(-max(-MOST_CERTAIN, min(known, BONUS)))))
        values[:, COLUMN["rules"]] = logits - logits.max()
    if is_popular:
        raw = np.array([entity.logit - entity.offset for entity in found])
        values[:, COLUMN["names"]] = raw - raw.max()
        values[:, COLUMN["rules"]] = 0.0
        own = tuple(i for i, e in enumerate(found) if e.name.is_same_spelling and e.offset > BONUS / 2)
    of_decision = np.zeros(len(NIL_FEATURES))
    of_decision[NIL_COLUMN["rules"]] = alone
    mention = DocumentMention(
        start, scored, tuple(words), list(found), values, of_decision, type_scores=type_scores, is_id=is_id,
        has_popularity=is_popular, alone=alone, has_name=bool(own), own=own,
    )  # fmt: skip
    if learned is not None and is_popular and not is_id:
        mention.learned = learned.counts
        if learned.counts:
            set_own_decision(mention)
            mention.own = ()
        for entity in learned.scored.found:
            if any((count.kb, count.entity_id) == entity.key for count in learned.counts):
                mention.add(entity)
    return mention


def set_own_decision(mention: DocumentMention) -> None:
    """Let the coefficients of `bias`, `names` and `exact_name` decide in place of the ranking model and its rules."""
    of_decision, scored = mention.of_decision, mention.scored
    of_decision[NIL_COLUMN["rules"]] = 0.0
    of_decision[NIL_COLUMN["bias"]] = 1.0
    if mention.is_id or mention.has_name:
        of_decision[NIL_COLUMN["exact_name"]] = 1.0
    else:
        decided = log_sum_exp(np.array([entity.logit - entity.offset for entity in scored.found])) - scored.nil_logit
        of_decision[NIL_COLUMN["names"]] = max(-MOST_CERTAIN, min(MOST_CERTAIN, decided))


EVIDENCE = [i for i, name in enumerate(FEATURES) if name not in ("names", "popularity", "rules")]
"""Columns of what the words around a mention say."""

FAINT, CLEAR = 0.5, 1.5
"""Logits by which the words around speak against an exact name: up to the first it stays as sure as alone, from the
second on the coefficients alone decide."""

SLACK = 2.0
"""Logits by which an exact name is decided more surely than alone, so that the share of other names is made up for."""


def keep_own_name(mention: DocumentMention, model: DocumentModel) -> None:
    """Set the features `rules` of a mention that is a name of the base, so that the entities of this name are together
    as probable as alone, unless the words around speak against them. Called after any other feature has changed.
    """
    if not mention.own:
        return
    values, of_decision = mention.values, mention.of_decision
    is_own = np.isin(np.arange(len(values)), mention.own)
    wanted, weight = mention.alone + SLACK, 1.0
    values[is_own, COLUMN["rules"]] = 0.0
    if not is_own.all():
        logits = values @ model.features
        before = logits - values[:, EVIDENCE] @ model.features[EVIDENCE]
        lead, lead_before = (log_sum_exp(one[is_own]) - log_sum_exp(one[~is_own]) for one in (logits, before))
        weight = min(1.0, max(0.0, (CLEAR - (lead_before - lead)) / (CLEAR - FAINT)))
        least = _log_odds((1.0 + math.exp(-wanted)) / (1.0 + math.exp(-mention.alone)))
        values[is_own, COLUMN["rules"]] = weight * max(0.0, least - lead)
    of_decision[NIL_COLUMN["rules"]] = 0.0 if of_decision[NIL_COLUMN["bias"]] else mention.alone
    of_decision[NIL_COLUMN["rules"]] += weight * max(0.0, wanted - float(of_decision @ model.decision))


def best_of_open(mention: DocumentMention, probabilities: FloatArray, most: float = OPEN) -> list[int]:
    """The rows of the best candidates of a mention that is open; none if its first one is more probable than `most`."""
    if mention.is_id or not len(probabilities) or probabilities.max() > most:
        return []
    best: list[int] = np.argsort(-probabilities, kind="stable")[:BEST].tolist()
    return best
