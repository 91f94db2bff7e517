"""Popularity between entities of different names: log(1 + popularity), where the base has it.

An entity whose popularity is unknown counts as the least popular candidate of the mention.
"""

from __future__ import annotations

from pearl_qdrant.linking.documents.mentions import DocumentMention, log_popularity
from pearl_qdrant.linking.documents.model import COLUMN


def set_popularity(mention: DocumentMention) -> None:
    """Set the feature `popularity` of all candidates; 0 for all if the base has none."""
    known = [e.point.popularity for e in mention.entities if e.point.popularity is not None]
    if known:
        least = log_popularity(min(known))
        mention.values[:, COLUMN["popularity"]] = [
            least if e.point.popularity is None else log_popularity(e.point.popularity) for e in mention.entities
        ]
