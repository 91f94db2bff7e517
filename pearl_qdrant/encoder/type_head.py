"""Predicts an entity type and a lexical class from the probabilities of the 95 phrase types.

    p(type)    = sum over the 5 lexical classes of p(class, type)      the marginal
    type       = argmax p(type)
    class      = argmax over classes of p(class, type)                 the class that goes with that type

The argmax of the marginal need not be the type of the most probable of the 95 labels. Most of these combinations never
occur in training, and training maximises the marginal where the class of a phrase is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.phrase_types import ENTITY_TYPES, LEXICAL_CLASSES, PHRASE_TYPES

_ENTITY_TYPES = np.array(ENTITY_TYPES, dtype=object)
_LEXICAL_CLASSES = np.array(LEXICAL_CLASSES, dtype=object)
_PHRASE_TYPES = np.array(PHRASE_TYPES, dtype=object)

_DIGITS = 7
"""Decimals of a probability: all that a float32 has. Qdrant reads numbers of more than 15 digits with a small error."""


@dataclass(frozen=True, slots=True)
class PredictedTypes:
    """One prediction per name, in the order of the names.

    Attributes:
        predicted_types: Entity type with the largest marginal, such as "ORG".
        type_probabilities: Its marginal over the lexical classes, in [0, 1].
        lexical_classes: The most probable class for that type, such as "NP".
        phrase_types: Both, such as "NP-ORG".
    """

    predicted_types: list[str]
    type_probabilities: list[float]
    lexical_classes: list[str]
    phrase_types: list[str]


def type_marginals(type_probabilities: FloatArray) -> FloatArray:
    """Probability of each entity type, summed over the lexical classes. Returns (n, 19) in the order of `ENTITY_TYPES`,
    rows sum to 1.

    Args:
        type_probabilities: (n, 95), rows sum to 1.
    """
    marginals: FloatArray = _by_class(type_probabilities).sum(axis=1)
    return marginals


def predict_types(type_probabilities: FloatArray) -> PredictedTypes:
    """The most probable entity type of each name, and the lexical class that goes with it. Raises ValueError if there
    are not 95 columns.

    Args:
        type_probabilities: (n, 95), rows sum to 1.
    """
    joint = _by_class(type_probabilities)
    marginals = joint.sum(axis=1)
    rows = np.arange(len(joint))
    types = marginals.argmax(axis=1)
    classes = joint[rows, :, types].argmax(axis=1)
    return PredictedTypes(
        predicted_types=_ENTITY_TYPES[types].tolist(),
        # Rounding can make the sum of five probabilities exceed 1.
        type_probabilities=np.minimum(marginals[rows, types].astype(np.float64), 1.0).round(_DIGITS).tolist(),
        lexical_classes=_LEXICAL_CLASSES[classes].tolist(),
        phrase_types=_PHRASE_TYPES[classes * len(ENTITY_TYPES) + types].tolist(),
    )


def _by_class(type_probabilities: FloatArray) -> FloatArray:
    """Reshape (n, 95) to (n, 5 classes, 19 types); `PHRASE_TYPES` lists all types of one class after another."""
    if type_probabilities.ndim != 2 or type_probabilities.shape[1] != len(PHRASE_TYPES):
        raise ValueError(f"type probabilities have shape (n, {len(PHRASE_TYPES)}), not {type_probabilities.shape}")
    return type_probabilities.reshape(-1, len(LEXICAL_CLASSES), len(ENTITY_TYPES))
