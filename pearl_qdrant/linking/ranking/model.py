"""From features to probabilities: a linear score for each candidate entity, one for NIL, and a softmax over them.

    logit_i     = sum over features of coefficient * value_i
    logit_NIL   = sum over NIL features of coefficient * value
    p_i         = exp(slope * logit_i) / (sum_j exp(slope * logit_j) + exp(slope * logit_NIL + nil_bias))

The coefficients are data (`ranking.json`), made by `runs/linking_model.py`, which says on what; a coefficient is 0 or
has the sign that its feature's meaning asks for. Slope and bias are 1 and 0 until `pearl-qdrant calibrate` fits them to
a collection.

Features of a candidate, all of its best name:
    dense               cosine of the vectors, less what unrelated names have with this encoder: (c - u) / (1 - u)
    dense_squared       its square if it is positive: between close names a step counts for more
    lexical             cosine of idf-weighted n-grams
    some_lexical        the same up to 0.5: between names that share most n-grams ("increased size", "decreased size") a
                        step counts for less
    mention_coverage    share of the mention's n-grams that the name has, by idf; name_coverage the reverse
    equal_core          same but for brackets, blanks, case, accents, punctuation
    missing_numbers     the mention has a number that the name has not; extra_numbers the reverse
    equal_numbers       both have the same numbers, at least one
    acronym             one is an acronym of the other, or holds it
    first_word          the same first word
    type_agreement      what the head says of the mention's type against the base's: 0 or less (`type_agreement.py`)
    wanted_type         of a type that the caller asked for in soft mode

Features of NIL:
    bias                1
    background_dense    mean of `dense` over the candidates ranked 6 to 10: how crowded the base is around the mention
    background_lexical  the same of `lexical`
    length              letters and digits of the mention, up to 30, over 30
    log_size            natural logarithm of the names in the collections, over 10
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

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
    "type_agreement",
    "wanted_type",
)

NEGATIVE = frozenset(("missing_numbers", "extra_numbers"))
"""Features that speak against a candidate; all others speak for it."""

UNFITTED = frozenset(("wanted_type",))
"""How much a caller's wish weighs: no data tells."""

NIL_FEATURES = ("bias", "background_dense", "background_lexical", "length", "log_size")

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RankingModel:
    """Coefficients.

    Attributes:
        features: (len(FEATURES),).
        nil_features: (len(NIL_FEATURES),).
    """

    features: FloatArray
    nil_features: FloatArray

    @classmethod
    def from_json(cls, text: str) -> RankingModel:
        """Read coefficients by name; one that is not named is 0.

        Raises:
            ValueError: If a name is unknown.
        """
        loaded = json.loads(text)
        return cls.from_names(loaded["features"], loaded["nil_features"])

    @classmethod
    def from_names(cls, features: Mapping[str, float], nil_features: Mapping[str, float]) -> RankingModel:
        """Coefficients by name; one that is not named is 0.

        Raises:
            ValueError: If a name is unknown.
        """
        return cls(_in_order(features, FEATURES), _in_order(nil_features, NIL_FEATURES))

    def by_name(self) -> tuple[dict[str, float], dict[str, float]]:
        """The coefficients of candidates and of NIL, as `from_json` reads them."""
        return (
            dict(zip(FEATURES, self.features.tolist(), strict=True)),
            dict(zip(NIL_FEATURES, self.nil_features.tolist(), strict=True)),
        )

    def without(self, feature: str) -> RankingModel:
        """With one coefficient 0, for an ablation."""
        keep = np.array([name != feature for name in FEATURES], dtype=np.float64)
        return RankingModel(self.features * keep, self.nil_features)


def _in_order(coefficients: Mapping[str, float], names: Sequence[str]) -> FloatArray:
    if unknown := set(coefficients) - set(names):
        raise ValueError(f"unknown feature {min(unknown)!r}; there are: {', '.join(names)}")
    return np.array([float(coefficients.get(name, 0.0)) for name in names])


@lru_cache(maxsize=1)
def shipped_model() -> RankingModel:
    """The coefficients that come with this package."""
    return RankingModel.from_json(files(__package__).joinpath("ranking.json").read_text("utf-8"))


@dataclass(frozen=True, slots=True)
class Calibration:
    """How logits become probabilities in one collection.

    Attributes:
        slope: Times every logit; > 0.
        nil_bias: Added to that of NIL.
        threshold: Probability under which a mention is NIL, in [0, 1].
    """

    slope: float = 1.0
    nil_bias: float = 0.0
    threshold: float = 0.5

    def __post_init__(self) -> None:
        if not (0.0 < self.slope < math.inf and math.isfinite(self.nil_bias) and 0.0 <= self.threshold <= 1.0):
            raise ValueError(f"slope is positive, threshold a probability, both and the bias finite, not {self}")

    def probabilities(self, logits: Sequence[float], nil_logit: float) -> list[float]:
        """Probability of each candidate; 1 minus their sum is that of NIL."""
        scaled = [self.slope * logit for logit in logits]
        nil = self.slope * nil_logit + self.nil_bias
        highest = max([nil, *scaled])
        weights = [math.exp(logit - highest) for logit in scaled]
        total = math.exp(nil - highest) + math.fsum(weights)
        return [weight / total for weight in weights]
