"""The decision: from scored candidates to a link, which is the best entity or NIL with a reason."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pearl_qdrant.linking.mentions import is_no_name, is_too_long, stands_for_nothing
from pearl_qdrant.linking.options import OnTie
from pearl_qdrant.linking.ranking.model import Calibration
from pearl_qdrant.linking.ranking.rules import EXACT_CERTAINTY
from pearl_qdrant.linking.ranking.scored import ScoredMention
from pearl_qdrant.records import Candidate, Link, NilReason


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
    `calibration.held_out` (`Samples.answers`) applies the same rule to arrays, `ranking.explain` puts it into words:
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
