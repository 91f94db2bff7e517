"""The interface of an encoder: `Encoder`, and the records `Encoded` and `ModelInfo`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The identity of a model; stored in the manifest of a collection.

    Attributes:
        name: Shipped name, folder or hub id, as users type it.
        weights_hash: "sha256:..." of the loaded weights.
        dim: Width of the vectors.
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
        """Encode names. The vector of a name does not depend on the other names or on their order.

        Raises:
            ValueError: If a name has a lone surrogate, which is not valid Unicode.
        """
        ...
