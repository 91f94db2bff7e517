"""For tests of `resolve`: an encoder by letters, so that names with the same n-grams are near; a table of pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from pearl_qdrant.encoder.protocol import Encoded, ModelInfo
from pearl_qdrant.lexical.ngrams import ngram_rows

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


def other_outcomes(kind: str, outcome: Callable[[str, str], str]) -> list[tuple[str, ...]]:
    """Rows of a kind in `pairs.tsv` with another outcome: both names, what the table says, and what was found."""
    lines = Path(__file__).with_name("pairs.tsv").read_text("utf-8").splitlines()
    rows = [line.split("\t")[1:] for line in lines if line.startswith(f"{kind}\t")]
    assert rows
    found = [(one, other, expected, outcome(one, other)) for expected, one, other in rows]
    return [row for row in found if row[2] != row[3]]
