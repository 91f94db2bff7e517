"""From features to probabilities: a linear score for each candidate entity, and a decision about the first; and what
flows between search, scores and decision: names, entities, mentions.

    logit_i     = sum over features of coefficient * value_i                                            the ranking
    d           = sum over features of the first candidate of decision coefficient * value
                  - sum over NIL features of coefficient * value                                        the decision
    logit_NIL   = log(sum_j exp(logit_j)) - d, so that 1 - p_NIL is the logistic function of d
    p_i         = exp(slope * logit_i) / (sum_j exp(slope * logit_j) + exp(slope * logit_NIL + nil_bias))

Ranking and decision have coefficients of their own: which of two names is nearer is another question than whether the
nearer one is near enough. `scoring.py` computes the features of a candidate from its best name; those of a
mention speak for NIL, but for the margins: how far the second candidate of another name is behind.

Rules go before the model where the mention is a name of the base itself, or an id (`scoring.py`).
The coefficients are in `ranking.json`. `runs/linking_model.py` fits them and documents the data. A coefficient has the
sign that its feature's meaning requires, or is 0. Slope and bias are 1 and 0 until `pearl-qdrant calibrate` fits them
to a collection.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pearl_qdrant.encoder.judge import NameJudge
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.ranking.forest import Forest, shipped_forest
from pearl_qdrant.records import Candidate
from pearl_qdrant.settings import DEFAULT_THRESHOLD
from pearl_qdrant.store.schema import NamePoint


class Feature(NamedTuple):
    """A feature of a candidate."""

    name: str  # its name, as in `ranking.json`
    sign: int  # 1: it raises a candidate's score; -1: it lowers it; 0: either.
    words: str  # what it means


TABLE: tuple[Feature, ...] = (
    Feature("dense", 1, "meaning (dense cosine, above that of unrelated names)"),
    Feature("lexical", 1, "spelling (n-gram cosine)"),
    Feature("mention_coverage", 1, "share of the mention that the name covers"),
    Feature("acronym", 1, "one is an acronym of the other"),
    Feature("edit_similarity", 1, "few edits away"),
    Feature("edit_margin", 1, "fewer edits than any other name"),
    Feature("sorted_similarity", 1, "few edits in another order of words"),
    Feature("replaced_words", -1, "another word in its place"),
    Feature("missing_rare", 0, "a word that it has more is rare in English"),
    Feature("other_script_dense", 1, "close meaning in another script"),
    Feature("canonical", 1, "the canonical name"),
    Feature("type_agreement", 1, "the model predicts another type for the mention"),
    Feature("wanted_type", 1, "has a requested type"),
    Feature("number_differs", -1, "another number"),
    Feature("opposite", -1, "a word that excludes one of the name (left, right)"),
    Feature("cut_words", 1, "the same words, cut short"),
    Feature("equal_part", 1, "a part between commas is the name of this organisation"),
    Feature("mention_words", 0, "letters of the mention in words of the name"),
    Feature("name_words", 0, "letters of the name in words of the mention"),
    Feature("known_word", -1, "another known name where the persons' names differ by letters"),
    Feature("judge", 1, "the judge of two names, which reads both at once"),
    Feature("judge_sure", 1, "the judge is sure that they are one"),
    Feature("judge_doubts", -1, "the judge is sure that they are two"),
)
"""The features of a candidate, in the order of their values."""

FEATURES: tuple[str, ...] = tuple(one.name for one in TABLE)
SHORT_FORM = "short_form"  # what a mention adds as a short form: a part of the logit beside the features
WORDS: dict[str, str] = {one.name: one.words for one in TABLE} | {SHORT_FORM: "the letters of a short form"}
SIGNS: dict[str, int] = {one.name: one.sign for one in TABLE}
COLUMN: dict[str, int] = {name: i for i, name in enumerate(FEATURES)}
JUDGE = COLUMN["judge"]
JUDGED = slice(JUDGE, JUDGE + 3)
SURE = 1.5  # score of the judge, on either side of 0, from which it is sure
MOST_SCORE = 6.0  # beyond which a score says no more
UNFITTED = frozenset(("wanted_type",))  # features without training data: their coefficients were set by hand

NIL_FEATURES = (
    "bias",
    "background_dense",  # mean of `dense` over the candidates ranked 6 to 10: how crowded the base is there
    "length",  # letters and digits of the mention, up to 30, divided by 30
    "log_size",  # natural logarithm of the number of names in the collections, at least 300, divided by 10
    "margin",  # logits that the first candidate is before the first one of another name, up to 8, divided by 8
    "coverage_margin",  # what it has more of `mention_coverage`
    "judge_margin",  # what it has more of `judge`, divided by 8
    "few_names",  # in [0, 1], above 0 in collections of under 300 names: what margins lose, as no other name is near
)
"""The features of a mention; they speak for NIL, margins against it."""

NIL_WORDS: dict[str, str] = {
    "bias": "what all mentions have in common",
    "background_dense": "how near other names are (vectors)",
    "length": "the length of the mention",
    "log_size": "the size of the base",
    "margin": "its lead over the next name",
    "coverage_margin": "its lead over the next name in what it covers",
    "judge_margin": "its lead over the next name by the judge",
    "few_names": "a base of few names",
}
"""What they mean."""

MARGINS = slice(4, 7)  # the margins among `NIL_FEATURES`
FEW_NAMES = NIL_FEATURES.index("few_names")  # it weighs nothing itself: its coefficient stays 0


FloatArray = npt.NDArray[np.float64]


DECISION_FEATURES = (*FEATURES, *NIL_FEATURES)
"""The features of the decision: of the first candidate, and of the mention."""


def decision_rows(first: npt.NDArray[np.floating[Any]], nil_features: npt.NDArray[np.floating[Any]]) -> FloatArray:
    """The features of the decision of m mentions, (m, len(DECISION_FEATURES)): those of the first candidates, (m,
    len(FEATURES)), beside those of the mentions, (m, len(NIL_FEATURES)).
    """
    rows: FloatArray = np.concatenate([first, nil_features], axis=1).astype(np.float64)
    return rows


@dataclass(frozen=True, slots=True)
class RankingModel:
    """The coefficients of the ranking.

    Attributes:
        features: Of the ranking, (len(FEATURES),).
        decision: Of the decision, for the first candidate, (len(FEATURES),).
        nil_features: Of the decision, for the mention, (len(NIL_FEATURES),); they speak for NIL.
        forest: Trees over both, to whose logit the coefficients of the decision are added; None for these alone.
    """

    features: FloatArray
    decision: FloatArray
    nil_features: FloatArray
    forest: Forest | None = None

    @classmethod
    def from_names(
        cls,
        features: Mapping[str, float],
        decision: Mapping[str, float],
        nil_features: Mapping[str, float],
        forest: Forest | None = None,
    ) -> RankingModel:
        """Coefficients by name; missing ones are 0. Raises ValueError if a name is unknown."""
        coefficients = in_order(features, FEATURES), in_order(decision, FEATURES), in_order(nil_features, NIL_FEATURES)
        return cls(*coefficients, forest)

    def by_name(self) -> dict[str, dict[str, float]]:
        """The coefficients by name, as `from_names` takes them."""
        return {
            "features": dict(zip(FEATURES, self.features.tolist(), strict=True)),
            "nil_features": dict(zip(NIL_FEATURES, self.nil_features.tolist(), strict=True)),
            "decision": dict(zip(FEATURES, self.decision.tolist(), strict=True)),
        }

    def nil_logit(
        self, logits: FloatArray, features: npt.NDArray[np.floating[Any]], nil_features: npt.NDArray[np.floating[Any]]
    ) -> float:
        """Logit of NIL of one mention, by the logits, (k,), and features, (k, len(FEATURES)), of its candidates by the
        ranking alone, and its own, (len(NIL_FEATURES),), with the margins of these logits (`with_margins`).
        """
        if not len(logits):
            return float(nil_features @ self.nil_features)  # nothing to compare with
        first = features[int(logits.argmax())]
        decided = float(first @ self.decision) - float(nil_features @ self.nil_features) - part_doubt(first)
        if self.forest is not None:
            decided += float(self.forest.logits(decision_rows(first[None], nil_features[None]))[0])
        return log_sum_exp(logits) - decided

    def reasons(
        self, first: npt.NDArray[np.floating[Any]], nil_features: npt.NDArray[np.floating[Any]]
    ) -> dict[str, float]:
        """What each feature of the first candidate, (len(FEATURES),), and of the mention, (len(NIL_FEATURES),), adds to
        the logit that the first is right, where it adds something; what does not depend on them is "bias", and so is
        what the judge adds where it was not asked.
        """
        row = decision_rows(first[None], nil_features[None])[0]
        start, found = (0.0, {}) if self.forest is None else self.forest.contributions(row)
        found["bias"] = found.get("bias", 0.0) + start
        coefficients = np.concatenate([self.decision, -self.nil_features])
        for i in np.flatnonzero(coefficients * row).tolist():
            found[DECISION_FEATURES[i]] = found.get(DECISION_FEATURES[i], 0.0) + float(coefficients[i] * row[i])
        if doubt := part_doubt(first):
            found["judge_doubts"] = found.get("judge_doubts", 0.0) - doubt
        if not first[JUDGED].any():
            found["bias"] += sum(found.pop(name, 0.0) for name in (*FEATURES[JUDGED], "judge_margin"))
        return found

    def nil_logits(
        self, logits: FloatArray, features: npt.NDArray[np.floating[Any]], nil_features: npt.NDArray[np.floating[Any]]
    ) -> FloatArray:
        """The same of m mentions, (m,); `logits` and `features` are (m, k, ...), minus infinity where there is none.
        The margins of `nil_features` are computed anew from these logits.
        """
        nil_features = all_margins(nil_features, logits, features)
        rows = zip(logits, features, nil_features, strict=True)
        return np.array([self.nil_logit(row[row > -np.inf], of[row > -np.inf], nil) for row, of, nil in rows])


PART_DOUBT = 1.0
"""Logits that a part of a name loses where the judge takes both for two things: `skin` is no skin flap. Of 440 such
mentions of 95 sets 56 % were right at 0.73, alike in sets that the trees saw and in those that they did not."""


def part_doubt(first: npt.NDArray[np.floating[Any]]) -> float:
    """What the logit loses that a candidate with these features, (len(FEATURES),), is right (`PART_DOUBT`)."""
    is_part = first[_MENTION_WORDS] == 1.0 and first[_NAME_WORDS] < 1.0
    return PART_DOUBT if is_part and first[JUDGE] < -1.0 else 0.0


_MENTION_WORDS, _NAME_WORDS = COLUMN["mention_words"], COLUMN["name_words"]


def log_sum_exp(logits: FloatArray) -> float:
    """log(sum(exp(logits))) of at least one logit."""
    highest = float(logits.max())
    return highest + math.log(float(np.exp(logits - highest).sum()))


def judge_features(scores: FloatArray) -> FloatArray:
    """The features `JUDGED` of scores of the judge, (n,) to (n, 3)."""
    clipped = np.clip(scores, -MOST_SCORE, MOST_SCORE)
    return np.stack([clipped, np.maximum(clipped - SURE, 0.0), np.maximum(-SURE - clipped, 0.0)], axis=-1)


MOST_MARGIN = 8.0  # logits beyond which a margin says no more
_SAME_NAME = 1e-4  # cosines and n-gram scores this close are those of one name
_COMPARED = [COLUMN["dense"], COLUMN["lexical"], COLUMN["mention_coverage"], JUDGE]


def with_margins(
    nil_features: npt.NDArray[np.floating[Any]], logits: FloatArray, features: npt.NDArray[np.floating[Any]]
) -> FloatArray:
    """Features of one mention, (len(NIL_FEATURES),), with its margins: how far the first candidate of another name is
    behind. Logits, (k,), and features, (k, len(FEATURES)), are those of its candidates by the ranking alone.
    """
    found = np.array(nil_features, dtype=np.float64)
    found[MARGINS] = 0.0
    if len(logits):
        # Lists: of ten or twenty candidates they take a third of the time that arrays do.
        scores, first = logits.tolist(), int(logits.argmax())
        rows = features[:, _COMPARED].tolist()
        dense, lexical, coverage, judged = rows[first]
        # Without another name, one that has nothing in common with the mention stands for it.
        second, of_second, also = -math.inf, 0.0, -math.inf
        for score, (d, x, c, z) in zip(scores, rows, strict=True):
            if abs(d - dense) > _SAME_NAME or abs(x - lexical) > _SAME_NAME:
                also = max(also, z)
                if score > second:
                    second, of_second = score, c
        margin = scores[first] - (second if second > -math.inf else 0.0)
        of_judge = min(max(judged - also, -MOST_MARGIN), MOST_MARGIN) if also > -math.inf else 0.0
        found[MARGINS] = (
            min(max(margin, 0.0), MOST_MARGIN) / MOST_MARGIN,
            coverage - of_second,
            of_judge / MOST_MARGIN,
        )
        found[MARGINS] *= 1.0 - found[FEW_NAMES]
    return found


def in_order(coefficients: Mapping[str, float], names: Sequence[str]) -> FloatArray:
    """Coefficients in the order of these names; missing ones are 0. Raises ValueError if a name is unknown."""
    if unknown := set(coefficients) - set(names):
        raise ValueError(f"unknown feature {min(unknown)!r}; there are: {', '.join(names)}")
    return np.array([float(coefficients.get(name, 0.0)) for name in names])


@lru_cache(maxsize=1)
def shipped_model() -> RankingModel:
    """The coefficients that come with this package."""
    loaded = json.loads(files(__package__).joinpath("ranking.json").read_text("utf-8"))
    return RankingModel.from_names(loaded["features"], loaded["decision"], loaded["nil_features"], shipped_forest())


@dataclass(frozen=True, slots=True)
class Calibration:
    """Maps logits to probabilities in one collection.

    Attributes:
        slope: Multiplies every logit; > 0.
        nil_bias: Added to the scaled logit of NIL.
        threshold: Minimum probability of a link, in [0, 1]; below it a mention is NIL.
    """

    slope: float = 1.0
    nil_bias: float = 0.0
    threshold: float = DEFAULT_THRESHOLD

    def __post_init__(self) -> None:
        if not (0.0 < self.slope < math.inf and math.isfinite(self.nil_bias) and 0.0 <= self.threshold <= 1.0):
            raise ValueError(f"slope must be positive, threshold a probability, and slope and bias finite, not {self}")

    def with_bias(self, nil_bias: float) -> Calibration:
        """This calibration with something added to the logit of NIL."""
        return replace(self, nil_bias=self.nil_bias + nil_bias) if nil_bias else self

    def probabilities(self, logits: Sequence[float], nil_logit: float, *, certainty: float = 1.0) -> list[float]:
        """Probability of each candidate; 1 minus their sum is that of NIL.

        Args:
            logits: Logits of the candidates.
            nil_logit: Logit of NIL.
            certainty: Precision of the rule that chose the first candidate, in (0, 1]; multiplies the probabilities.
        """
        # Numerically stable softmax: subtracting the highest logit keeps exp from overflowing.
        scaled = [self.slope * logit for logit in logits]
        nil = self.slope * nil_logit + self.nil_bias
        highest = max([nil, *scaled])
        weights = [math.exp(logit - highest) for logit in scaled]
        total = math.exp(nil - highest) + math.fsum(weights)
        return [certainty * weight / total for weight in weights]


def all_margins(
    nil_features: npt.NDArray[np.floating[Any]], logits: FloatArray, features: npt.NDArray[np.floating[Any]]
) -> FloatArray:
    """`with_margins` of m mentions; `logits` and `features` are (m, k, ...), minus infinity where there is none."""
    rows = zip(nil_features, logits, features, strict=True)
    found = [with_margins(nil, row[row > -np.inf], of[row > -np.inf]) for nil, row, of in rows]
    return np.array(found).reshape(len(logits), len(NIL_FEATURES))


RuleName = Literal["entity id", "exact name", "slip", "canonical name", "popularity", "namesakes", "learned name"]
"""Rules before the ranking model; see `scoring.py`, and `linking.slips`. The last one comes after it; see
`linking.learned`."""

LEXICAL_SHARE = 0.5
"""Weight of the lexical score in the preliminary score, which sorts names before they are grouped and cut."""

EDIT_SHARE = 0.5  # weight of the edit similarity in the same
FORM_SHARE = 0.5  # weight of the same words in another order, and of initials, in the same


@dataclass(slots=True)
class MatchedName:
    """A name that the search found, with its scores."""

    point: NamePoint  # payload of the name
    dense: float | None  # cosine, or None without vectors
    lexical: float = 0.0  # these two as in `lexical.ngrams.score_pairs`
    mention_coverage: float = 0.0
    folded: str | None = None  # the folded name (`lexical.ngrams.fold_name`), as it is compared with the mention
    is_other_script: bool = False  # whether one of the two is in another script, and both are compared in Latin letters
    edit_similarity: float = 0.0  # edit similarity to the mention, in [0, 1]; 0 below 0.5
    is_same_spelling: bool = False  # whether it has the mention's spelling key (`lexical.keys`)
    # whether it has the mention's key of sorted words, and there are several; or one is the initials of the other
    is_other_form: bool = False
    # what its letters add to its logit where the mention may be short for it (`short_forms.py`); None where not
    short_form: float | None = None
    # another name of the same entity whose spelling is closer to the mention, if there is one
    closer: MatchedName | None = None

    @property
    def preliminary_score(self) -> float:
        """Sorts names before they are ranked; in [-1, 3.5]. A name of the mention's own spelling comes first."""
        dense = self.lexical if self.dense is None else self.dense
        shares = LEXICAL_SHARE * self.lexical + EDIT_SHARE * self.edit_similarity
        shares += FORM_SHARE * (self.is_other_form or (self.short_form or 0.0) > 1.0)
        return dense + shares + self.is_same_spelling


