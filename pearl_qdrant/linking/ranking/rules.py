"""Rules that a dictionary has, applied before the ranking model decides; and the decision after it, a link or NIL.

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

from pearl_qdrant.linking.mentions import is_no_name, is_too_long, stands_for_nothing
from pearl_qdrant.linking.options import OnTie
from pearl_qdrant.linking.ranking.model import Calibration
from pearl_qdrant.linking.ranking.scored import MatchedName, RuleName, ScoredMention
from pearl_qdrant.linking.ranking.string_features import string_features
from pearl_qdrant.records import Candidate, Link, NilReason

BONUS = 20.0  # logits added to the entities that a rule names; far more than features give

EXACT_CERTAINTY = 0.985
"""Precision of an exact name of one entity: 98.6 % of 665 titles of 20 fuzzy-join sets (AutoFJ). Mentions in running
text are harder, since a name there may mean something that the base does not have: 90 % of the distinct mentions of
CRAFT's Sequence Ontology and BC5CDR, 97 % of its Cell Ontology (docs/experiments/everyday.md)."""

HIGHEST_THRESHOLD = EXACT_CERTAINTY - 0.005
"""The highest threshold of a calibration, so that none loses exact names. The margin is what another slope or NIL bias
can take from their probability."""

ID_CERTAINTY = 0.999  # precision of an entity id

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


def decide(  # long: each of its arguments has its line, and each outcome its own
    scored: ScoredMention,
    calibration: Calibration,
    limit: int,
    threshold: float,
    on_tie: OnTie,
    probabilities: Sequence[float] | None = None,
    *,
    has_types: bool = False,
) -> Link:
    """Turn logits into probabilities and choose the best entity or NIL.

    No other name is more certain than an exact one. Entities with the same name share the probability of that name. If
    together they reach the threshold and none of them does alone, the mention is ambiguous rather than unknown. What
    stands for nothing (`n/a`), a title or a number alone is linked only to an entity with that very name, in its
    letters and case; `NA` and the like only under types.
    `calibration.metrics` (`Samples.answers`) applies the same rule to arrays, `ranking.explain` puts it into words:
    change all three together.

    Args:
        scored: A mention with its candidates.
        calibration: Maps logits to probabilities.
        limit: Maximum number of candidates in the link.
        threshold: Minimum probability of a link.
        on_tie: What to do when nothing separates several entities.
        probabilities: Those of the candidates, which the calibration gives unless something was learned.
        has_types: Whether the caller named types.
    """
    mention = scored.mention
    if not scored.found:
        reason = NilReason.NO_NAME if is_no_name(mention) else NilReason.NO_CANDIDATES
        reason = NilReason.TOO_LONG if is_too_long(mention) else reason
        return Link(mention, None, None, None, reason)
    is_learned = probabilities is not None
    if probabilities is None:
        probabilities = calibration.probabilities(scored.logits, scored.nil_logit, certainty=scored.certainty)
        if scored.rule not in ("exact name", "entity id"):
            probabilities = [min(one, EXACT_CERTAINTY) for one in probabilities]
    candidates = tuple(e.to_candidate(p) for e, p in zip(scored.found[:limit], probabilities, strict=False))
    best = candidates[0]
    if not is_learned and _is_no_name_of(best, mention, has_types) and scored.rule != "entity id":
        return Link(mention, None, None, None, NilReason.NO_NAME, candidates, rule=scored.rule)
    has_same_name = [
        entity.tie or (entity.is_namesake and scored.found[0].is_namesake) or entity.point.name == best.name
        for entity in scored.found
    ]
    # fsum is exact, so the result does not depend on the order of tied candidates.
    of_best_name = math.fsum(p for p, is_same in zip(probabilities, has_same_name, strict=True) if is_same)
    if of_best_name < threshold:
        return Link(mention, None, None, None, NilReason.BELOW_THRESHOLD, candidates, rule=scored.rule)
    has_namesakes = sum(has_same_name) > 1
    is_undecided = {
        "canonical": best.tie or probabilities[0] < threshold,
        "null": has_namesakes or probabilities[0] < threshold,
        "first": not has_namesakes and probabilities[0] < threshold,
    }[on_tie]
    if is_undecided:
        return Link(mention, None, None, None, NilReason.AMBIGUOUS, candidates, rule=scored.rule)
    return Link(
        mention, best.entity_id, best.canonical_name, best.probability, None, candidates, best.kb, rule=scored.rule
    )


def _is_no_name_of(best: Candidate, mention: str, has_types: bool) -> bool:
    """Whether a mention is no name by itself, nor that of the best candidate in its letters and case."""
    return is_no_name(mention) and not (best.name == mention.strip() and (has_types or not stands_for_nothing(mention)))
