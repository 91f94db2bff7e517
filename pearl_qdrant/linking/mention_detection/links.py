"""Links of the strings of a text: entities of one name, and which of two forms of a name is linked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.mention_detection.abbreviations import LEAST_LIKELY, Forms
from pearl_qdrant.linking.options import OnTie
from pearl_qdrant.linking.outcomes import as_nil, linked_to
from pearl_qdrant.records import Candidate, Link, NilReason

Choose = Callable[[Sequence[Candidate]], Candidate | None]  # chooses one of several tied candidates, or None


def namesakes(link: Link) -> list[Candidate]:
    """The candidates that are tied, or have the name of the best one up to case and punctuation; empty for one."""
    if link.nil_reason is NilReason.AMBIGUOUS:
        return [c for c in link.candidates if c.tie]
    if link.entity_id is None or len(link.candidates) < 2:
        return []
    best, *others = link.candidates
    lowered = best.name.casefold()
    # C++ is not C. Folding names takes time, and most links of a passage are not by a rule.
    folded = fold_name(best.name) if lowered != link.mention.casefold() and link.rule is not None else ""
    same = [c for c in others if c.tie or c.name.casefold() == lowered or (folded and fold_name(c.name) == folded)]
    return [best, *same] if same else []


def break_by_case(link: Link, allowed: Callable[[Candidate], bool]) -> Link | None:
    """The link to an entity that letter case allows: one spelled like the mention, else the first allowed one; None if
    none of the entities with the best name is allowed.
    """
    same = namesakes(link)
    possible = [c for c in same or link.candidates[:1] if allowed(c)]
    if not possible or not same:
        return link if possible else None
    same_case = [c for c in possible if c.name == link.mention]
    chosen = same_case if len(same_case) == 1 and link.entity_id is None else possible
    is_decided = len(chosen) == len(same) or any((c.kb, c.entity_id) == (link.kb, link.entity_id) for c in chosen)
    if is_decided or (len(chosen) > 1 and link.entity_id is None):
        return link
    return replace(linked_to(link, chosen[0]), probability=min(1.0, sum(c.probability or 0.0 for c in same)))


def decide_namesakes(link: Link, *, threshold: float, on_tie: OnTie, choose: Choose | None = None) -> Link:
    """A link made without a threshold as `on_tie` wants it where several entities have the name; any other unchanged.
    `choose` chooses one of the entities before `on_tie` counts, or None.
    """
    same = namesakes(link)
    if not same:
        return link
    if choose is not None and (chosen := choose(same)) is not None:
        return linked_to(link, chosen)
    if on_tie == "first":
        return link if link.entity_id is not None else linked_to(link, min(same, key=lambda c: (c.kb, c.entity_id)))
    if on_tie == "canonical" and (link.probability or 0.0) >= threshold:
        return link
    return as_nil(link, NilReason.AMBIGUOUS)


def probability_of(link: Link) -> float:
    """Probability that the entity, or one of those with its name, is right; 0 without candidates."""
    same = namesakes(link)
    return min(1.0, math.fsum(c.probability or 0.0 for c in same)) if same else link.probability or 0.0


def is_name(link: Link) -> bool:
    """Whether the linked string is, folded, the name of the best candidate, or was learned as one."""
    if not link.candidates:
        return False
    best, mention = link.candidates[0], link.mention
    if any(one.entity_id == best.entity_id and one.as_written for one in link.learned):
        return True
    return best.name == mention or (fold_name(best.name) == fold_name(mention) != "")


def is_by_short_form(forms: Forms, long: Link, short: Link, threshold: float) -> bool:
    """Whether a short form is linked as written: it is a name of the base, and its long form would not be linked, and
    is not unlike it where the short form has a few letters.
    """
    if not is_name(short) or is_name(long) or probability_of(long) >= threshold:
        return False
    same = {(c.kb, c.entity_id) for c in namesakes(short) or short.candidates[:1]}
    likely = [c.probability or 0.0 for c in long.candidates if (c.kb, c.entity_id) in same]
    return not forms.is_ambiguous or max(likely, default=0.0) >= LEAST_LIKELY


def with_long_form(short: Link, long: Link) -> Link:
    """The link of a short form to that of several entities of this name which is nearest to the long form."""
    same, near = {(c.kb, c.entity_id): c for c in namesakes(short)}, ((c.kb, c.entity_id) for c in long.candidates)
    if (first := next((key for key in near if key in same), None)) is None:
        return short
    chosen = replace(same[first], probability=probability_of(short), tie=False)
    others = (c for c in short.candidates if (c.kb, c.entity_id) not in same)
    return replace(linked_to(short, chosen), candidates=(chosen, *others))
