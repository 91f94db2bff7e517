"""A link with another outcome: NIL, or one of its candidates."""

from __future__ import annotations

from dataclasses import replace

from pearl_qdrant.records import Candidate, Link, NilReason


def as_nil(link: Link, reason: NilReason) -> Link:
    """The link as NIL, with its candidates."""
    return replace(link, entity_id=None, canonical_name=None, probability=None, nil_reason=reason, kb=None)


def linked_to(link: Link, chosen: Candidate) -> Link:
    """The link to one of the candidates, with the probability that it has among them."""
    return replace(
        link,
        entity_id=chosen.entity_id,
        canonical_name=chosen.canonical_name,
        probability=chosen.probability,
        nil_reason=None,
        kb=chosen.kb,
    )