@dataclass(frozen=True, slots=True)
class ScoredEntity:
    """A candidate entity with its features and logit.

    Attributes:
        name: The best name of the entity.
        features: (len(FEATURES),).
        logit: Dot product of features and coefficients, plus the offset and what a short form adds.
        offset: What rules add to the logit (`scoring.py`): the share among namesakes, and the bonus of an exact name.
        is_namesake: Whether its best name is that of the first candidate, after folding; that one included.
        tie: Whether another entity has an equal best name, and nothing separates the two.
        document: What the parts of a document add to the logit, by name; None for a mention alone.
        decision: Of the first candidate: what each feature adds to the logit that it is right; else None.
        short_form: What the mention adds to the logit as a short form of the name.
    """

    name: MatchedName
    features: FloatArray
    logit: float
    offset: float = 0.0
    is_namesake: bool = False
    tie: bool = False
    document: Mapping[str, float] | None = None
    decision: Mapping[str, float] | None = None
    short_form: float = 0.0

    @property
    def point(self) -> NamePoint:
        """Payload of the best name."""
        return self.name.point

    @property
    def key(self) -> tuple[str, str]:
        """Base and id, which identify an entity."""
        return self.point.kb, self.point.entity_id

    def _of_short_form(self) -> dict[str, float]:
        return {SHORT_FORM: self.short_form} if self.short_form else {}

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
            language=point.language,
            dense_score=self.name.dense,
            lexical_score=self.name.lexical,
            score=self.logit,
            probability=probability,
            tie=self.tie,
            features=dict(zip(FEATURES, self.features.tolist(), strict=True)) | self._of_short_form(),
            decision=self.decision or {},
            document=self.document or {},
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
    nil_features: FloatArray
    rule: RuleName | None = None
    certainty: float = 1.0

    @property
    def logits(self) -> list[float]:
        """Logits of the entities."""
        return [entity.logit for entity in self.found]


