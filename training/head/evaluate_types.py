"""Score a type head on names that it never saw."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pearl_qdrant.phrase_types import ENTITY_TYPES, LEXICAL_CLASSES
from training.evaluation.tasks.type_scores import TypeScores, score_predictions

__all__ = ["TypeScores", "score_types"]


def score_types(logits: Tensor, types: Sequence[set[str]]) -> TypeScores:
    """Score the argmax of the marginal over lexical classes.

    Args:
        logits: (n, 95).
        types: The right entity types of each name, at least one; each of them counts as right.
    """
    probabilities = logits.softmax(dim=1).reshape(-1, len(LEXICAL_CLASSES), len(ENTITY_TYPES))
    predicted = [ENTITY_TYPES[i] for i in torch.argmax(probabilities.sum(1), dim=1).tolist()]
    return score_predictions(predicted, types)
