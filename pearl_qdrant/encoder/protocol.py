"""What the rest of the project knows of an encoder."""

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
    """Which model makes the vectors; written into a collection's manifest.

    Attributes:
        name: Shipped name, folder name or hub id, as the user would type it.
        weights_hash: "sha256:..." of the weights that the runtime loaded.
        dim: Width of the vectors.
        pooling: "mean" or "cls".
        prefix: Text put before each name ("query: " for E5), or "".
        has_head: Whether there are type probabilities.
        device: Where it runs: "cpu", "cuda:0", ...
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
        """What decides whether two vectors can be compared, for error messages."""
        return f"{self.name} ({self.dim} dim, {self.pooling} pooling, prefix {self.prefix!r}, {self.weights_hash[:19]})"


@dataclass(frozen=True, slots=True)
class Encoded:
    """The result of one `Encoder.encode`.

    Attributes:
        vectors: (n, dim), L2-normalised; a row of zeros where `encodable` is false.
        encodable: (n,), false for a name that the tokenizer cannot see: no token, or nothing but [UNK].
        type_probabilities: (n, 95) in the order of `PHRASE_TYPES`, rows sum to 1; None without a head.
    """

    vectors: FloatArray
    encodable: BoolArray
    type_probabilities: FloatArray | None

    def take(self, rows: slice | Sequence[int]) -> Encoded:
        """Some of the rows."""
        types = self.type_probabilities
        return Encoded(self.vectors[rows], self.encodable[rows], None if types is None else types[rows])


class Encoder(Protocol):
    """Names to vectors and phrase types. Safe to call from several threads."""

    @property
    def info(self) -> ModelInfo:
        """Which model this is."""
        ...

    def encode(self, names: Sequence[str]) -> Encoded:
        """Encode names; the order and the company of a name do not change its vector.

        Raises:
            ValueError: If a name holds a lone surrogate (no valid Unicode text).
        """
        ...
