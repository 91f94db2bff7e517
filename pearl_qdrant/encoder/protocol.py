"""The interface of an encoder: `Encoder`, and the records `Encoded` and `ModelInfo`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pearl_qdrant.phrase_types import ENTITY_TYPES, LEXICAL_CLASSES, PHRASE_TYPES

FASTEMBED = "fastembed:"
"""Begins the name of a model that fastembed has: "fastembed:BAAI/bge-small-en-v1.5"."""

FloatArray = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The identity of a model; stored in the manifest of a collection.

    Attributes:
        name: Shipped name, folder or hub id, as users type it.
        weights_hash: "sha256:..." of the loaded weights.
        pooling: "mean" or "cls".
        prefix: Text put before each name ("query: " for E5), or "".
        has_head: Whether the model predicts types.
        device: Device that it runs on: "cpu", "cuda:0", ...
        precision: "fp32", "bf16" or "int8" (block-quantised weights).
        runtime: "onnx" or "torch".
    """

    name: str
    weights_hash: str
    dim: int
    pooling: str
    prefix: str
    has_head: bool
    device: str
    precision: str
    runtime: str

    @property
    def identity(self) -> str:
        """The properties that make two vectors comparable, for error messages."""
        return f"{self.name} ({self.dim} dim, {self.pooling} pooling, prefix {self.prefix!r}, {self.weights_hash[:19]})"


@dataclass(frozen=True, slots=True)
class Encoded:
    """The result of one `Encoder.encode`.

    Attributes:
        vectors: (n, dim), L2-normalised; a row of zeros where `encodable` is false.
        encodable: (n,), false for a name without any token except [UNK].
        type_probabilities: (n, 95) in the order of `PHRASE_TYPES`, rows sum to 1; None without a head.
    """

    vectors: FloatArray
    encodable: BoolArray
    type_probabilities: FloatArray | None

    def take(self, rows: slice | Sequence[int]) -> Encoded:
        """The given rows."""
        types = self.type_probabilities
        return Encoded(self.vectors[rows], self.encodable[rows], None if types is None else types[rows])


class Encoder(Protocol):
    """Encodes names as vectors and phrase types. Safe to use from several threads."""

    @property
    def info(self) -> ModelInfo:
        """The identity of the model."""
        ...

    def encode(self, names: Sequence[str]) -> Encoded:
        """Encode names. The vector of a name does not depend on the other names or on their order. Raises ValueError if
        a name has a lone surrogate, which is not valid Unicode.
        """
        ...


_ENTITY_TYPES = np.array(ENTITY_TYPES, dtype=object)
_LEXICAL_CLASSES = np.array(LEXICAL_CLASSES, dtype=object)
_PHRASE_TYPES = np.array(PHRASE_TYPES, dtype=object)
_DIGITS = 7
"""Decimals of a probability: all that a float32 has. Qdrant reads numbers of more than 15 digits with a small error."""


@dataclass(frozen=True, slots=True)
class PredictedTypes:
    """Predictions of n names: entity types with the largest marginals, such as "ORG", these, in [0, 1], and the most
    probable lexical class for that type, such as "NP"; both together, such as "NP-ORG".
    """

    predicted_types: list[str]
    type_probabilities: list[float]
    lexical_classes: list[str]
    phrase_types: list[str]


def type_marginals(type_probabilities: FloatArray) -> FloatArray:
    """Probabilities of the entity types, (n, 19) in the order of `ENTITY_TYPES`, from those of all labels, (n, 95)."""
    marginals: FloatArray = _by_class(type_probabilities).sum(axis=1)
    return marginals


def predict_types(type_probabilities: FloatArray) -> PredictedTypes:
    """The most probable entity type of each name, and the lexical class that goes with it, from probabilities, (n, 95).
    Raises ValueError if there are not 95 columns.
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
