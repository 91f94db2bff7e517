"""Makes everyday mentions of a base by kind: exact names, slips, spellings, order, context, and NIL of each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pearl_qdrant._lazy import lazy_exports

if TYPE_CHECKING:
    from pearl_qdrant.linking.mention_kinds.make import KINDS, Kind, MadeMention, NamedEntity, make_mentions

__all__ = ["KINDS", "Kind", "MadeMention", "NamedEntity", "make_mentions"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "KINDS": "pearl_qdrant.linking.mention_kinds.make",
        "Kind": "pearl_qdrant.linking.mention_kinds.make",
        "MadeMention": "pearl_qdrant.linking.mention_kinds.make",
        "NamedEntity": "pearl_qdrant.linking.mention_kinds.make",
        "make_mentions": "pearl_qdrant.linking.mention_kinds.make",
    },
)
