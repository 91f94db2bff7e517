"""Makes everyday mentions of a base by kind: exact names, slips, spellings, order, context, and NIL of each kind."""

from pearl_qdrant.linking.mention_kinds.make import KINDS, Kind, MadeMention, make_mentions
from pearl_qdrant.linking.mention_kinds.rewrites import NamedEntity

__all__ = ["KINDS", "Kind", "MadeMention", "NamedEntity", "make_mentions"]
