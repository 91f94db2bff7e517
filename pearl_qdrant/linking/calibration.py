"""From scores to probabilities: a softmax over the candidate entities and one NIL logit.

    logit_i = slope * score_i + intercept,   logit_NIL = 0
    probability_i = exp(logit_i) / (1 + sum_j exp(logit_j))

The probabilities of a mention's candidates and of NIL sum to 1. A calibration belongs to a model: its cosines are
its own. The shipped model carries a fitted one in its checkpoint (`pearl.json`); other models get `DEFAULT`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Calibration:
    """The two coefficients.

    Attributes:
        slope: Logits a unit of score; > 0.
        intercept: Logit of a candidate with score 0, against NIL.
    """

    slope: float
    intercept: float

    def probabilities(self, scores: Sequence[float]) -> list[float]:
        """Probability of each candidate, in the order of `scores`; 1 minus their sum is that of NIL."""
        logits = [self.slope * score + self.intercept for score in scores]
        highest = max([0.0, *logits])
        weights = [math.exp(logit - highest) for logit in logits]
        total = math.exp(-highest) + math.fsum(weights)
        return [weight / total for weight in weights]


DEFAULT = Calibration(slope=20.0, intercept=-14.0)
"""For a model without a fitted calibration: even odds against NIL at a cosine of 0.7, where sentence encoders of
the MiniLM family have about as many right as wrong nearest names."""
