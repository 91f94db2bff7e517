"""Types of entities that the words around a mention suggest: a city after `the mayor of`, a person before `was born`.

The feature is the log probability of the type of the entity, the most probable one of several, less that of the most
probable type; in [-inf, 0]. An entity whose types words cannot tell gets the expected value.
"""

from __future__ import annotations

import numpy as np

from pearl_qdrant.linking.documents.mentions import DocumentMention
from pearl_qdrant.linking.documents.model import COLUMN
from pearl_qdrant.linking.documents.word_types import TYPES

_NUMBER = {name: i for i, name in enumerate(TYPES)}


def set_word_types(mention: DocumentMention) -> None:
    """Set the feature of all candidates, those that longer mentions added too; 0 if the words are unknown."""
    scores = mention.type_scores
    if scores is None or not mention.entities:
        return
    highest = float(scores.max())
    expected = float(np.exp(scores) @ scores)
    values = []
    for entity in mention.entities:
        point = entity.point
        known = [_NUMBER[name] for name in point.types or (point.predicted_type,) if name in _NUMBER]
        values.append((max(float(scores[i]) for i in known) if known else expected) - highest)
    mention.values[:, COLUMN["word_type"]] = values
