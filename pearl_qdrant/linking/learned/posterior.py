"""From counts to probabilities: what was learned of a name goes before what the model says of it.

    p(e | name) = (n(name, e) + K * p_model(e)) / (n(name) + K),   and the same for NIL

The model's probabilities, NIL included, are the prior of a Dirichlet distribution, and worth K observations. It is
applied twice: counts of other forms of the name give the prior for the counts of the very same string.

A rejection is one observation of "not this entity". It adds 1 to n(name), and its share goes to the other outcomes that
were never rejected for this name, in proportion to the prior; to NIL if there is none. "No entity" in one of several
collections is an observation of "none of this base" likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pearl_qdrant.linking.learned.counts import Seen

PRIOR_WEIGHT = 0.5
"""K: observations that the model's probabilities are worth."""

Outcome = tuple[str, str] | None
"""What a mention may mean: base and id of an entity, or None for NIL."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Something seen several times.

    Attributes:
        count: How often.
        outcome: What the mention meant, if `excludes` is None.
        excludes: Which outcomes it did not mean; None if it is known what it meant.
    """

    count: int
    outcome: Outcome = None
    excludes: Callable[[Outcome], bool] | None = None


def observations(seen: Seen, kb: str, *, is_only_base: bool, counts: Callable[[str], bool]) -> list[Observation]:
    """The observations that counts of a name are.

    Args:
        seen: The counts.
        kb: The base that they are of.
        is_only_base: Whether no other base is searched: then a mention without an entity there is NIL.
        counts: Returns whether an entity counts: it exists, and passes the type filter.
    """
    found = []
    for entity_id, n in seen.links.items():
        if entity_id is not None:
            if counts(entity_id):
                found.append(Observation(n, (kb, entity_id)))
        elif is_only_base:
            found.append(Observation(n))
        else:
            found.append(Observation(n, excludes=lambda outcome: outcome is not None and outcome[0] == kb))
    rejected = frozenset((kb, entity_id) for entity_id in seen.rejections if counts(entity_id))
    if rejected:
        n = sum(seen.rejections[entity_id] for _, entity_id in rejected)
        found.append(Observation(n, excludes=rejected.__contains__))
    return found


def posterior(prior: Mapping[Outcome, float], seen: Iterable[Observation]) -> dict[Outcome, float]:
    """Probabilities of all outcomes after observations; the module has the formula.

    Args:
        prior: Probabilities of the outcomes, NIL among them; they sum to 1. Observed entities must be among them.
        seen: The observations.
    """
    mass = dict.fromkeys(prior, 0.0)
    total = 0
    for one in seen:
        total += one.count
        if one.excludes is None:
            mass[one.outcome] += one.count
            continue
        others = {outcome: p for outcome, p in prior.items() if not one.excludes(outcome)}
        of_others = sum(others.values())
        if of_others <= 0.0:
            others, of_others = {None: 1.0}, 1.0
        for outcome, p in others.items():
            mass[outcome] += one.count * p / of_others
    return {outcome: (mass[outcome] + PRIOR_WEIGHT * p) / (total + PRIOR_WEIGHT) for outcome, p in prior.items()}
