"""Similarity of the passage around a mention to the description of each entity, or to its canonical name without one.

Only mentions that names leave open get the feature, and only their best candidates; the others get the mean, so that it
says nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pearl_qdrant.linking.documents.mentions import DocumentMention, best_of_open, log_sum_exp
from pearl_qdrant.linking.documents.model import COLUMN, DocumentModel, FloatArray
from pearl_qdrant.store.schema import NamePoint

Compare = Callable[[Sequence[tuple[int, Sequence[NamePoint]]]], Sequence[FloatArray]]
"""Cosines of passages to entities: for each offset of a mention with some entities, one cosine each."""


def set_passages(mentions: Sequence[DocumentMention], model: DocumentModel, compare: Compare) -> None:
    """Set the feature for the best candidates of open mentions.

    Args:
        mentions: The mentions of a document.
        model: Gives the probabilities so far.
        compare: Compares passages with entities.
    """
    chosen: list[tuple[DocumentMention, list[int]]] = []
    for mention in mentions:
        if not mention.is_compared or len(mention.entities) < 2:
            continue
        logits = mention.values @ model.features
        # Whether any candidate is right does not matter here: only which of them.
        rows = best_of_open(mention, np.exp(logits - log_sum_exp(logits)))
        if rows:
            chosen.append((mention, rows))
    requests = [(mention.start, [mention.entities[i].point for i in rows]) for mention, rows in chosen]
    for (mention, rows), cosines in zip(chosen, compare(requests) if requests else (), strict=True):
        mention.values[:, COLUMN["passage"]] = cosines.mean()
        mention.values[rows, COLUMN["passage"]] = cosines
