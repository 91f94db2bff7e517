"""From scored candidates to a link: the best entity, or NIL with its reason."""

from __future__ import annotations

import math
from typing import Literal

from pearl_qdrant.linking.mentions import is_too_long
from pearl_qdrant.linking.ranking.model import Calibration
from pearl_qdrant.linking.ranking.scoring import ScoredMention
from pearl_qdrant.records import Link, NilReason

OnTie = Literal["null", "first"]


def decide(scored: ScoredMention, calibration: Calibration, limit: int, threshold: float, on_tie: OnTie) -> Link:
    """Give the candidates their probabilities, and take the best or NIL.

    Namesakes share what the name deserves: none of them may reach the threshold where together they do, and then the
    mention is not unknown but ambiguous.
    """
    mention = scored.mention
    if not scored.found:
        reason = NilReason.TOO_LONG if is_too_long(mention) else NilReason.NO_CANDIDATES
        return Link(mention, None, None, None, reason)
    probabilities = calibration.probabilities(scored.logits, scored.nil_logit)
    candidates = tuple(e.to_candidate(p) for e, p in zip(scored.found[:limit], probabilities, strict=False))
    best = candidates[0]
    every = list(zip(scored.found, probabilities, strict=True))
    namesakes = math.fsum(p for entity, p in every if entity.tie or entity.point.name == best.name)
    if namesakes < threshold:
        return Link(mention, None, None, None, NilReason.BELOW_THRESHOLD, candidates)
    if (best.tie and on_tie == "null") or (not best.tie and probabilities[0] < threshold):
        return Link(mention, None, None, None, NilReason.AMBIGUOUS, candidates)
    return Link(mention, best.entity_id, best.canonical_name, best.probability, None, candidates, best.kb)
