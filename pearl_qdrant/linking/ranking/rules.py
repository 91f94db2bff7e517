"""Rules that a dictionary has, applied before the ranking model decides.

    entity id        the mention is an id of the base
    exact name       the mention has the spelling key of a name (`lexical.keys`): equal but for case, accents, spaces.
                     Names that are equal but for case go first (`C++`, not `C`), then those with equal words
    namesakes        several entities have that name: the popularity of each decides, where the base has it and it
                     differs; otherwise the canonical name goes before an alias; the letter case of the mention
                     counts in both; otherwise nothing separates them. So it is with names that are the mention but
                     for what they have in brackets, where none is the mention itself

Rules do not change features or coefficients. An entity that a rule names gets `BONUS` added to its logit, and the
softmax over the candidates is multiplied by the precision of the rule (`ScoredMention.certainty`), so that 1 minus the
sum of all probabilities is still the probability of NIL.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pearl_qdrant.linking.ranking.scored import MatchedName, RuleName
from pearl_qdrant.linking.ranking.string_features import string_features

BONUS = 20.0
"""Logits added to the entities that a rule names; far more than features give."""

EXACT_CERTAINTY = 0.985
"""Precision of an exact name of one entity: 98.6 % of 665 titles of 20 fuzzy-join sets (AutoFJ). Mentions in running
text are harder, since a name there may mean something that the base does not have: 90 % of the distinct mentions of
CRAFT's Sequence Ontology and BC5CDR, 97 % of its Cell Ontology (docs/experiments/everyday.md)."""

HIGHEST_THRESHOLD = EXACT_CERTAINTY - 0.005
"""The highest threshold of a calibration, so that none loses exact names. The margin is what another slope or NIL bias
can take from their probability."""

ID_CERTAINTY = 0.999
"""Precision of an entity id."""

CANONICAL_SHARE = 0.8
"""Share of the entity whose canonical name it is, where others have it as an alias: 72 % right in news (AIDA) among
mentions whose entity has the name, 10 of 10 in CRAFT."""

POPULARITY_WEIGHT, CANONICAL_WEIGHT = 1.05, 0.33
"""Logits for log(1 + popularity) and for a canonical name, fitted to namesakes in the training part of AIDA: 84 % right
in its development part, 85 % by popularity alone, 72 % by the canonical name alone."""


CASE_WEIGHT = 1.5
"""Logits for a name that is written in the mention's letter case: `turkey`, `Turkey`. Set by hand; a mention in small
letters alone may be either."""


def own_names(names: Sequence[MatchedName], mention: str, folded: str) -> list[int]:
    """Rows of the names that are the mention itself: equal but for case if there are such, else with equal words.

    Args:
        names: The best name of each entity.
    """
    same = [i for i, name in enumerate(names) if name.is_same_spelling]
    if len(same) < 2:
        return same
    lowered = mention.casefold()
    return (
        [i for i in same if names[i].point.name.casefold() == lowered]
        or [i for i in same if names[i].folded == folded]
        or same
    )


def of_one_core(names: Sequence[MatchedName], best: int, folded: str) -> list[int]:
    """Rows of the names that are the mention with something in brackets, if the best one is: `Kerkplein (Aarschot)`.

    Args:
        folded: The folded mention.
    """

    def is_one(name: MatchedName) -> bool:
        return "(" in name.point.name and string_features(name.point.name, name.folded).core == folded

    return [i for i, name in enumerate(names) if is_one(name)] if is_one(names[best]) else []


def namesakes(names: Sequence[MatchedName], best: int) -> list[int]:
    """Rows of the names that equal the best one after folding."""
    folded = names[best].folded
    if folded is None or not folded:
        return [i for i, name in enumerate(names) if name.point.name == names[best].point.name]
    return [i for i, name in enumerate(names) if name.folded == folded]


def shares(names: Sequence[MatchedName], mention: str) -> tuple[list[float], RuleName]:
    """How the entities of one name share its probability; the shares sum to 1.

    Args:
        names: The names of at least two entities, equal after folding.
    """
    popularity = [name.point.popularity for name in names]
    canonical = [name.point.is_canonical for name in names]
    known = [value for value in popularity if value is not None]
    n_canonical = sum(canonical)
    rule: RuleName = "namesakes"
    if len(known) == len(names) and len(set(known)) > 1:
        logits = [POPULARITY_WEIGHT * math.log1p(value) for value in known]
        logits = [logit + CANONICAL_WEIGHT * one for logit, one in zip(logits, canonical, strict=True)]
        rule = "popularity"
    elif 0 < n_canonical < len(names):
        of_canonical, of_alias = CANONICAL_SHARE / n_canonical, (1 - CANONICAL_SHARE) / (len(names) - n_canonical)
        logits = [math.log(of_canonical if one else of_alias) for one in canonical]
        rule = "canonical name" if n_canonical == 1 else rule
    else:
        logits = [0.0] * len(names)
    logits = [logit + CASE_WEIGHT * (name.point.name == mention) for logit, name in zip(logits, names, strict=True)]
    odds = [math.exp(logit - max(logits)) for logit in logits]
    return [one / math.fsum(odds) for one in odds], rule