@dataclass(frozen=True, slots=True)
class LinkQuery:
    """What to search for, for every mention of a batch."""

    limit: int  # entities per mention
    types: tuple[str, ...] = ()  # types that the caller named
    is_filter: bool = True  # whether only entities of these types are searched; otherwise the types are a feature
    is_typed: bool = True  # whether the mention's predicted type counts
    names_first: bool = False  # whether a mention that is a name has no other candidates
    has_slips: bool = False  # whether a slip that one name alone explains is settled by it (`linking.slips`)
    # only names in these languages, and those without a language, are searched; empty for all.
    languages: tuple[str, ...] = ()

    @property
    def filter(self) -> tuple[str, ...]:
        """Types that restrict the search; empty for all."""
        return self.types if self.is_filter else ()


@dataclass(frozen=True, slots=True)
class Scorer:
    """The parameters of the scoring."""

    model: RankingModel  # coefficients of the ranking
    baseline: float  # mean cosine of unrelated names with this encoder, in [0, 1)
    log_size: float  # natural logarithm of the number of names in all collections
    judge: Callable[[], NameJudge] | None = None  # gives who reads the first candidates; None: nobody does


_UNRELATED = (
    "granite/tax return/Marie Curie/violin sonata/liver enzyme/Buenos Aires/football league/blue whale/steam engine/"
    "supreme court/apple pie/quadratic equation/winter coat/desert wind/railway bridge/peace treaty"
).split("/")

_HIGHEST = 0.95  # reached only by a broken encoder, for which all names are alike


def baseline_similarity(encoder: Encoder) -> float:
    """Mean cosine of 16 unrelated names, in [0, 0.95]."""
    vectors = encoder.encode(_UNRELATED).vectors
    cosines = vectors @ vectors.T
    n = len(_UNRELATED)
    return float(np.clip((cosines.sum() - np.trace(cosines)) / (n * (n - 1)), 0.0, _HIGHEST))
