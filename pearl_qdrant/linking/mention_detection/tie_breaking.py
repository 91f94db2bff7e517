"""Breaks ties between entities with the same name, by what the passage shows.

Two things separate tied candidates: letter case, where the base spells only one of them that way (`turkey` the bird,
`Turkey` the country), and a context that the caller gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.records import Candidate, Link, NilReason

Choose = Callable[[Sequence[Candidate]], Candidate | None]
"""Chooses one of several tied candidates, or None."""


def first_by_id(candidates: Sequence[Candidate]) -> Candidate | None:
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


def break_by_case(link: Link) -> Link:
    """The link with its tie broken by letter case, if exactly one tied entity is spelled like the mention."""
    same_case = [c for c in _tied(link) if c.name == link.mention]
    return _linked_to(link, same_case[0]) if len(same_case) == 1 else link


def break_tie(link: Link, choose: Choose) -> Link:
    """The link with its tie broken by `choose`; unchanged if there is no tie, or `choose` returns None."""
    tied = _tied(link)
    chosen = choose(tied) if tied else None
    return link if chosen is None else _linked_to(link, chosen)


def _tied(link: Link) -> list[Candidate]:
    return [c for c in link.candidates if c.tie] if link.nil_reason is NilReason.AMBIGUOUS else []


def _linked_to(link: Link, chosen: Candidate) -> Link:
    """The link to one of the tied candidates, with the probability that it has among them."""
    return replace(
        link,
        entity_id=chosen.entity_id,
        canonical_name=chosen.canonical_name,
        probability=chosen.probability,
        nil_reason=None,
        kb=chosen.kb,
    )
