"""Entities of one name: what a passage can say about which of them is meant.

Two things separate tied candidates, and only tied ones: the case of the letters where only one of them is spelled that
way (`turkey` the bird, `Turkey` the country), and a context that the caller gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.records import Candidate, Link, NilReason

OnTie = Literal["null", "first"]

Choose = Callable[[Sequence[Candidate]], Candidate | None]
"""Takes one of several tied candidates, or none."""


def first_by_id(candidates: Sequence[Candidate]) -> Candidate | None:
    """The first by base and id, as `on_tie="first"` wants it."""
    return min(candidates, key=lambda c: (c.kb, c.entity_id))


class ContextChooser:
    """Takes the candidate whose description and types are closest to a context.

    Args:
        context: Any text; the passage itself, its title, a topic.
        encoder: Makes the vectors that are compared; the context is encoded once.
    """

    def __init__(self, context: str, encoder: Encoder) -> None:
        self._encoder = encoder
        encoded = encoder.encode([context.encode("utf-8", "replace").decode()])  # a shell may give stray bytes
        self._vector = encoded.vectors[0] if encoded.encodable[0] else None

    def __call__(self, candidates: Sequence[Candidate]) -> Candidate | None:
        """The closest one; None if the context has no vector or several are equally close."""
        if self._vector is None:
            return None
        cosines = self._encoder.encode([_description(c) for c in candidates]).vectors @ self._vector
        order = cosines.argsort()[::-1]
        if cosines[order[0]] - cosines[order[1]] <= _EQUAL:
            return None
        return candidates[int(order[0])]


_EQUAL = 1e-6  # cosines of one and the same text differ by rounding


def _description(candidate: Candidate) -> str:
    """What a base says about an entity, in a phrase; the name is the same for all of them and left out."""
    types = ", ".join(candidate.kb_types or candidate.types)
    return f"{candidate.description}, {types}" if candidate.description else f"{candidate.canonical_name}, {types}"


def break_by_case(link: Link) -> Link:
    """The link of a mention whose letters' case means something: tied entities spelled otherwise are not meant.

    Of several that are spelled as the mention is, none is chosen.
    """
    spelled_so = [c for c in _tied(link) if c.name == link.mention]
    return _with(link, spelled_so[0]) if len(spelled_so) == 1 else link


def break_tie(link: Link, choose: Choose) -> Link:
    """The link with its tie resolved, if `choose` can; any other link as it is."""
    tied = _tied(link)
    chosen = choose(tied) if tied else None
    return link if chosen is None else _with(link, chosen)


def _tied(link: Link) -> list[Candidate]:
    return [c for c in link.candidates if c.tie] if link.nil_reason is NilReason.AMBIGUOUS else []


def _with(link: Link, chosen: Candidate) -> Link:
    """The link to a candidate that was one of several; its probability stays what it was among them."""
    return replace(
        link,
        entity_id=chosen.entity_id,
        canonical_name=chosen.canonical_name,
        probability=chosen.probability,
        nil_reason=None,
        kb=chosen.kb,
    )
