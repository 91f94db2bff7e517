"""What the properties of a query say of its candidates.

Each property of a query is evidence for or against each candidate, in the way of a record linker (Fellegi and Sunter):

    factor = P(the values agree so well | the candidate is right) / P(they do | it is another entity of the base)

    odds of a candidate against NIL = odds by its name * the factors of its properties

A candidate without a value for the property has the factor 1. How often another entity agrees so well is counted in
a sample of the base, so that a rare value says more than a frequent one. How often the right entity agrees cannot be
counted without labels; `RIGHT` says it (benchmarks/service/reconcile_properties.py).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pearl_qdrant.service.deadline import check_time
from pearl_qdrant.service.reconcile.properties.comparing import Level, MatchQuantifier, agreement

RIGHT: Mapping[Level, float] = {Level.EQUAL: 0.85, Level.NEAR: 0.06, Level.DIFFERENT: 0.09}
"""How well the right entity's values agree with those of a client's table, where both have one."""

OTHER: Mapping[Level, float] = {Level.EQUAL: 0.02, Level.NEAR: 0.03, Level.DIFFERENT: 0.95}
"""The same of another entity, before any is counted."""

COUNTED_AS = 50
"""`OTHER` counts as much as so many entities of the sample."""

LOWEST_CHANCE = 0.01
"""No value is taken to be rarer than this: entities of one name share values more often than others do."""

HIGHEST_FACTOR = 1000.0
"""All properties together multiply or divide the odds by at most this, since they may say the same thing twice."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A property that a query gives.

    Attributes:
        property_id: Its id.
        values: The values, at least one.
        quantifier: Which of them must agree.
        required: Whether an entity that does not agree is no candidate.
    """

    property_id: str
    values: tuple[str, ...]
    quantifier: MatchQuantifier = "any"
    required: bool = False

    def level(self, has: Sequence[str]) -> Level:
        """How well the values of an entity agree.

        Raises:
            TimedOutError: If the time of the request is over.
        """
        check_time()
        return agreement(self.values, has, self.quantifier)


def chances(condition: Condition, sample: Sequence[Sequence[str]]) -> dict[Level, float]:
    """How often an entity that is not the right one agrees so well.

    Args:
        condition: What the query gives.
        sample: The values of entities of the base that have the property.
    """
    if condition.quantifier == "none":  # a wish of the client, whatever others have
        return dict.fromkeys(OTHER, 1.0)
    counts = Counter(condition.level(has) for has in sample)
    n = len(sample) - counts[Level.MISSING]
    found = {level: (counts[level] + COUNTED_AS * OTHER[level]) / (n + COUNTED_AS) for level in OTHER}
    return {level: max(chance, LOWEST_CHANCE) for level, chance in found.items()}


def factor(level: Level, chance: Mapping[Level, float]) -> float:
    """What a property multiplies the odds of a candidate with."""
    return 1.0 if level is Level.MISSING else RIGHT[level] / chance[level]


def updated(probabilities: Sequence[float], factors: Sequence[float]) -> list[float]:
    """The probabilities after the evidence.

    Args:
        probabilities: Of the candidates by their names; what is missing to 1 is that of NIL.
        factors: The product of the factors of each; 0 for one that is no candidate any more.
    """
    nil = max(0.0, 1.0 - math.fsum(probabilities))
    bounded = [min(max(one, 1 / HIGHEST_FACTOR), HIGHEST_FACTOR) if one else 0.0 for one in factors]
    weights = [probability * one for probability, one in zip(probabilities, bounded, strict=True)]
    total = nil + math.fsum(weights)
    return [weight / total for weight in weights] if total > 0 else [0.0] * len(weights)
