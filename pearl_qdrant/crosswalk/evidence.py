"""What the links of an entity's names say of the entities of the other base.

Each name of the entity is linked. For each entity of the other base that is a candidate:

    best        the highest probability that a name gives it
    mean        the mean over the names; 0 for a name that does not find it
    canonical   the probability that the canonical name gives it
    agreeing    log(1 + names that give it at least `AGREES`)
    margin      its mean above that of the next entity
    lone        1 for an entity with a single name

A logistic model adds them up. Its coefficients are set by hand: those that `runs/resolution/crosswalk.py` fits to
entities whose canonical names are hidden count names that agree against a match (docs/experiments/resolution.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pearl_qdrant.lexical.keys import spelling_key
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.records import Candidate, Entity, Link

FEATURES = ("best", "mean", "canonical", "agreeing", "margin", "lone")

WEIGHTS = {"best": 4.0, "mean": 2.0, "canonical": 0.5, "agreeing": 1.0, "margin": 1.5, "lone": 0.5}
BIAS = -4.0

AGREES = 0.9
"""Probability from which a name agrees."""

MOST_NAMES = 30
"""Names of an entity that are linked; more say the same again."""

_NO_TYPE = "OTHER"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for an entity of the other base.

    Attributes:
        candidate: The entity, as the name that fits best found it.
        name: That name.
        features: In the order of `FEATURES`.
        probability: In [0, 1].
        is_exact: Whether a name is that of the other entity, up to case, accents and spaces.
    """

    candidate: Candidate
    name: str
    features: tuple[float, ...]
    probability: float
    is_exact: bool


def names_to_link(entity: Entity) -> list[str]:
    """The names of an entity that are linked, the canonical one first, equal spellings once."""
    first: dict[str, str] = {}
    for name in entity.names():
        first.setdefault(spelling_key(fold_name(name)) or name, name)
    return list(first.values())[:MOST_NAMES]


def evidence_of(entity: Entity, links: Sequence[Link]) -> list[Evidence]:
    """The entities of the other base that the names of an entity find, the most probable first.

    Entities whose coarse types have nothing in common with the entity's are left out.

    Args:
        entity: The entity.
        links: Of `names_to_link(entity)`, in order.
    """
    found: dict[tuple[str, str], list[tuple[float, Candidate, Link]]] = {}
    for link in links:
        for candidate in link.candidates:
            if _types_agree(entity.types, candidate.types):
                key = (candidate.kb, candidate.entity_id)
                found.setdefault(key, []).append((candidate.probability or 0.0, candidate, link))
    means = {key: sum(one[0] for one in given) / len(links) for key, given in found.items()}
    evidence = []
    for key, given in found.items():
        others = max((mean for other, mean in means.items() if other != key), default=0.0)
        best, candidate, link = max(given, key=lambda one: one[0])
        features = (
            best,
            means[key],
            next((p for p, _, of_name in given if of_name is links[0]), 0.0),
            math.log1p(sum(p >= AGREES for p, _, _ in given)),
            means[key] - others,
            float(len(links) == 1),
        )
        is_exact = any(_same(of_name.mention, one.name) for _, one, of_name in given)
        evidence.append(Evidence(candidate, link.mention, features, probability_of(features), is_exact))
    return sorted(evidence, key=lambda one: (-one.probability, one.candidate.kb, one.candidate.entity_id))


def probability_of(features: Sequence[float]) -> float:
    """The probability that two entities are the same."""
    logit = BIAS + math.fsum(WEIGHTS[name] * value for name, value in zip(FEATURES, features, strict=True))
    return 1 / (1 + math.exp(-logit))


def _same(one: str, other: str) -> bool:
    key = spelling_key(fold_name(one))
    return bool(key) and key == spelling_key(fold_name(other))


def _types_agree(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    one, other = set(ours) - {_NO_TYPE}, set(theirs) - {_NO_TYPE}
    return not one or not other or not one.isdisjoint(other)
