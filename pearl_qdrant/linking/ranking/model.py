"""From features to probabilities: a linear score for each candidate entity, and a decision about the first.

    logit_i     = sum over features of coefficient * value_i                                            the ranking
    d           = sum over features of the first candidate of decision coefficient * value
                  - sum over NIL features of coefficient * value                                        the decision
    logit_NIL   = log(sum_j exp(logit_j)) - d, so that 1 - p_NIL is the logistic function of d
    p_i         = exp(slope * logit_i) / (sum_j exp(slope * logit_j) + exp(slope * logit_NIL + nil_bias))

Ranking and decision have coefficients of their own: which of two names is nearer is another question than whether the
nearer one is near enough.

Rules go before the model where the mention is a name of the base itself, or an id (`rules.py`).
The coefficients are in `ranking.json`. `runs/linking_model.py` fits them and documents the data. A coefficient has the
sign that its feature's meaning requires, or is 0. Slope and bias are 1 and 0 until `pearl-qdrant calibrate` fits them
to a collection.

Features of a candidate, computed from its best name:
    dense               cosine c of the vectors above the cosine u of unrelated names: (c - u) / (1 - u)
    dense_squared       the square of `dense` if positive: among close names, a difference counts for more
    lexical             cosine of IDF-weighted n-grams
    some_lexical        the same up to 0.5: names that share most n-grams can still differ in meaning ("increased size",
                        "decreased size"), so a difference above 0.5 counts for less
    mention_coverage    IDF-weighted share of the mention's n-grams that the name has; name_coverage: the reverse
    equal_core          equal except for brackets, spaces, case, accents, punctuation
    missing_numbers     the mention has a number that the name does not have; extra_numbers: the reverse
    equal_numbers       both have the same numbers, at least one
    acronym             one is an acronym of the other, or contains it
    first_word          the same first word
    one_edit            the spelling keys are one edit apart, long enough for a slip, and no code differs
    slip_gap            if they are one or two edits apart: 1 - `dense`, since a slip changes the vector
    slip_length         if they are one edit apart: letters and digits of the mention, as `length`
    sorted_similarity   what sorting the words adds to the edit similarity, where all words have a counterpart
    edit_margin         how much nearer the name is, by edits, than that of any other entity, where all words have a
                        counterpart and no code differs
    short_edit          the spelling keys have three or four letters, and are one edit apart
    unknown_slip        one or two edits apart as above, and the base does not have the word as the mention has it
    unknown_gap         if so: 1 - `dense`; tokens of a word that nobody writes give a vector that means little
    swap                one edit apart, by two letters in another order
    replaced_words      share of equal words where both sides have another word too: "left lung", "right lung"
    any_replaced        both sides have a word without a counterpart
    replaced_known      if so: the frequency in the base of the mention's most frequent such word, in [0, 1]
    replaced_rare       if so: the rarity in English of the mention's rarest such word, in [0, 1]
    only_added          only the mention has such words
    added_known         if so: the frequency in the base of the most frequent one, in [0, 1]
    added_rare          if so: the rarity in English of the rarest one
    added_plain         if so: (1 - `added_known`) (1 - `added_rare`), words of any text and not of the base
    only_missing        only the name has such words
    missing_rare        if so: the rarity in English of the rarest one
    canonical           the name is the canonical one
    type_agreement      predicted type of the mention against the types of the base: 0 or less (`type_agreement.py`)
    wanted_type         has a type that the caller named in soft mode

Features of NIL:
    bias                1
    rarity              the rarity in English of the rarest word of the mention, in [0, 1]
    background_dense    mean of `dense` over the candidates ranked 6 to 10: how crowded the base is around the mention
    background_lexical  mean of `lexical` over the same candidates
    length              letters and digits of the mention, up to 30, divided by 30
    log_size            natural logarithm of the number of names in the collections, divided by 10
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from pearl_qdrant.settings import DEFAULT_THRESHOLD

FEATURES = (
    "dense",
    "dense_squared",
    "lexical",
    "some_lexical",
    "mention_coverage",
    "name_coverage",
    "equal_core",
    "missing_numbers",
    "extra_numbers",
    "equal_numbers",
    "acronym",
    "first_word",
    "one_edit",
    "slip_gap",
    "slip_length",
    "sorted_similarity",
    "edit_margin",
    "short_edit",
    "unknown_slip",
    "unknown_gap",
    "swap",
    "replaced_words",
    "any_replaced",
    "replaced_known",
    "replaced_rare",
    "only_added",
    "added_known",
    "added_rare",
    "added_plain",
    "only_missing",
    "missing_rare",
    "canonical",
    "type_agreement",
    "wanted_type",
)

NEGATIVE = frozenset(
    (
        "missing_numbers",
        "extra_numbers",
        "replaced_words",
        "any_replaced",
        "replaced_known",
        "added_known",
        "added_rare",
    )
)
"""Features that lower a candidate's score; all others, except `UNSIGNED`, raise it."""

