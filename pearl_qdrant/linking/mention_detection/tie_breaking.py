"""Decides between entities with the same name, by what the passage shows.

Two things separate tied candidates: letter case, where the base spells only one of them that way (`turkey` the bird,
`Turkey` the country), and a context that the caller gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.options import OnTie
from pearl_qdrant.records import Candidate, Link, NilReason

Choose = Callable[[Sequence[Candidate]], Candidate | None]
"""Chooses one of several tied candidates, or None."""


def first_by_id(candidates: Sequence[Candidate]) -> Candidate:
    """The first by base and id, for `on_tie="first"`."""
    return min(candidates, key=lambda c: (c.kb, c.entity_id))


class ContextChooser:
    """Chooses the candidate whose description and types are closest to a context.

    Args:
        context: Any text: the passage itself, its title, a topic.
        encoder: Encodes the context, once, and the descriptions.
    """

    def __init__(self, context: str, encoder: Encoder) -> None:
        self._encoder = encoder
        encoded = encoder.encode([context.encode("utf-8", "replace").decode()])  # a shell may pass invalid bytes
        self._vector = encoded.vectors[0] if encoded.encodable[0] else None

    def __call__(self, candidates: Sequence[Candidate]) -> Candidate | None:
        """The closest candidate; None if the context has no vector, or several candidates are equally close."""
        if self._vector is None:
            return None
        cosines = self._encoder.encode([_description(c) for c in candidates]).vectors @ self._vector
        order = cosines.argsort()[::-1]
        if cosines[order[0]] - cosines[order[1]] <= _EQUAL:
            return None
        return candidates[int(order[0])]


_EQUAL = 1e-6  # two cosines of the same text differ by rounding


def _description(candidate: Candidate) -> str:
    """Description and types of an entity as one phrase; the name is the same for all tied entities and is omitted."""
    types = ", ".join(candidate.kb_types or candidate.types)
    return f"{candidate.description}, {types}" if candidate.description else f"{candidate.canonical_name}, {types}"


def namesakes(link: Link) -> list[Candidate]:
    """The candidates that are tied, or have the name of the best one up to case and punctuation; empty for one."""
    if link.nil_reason is NilReason.AMBIGUOUS:
        return [c for c in link.candidates if c.tie]
    if link.entity_id is None or len(link.candidates) < 2:
        return []
    best, *others = link.candidates
    if best.name.casefold() == link.mention.casefold():
        folded = ""  # C++ is not C
    else:
        # Folding names takes time, and most links of a passage are not by a rule.
        folded = fold_name(best.name) if link.rule is not None else ""
    lowered = best.name.casefold()
    same = [c for c in others if c.tie or c.name.casefold() == lowered or (folded and fold_name(c.name) == folded)]
    return [best, *same] if same else []


def break_by_case(link: Link, allowed: Callable[[Candidate], bool]) -> Link | None:
    """The link to an entity that letter case allows: one spelled like the mention, else the first allowed one. Returns
    None if none of the entities with the best name is allowed.

    Args:
        allowed: Whether the mention can be a candidate's name, as it is written.
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
    return replace(_linked_to(link, chosen[0]), probability=min(1.0, sum(c.probability or 0.0 for c in same)))


def decide_namesakes(link: Link, *, threshold: float, on_tie: OnTie, choose: Choose | None = None) -> Link:
    """The link as `on_tie` wants it where several entities have the name; any other link unchanged.

    Args:
        link: A link made without a threshold.
        threshold: Minimum probability of one of the entities.
        on_tie: As in `LinkOptions`.
        choose: Chooses one of the entities before `on_tie` counts, or None.
    """
    same = namesakes(link)
    if not same:
        return link
    if choose is not None and (chosen := choose(same)) is not None:
        return _linked_to(link, chosen)
    if on_tie == "first":
        return link if link.entity_id is not None else _linked_to(link, first_by_id(same))
    if on_tie == "canonical" and (link.probability or 0.0) >= threshold:
        return link
    return replace(link, entity_id=None, canonical_name=None, probability=None, nil_reason=NilReason.AMBIGUOUS, kb=None)


def _linked_to(link: Link, chosen: Candidate) -> Link:
    """The link to one of the candidates, with the probability that it has among them."""
    return replace(
        link,
        entity_id=chosen.entity_id,
        canonical_name=chosen.canonical_name,
        probability=chosen.probability,
        nil_reason=None,
        kb=chosen.kb,
    )
