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

The features are in `features.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from pearl_qdrant.linking.ranking.features import COLUMN, FEATURES, FEW_NAMES, MARGINS, NIL_FEATURES
from pearl_qdrant.settings import DEFAULT_THRESHOLD

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RankingModel:
    """The coefficients of the ranking.

    Attributes:
        features: Of the ranking, (len(FEATURES),).
        decision: Of the decision, for the first candidate, (len(FEATURES),).
        nil_features: Of the decision, for the mention, (len(NIL_FEATURES),); they speak for NIL.
    """

    features: FloatArray
    decision: FloatArray
    nil_features: FloatArray

    @classmethod
    def from_json(cls, text: str) -> RankingModel:
        """Read coefficients by name; missing ones are 0.

        Raises:
            ValueError: If a name is unknown.
        """
        loaded = json.loads(text)
        return cls.from_names(loaded["features"], loaded["decision"], loaded["nil_features"])

    @classmethod
    def from_names(
        cls, features: Mapping[str, float], decision: Mapping[str, float], nil_features: Mapping[str, float]
    ) -> RankingModel:
        """Coefficients by name; missing ones are 0.

        Raises:
            ValueError: If a name is unknown.
        """
        return cls(in_order(features, FEATURES), in_order(decision, FEATURES), in_order(nil_features, NIL_FEATURES))

    def by_name(self) -> dict[str, dict[str, float]]:
        """The coefficients by name, in the form that `from_json` reads."""
        return {
            "features": dict(zip(FEATURES, self.features.tolist(), strict=True)),
            "nil_features": dict(zip(NIL_FEATURES, self.nil_features.tolist(), strict=True)),
            "decision": dict(zip(FEATURES, self.decision.tolist(), strict=True)),
        }

    def nil_logit(
        self, logits: FloatArray, features: npt.NDArray[np.floating[Any]], nil_features: npt.NDArray[np.floating[Any]]
    ) -> float:
        """Logit of NIL of one mention.

        Args:
            logits: Of the candidates by the ranking alone, (k,).
            features: Of the candidates, (k, len(FEATURES)).
            nil_features: Of the mention, (len(NIL_FEATURES),), with the margins of these logits (`with_margins`).
        """
        of_mention = float(nil_features @ self.nil_features)
        if not len(logits):
            return of_mention  # nothing to compare with
        first = int(logits.argmax())
        total = float(logits[first]) + math.log(float(np.exp(logits - logits[first]).sum()))
        return of_mention + total - float(features[first] @ self.decision)

    def nil_logits(
        self, logits: FloatArray, features: npt.NDArray[np.floating[Any]], nil_features: npt.NDArray[np.floating[Any]]
    ) -> FloatArray:
        """The same of m mentions, (m,); `logits` and `features` are (m, k, ...), minus infinity where there is none.

        The margins of `nil_features` are computed anew from these logits.
        """
        nil_features = all_margins(nil_features, logits, features)
        rows = zip(logits, features, nil_features, strict=True)
        return np.array([self.nil_logit(row[row > -np.inf], of[row > -np.inf], nil) for row, of, nil in rows])


MOST_MARGIN = 8.0
"""Logits beyond which a margin says no more."""

_SAME_NAME = 1e-4
"""Cosines and n-gram scores this close are those of one name."""

_COMPARED = [COLUMN["dense"], COLUMN["lexical"], COLUMN["mention_coverage"]]


def with_margins(
    nil_features: npt.NDArray[np.floating[Any]], logits: FloatArray, features: npt.NDArray[np.floating[Any]]
) -> FloatArray:
    """Features of one mention with its margins: how far the first candidate of another name is behind.

    Args:
        nil_features: (len(NIL_FEATURES),); the margins are replaced.
        logits: Of the candidates by the ranking alone, (k,).
        features: Of the candidates, (k, len(FEATURES)).
    """
    found = np.array(nil_features, dtype=np.float64)
    found[MARGINS] = 0.0
    if len(logits):
        # Lists: of ten or twenty candidates they take a third of the time that arrays do.
        scores, first = logits.tolist(), int(logits.argmax())
        rows = features[:, _COMPARED].tolist()
        dense, lexical, coverage = rows[first]
        # Without another name, one that has nothing in common with the mention stands for it.
        second, of_second = -math.inf, 0.0
        for score, (d, x, c) in zip(scores, rows, strict=True):
            if score > second and (abs(d - dense) > _SAME_NAME or abs(x - lexical) > _SAME_NAME):
                second, of_second = score, c
        margin = scores[first] - (second if second > -math.inf else 0.0)
        found[MARGINS] = min(max(margin, 0.0), MOST_MARGIN) / MOST_MARGIN, coverage - of_second
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
