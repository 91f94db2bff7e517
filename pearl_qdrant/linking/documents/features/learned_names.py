"""Learned names in documents: how often a mention meant each entity in labelled text, and how often none.

    log(1 + n / 0.3)        n: uses of the very same string, and 0.3 for each use of another form of it

It is 0 for an entity that the mention never meant. So one use says something, and many say more. Where the base has no
popularity, counts change the probabilities of names before (`linking.learned.posterior`). Rejections count after the
document.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pearl_qdrant.linking.documents.mentions import DocumentMention
from pearl_qdrant.linking.documents.model import COLUMN, NIL_COLUMN

OTHER_FORMS = 0.3
"""Uses that one use of another form of the name is worth."""

HALF = 0.3
"""The n of the formula by which counts are divided."""


def set_learned_names(mention: DocumentMention) -> None:
    """Set the feature of the candidates, and those of the decision."""
    known = nil = 0.0
    for count in mention.learned:
        n = count.as_written + OTHER_FORMS * count.other_forms
        if count.entity_id is None:
            nil += n
        elif (row := mention.row.get((count.kb, count.entity_id))) is not None:
            mention.values[row, COLUMN["learned"]] = math.log1p(n / HALF)
            known += n
    mention.of_decision[NIL_COLUMN["learned"]] = math.log1p(known / HALF)
    mention.of_decision[NIL_COLUMN["learned_nil"]] = math.log1p(nil / HALF)


def learned_share(mentions: Sequence[DocumentMention]) -> float:
    """The share of the mentions of a document of which something was learned, in [0, 1]."""
    return sum(bool(mention.learned) for mention in mentions) / max(1, len(mentions))