UNSIGNED = frozenset(("slip_length", "replaced_rare", "only_added", "only_missing", "missing_rare"))
"""Features that may raise or lower a candidate's score."""

UNFITTED = frozenset(("wanted_type",))
"""Features without training data: their coefficients were set by hand."""

NIL_FEATURES = ("bias", "rarity", "background_dense", "background_lexical", "length", "log_size")

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RankingModel:
    """The coefficients of the ranking.

    Attributes:
        features: Of the ranking, (len(FEATURES),).
        decision: Of the decision, for the first candidate, (len(FEATURES),). None: the logit of NIL is that of the NIL
            features alone, as in calibrations that older versions stored.
        nil_features: Of the decision, for the mention, (len(NIL_FEATURES),); they speak for NIL.
    """

    features: FloatArray
    decision: FloatArray | None
    nil_features: FloatArray

    @classmethod
    def from_json(cls, text: str) -> RankingModel:
        """Read coefficients by name; missing ones are 0.

        Raises:
            ValueError: If a name is unknown.
        """
        loaded = json.loads(text)
        return cls.from_names(loaded["features"], loaded.get("decision"), loaded["nil_features"])

    @classmethod
    def from_names(
        cls, features: Mapping[str, float], decision: Mapping[str, float] | None, nil_features: Mapping[str, float]
    ) -> RankingModel:
        """Coefficients by name; missing ones are 0.

        Raises:
            ValueError: If a name is unknown.
        """
        of_decision = None if decision is None else in_order(decision, FEATURES)
        return cls(in_order(features, FEATURES), of_decision, in_order(nil_features, NIL_FEATURES))

    def by_name(self) -> dict[str, dict[str, float]]:
        """The coefficients by name, in the form that `from_json` reads; without `decision` where there is none."""
        found = {
            "features": dict(zip(FEATURES, self.features.tolist(), strict=True)),
            "nil_features": dict(zip(NIL_FEATURES, self.nil_features.tolist(), strict=True)),
        }
        if self.decision is not None:
            found["decision"] = dict(zip(FEATURES, self.decision.tolist(), strict=True))
        return found

    def nil_logit(
        self, logits: FloatArray, features: npt.NDArray[np.floating[Any]], nil_features: npt.NDArray[np.floating[Any]]
    ) -> float:
        """Logit of NIL of one mention.

        Args:
            logits: Of the candidates by the ranking alone, (k,).
            features: Of the candidates, (k, len(FEATURES)).
            nil_features: Of the mention, (len(NIL_FEATURES),).
        """
        of_mention = float(nil_features @ self.nil_features)
        if self.decision is None or not len(logits):
            return of_mention  # nothing to compare with
        first = int(logits.argmax())
        total = float(logits[first]) + math.log(float(np.exp(logits - logits[first]).sum()))
        return of_mention + total - float(features[first] @ self.decision)

    def nil_logits(
        self, logits: FloatArray, features: npt.NDArray[np.floating[Any]], nil_features: npt.NDArray[np.floating[Any]]
    ) -> FloatArray:
        """The same of m mentions, (m,); `logits` and `features` are (m, k, ...), minus infinity where there is none."""
        rows = zip(logits, features, nil_features, strict=True)
        return np.array([self.nil_logit(row[row > -np.inf], of[row > -np.inf], nil) for row, of, nil in rows])

    def without(self, feature: str) -> RankingModel:
        """A copy with one coefficient set to 0, for an ablation."""
        keep = np.array([name != feature for name in FEATURES], dtype=np.float64)
        decision = None if self.decision is None else self.decision * keep
        return RankingModel(self.features * keep, decision, self.nil_features)


def in_order(coefficients: Mapping[str, float], names: Sequence[str]) -> FloatArray:
    """Coefficients in the order of these names; missing ones are 0.

    Raises:
        ValueError: If a name is unknown.
    """
    if unknown := set(coefficients) - set(names):
        raise ValueError(f"unknown feature {min(unknown)!r}; there are: {', '.join(names)}")
    return np.array([float(coefficients.get(name, 0.0)) for name in names])


@lru_cache(maxsize=1)
def shipped_model() -> RankingModel:
    """The coefficients that come with this package."""
    return RankingModel.from_json(files(__package__).joinpath("ranking.json").read_text("utf-8"))


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
