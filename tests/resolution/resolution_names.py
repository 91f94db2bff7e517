"""An encoder for tests of `resolve`: vectors of letters, so that names with the same n-grams are near."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scored_names import ngram_rows

from pearl_qdrant.encoder.protocol import Encoded, ModelInfo

DIM = 64


class LetterEncoder:
    """Encodes names by their n-grams, hashed to 64 dimensions."""

    info = ModelInfo("letters", "sha256:0", DIM, "mean", "", False, "cpu", "fp32", "onnx")
    n_encoded = 0

    def encode(self, names: Sequence[str]) -> Encoded:
        """Encode names; counts them."""
        self.n_encoded += len(names)
        rows = ngram_rows(names)
        vectors = np.zeros((len(names), DIM), np.float32)
        for i in range(len(names)):
            indices, values = rows.row(i)
            np.add.at(vectors[i], indices % DIM, values)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        return Encoded(vectors / np.maximum(norms, 1e-9), norms[:, 0] > 0, None)
