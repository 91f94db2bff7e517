"""Vectors of single words: how alike the words are in which two names differ.

`carcinoma` and `cancer` are near, `submandibular` and `sublingual` are not, while the names that have them are equally
near.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.lexical.spelling_variants import variant_word

MOST_WORDS = 300_000
"""Words that are encoded, the most frequent; they take two minutes on two cores."""

_ENCODED = 16_384


class WordVectors:
    """Compares groups of words.

    Args:
        folded: Folded names, whose words are encoded.
        encoder: The model.
        baseline: Cosine of unrelated names.
    """

    def __init__(self, folded: Iterable[str], encoder: Encoder, baseline: float) -> None:
        counts = Counter(word for name in folded for word in name.split() if not word.isdigit())
        normal: dict[str, int] = {}
        words: list[str] = []
        for word, _ in counts.most_common(MOST_WORDS):
            key = variant_word(word)
            if key not in normal:
                normal[key] = len(words)
                words.append(word)
        self._number = normal
        self._baseline = baseline
        self._vectors = mapped_vectors(len(words), encoder.info.dim)
        for start in range(0, len(words), _ENCODED):
            encoded = encoder.encode(
                [word.encode("utf-8", "replace").decode() for word in words[start : start + _ENCODED]]
            )
            self._vectors[start : start + _ENCODED] = encoded.vectors

    def cosines(self, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> npt.NDArray[np.float32]:
        """Cosine of the sums of the words' vectors above that of unrelated names, (p,); 0 where a side has none."""
        found = np.zeros(len(pairs), np.float32)
        rows = [i for i, (ours, theirs) in enumerate(pairs) if ours and theirs]
        sides = [self._sums([pairs[i][side] for i in rows]) for side in (0, 1)]
        if rows:
            cosines = np.einsum("ij,ij->i", *sides)
            norms = np.linalg.norm(sides[0], axis=1) * np.linalg.norm(sides[1], axis=1)
            raw = np.divide(cosines, norms, out=np.zeros_like(cosines), where=norms > 0)
            found[rows] = (raw - self._baseline) / (1 - self._baseline)
        return found

    def _sums(self, groups: Sequence[Sequence[str]]) -> npt.NDArray[np.float32]:
        """Sum of the vectors of each group of words, (g, dim)."""
        sums = np.zeros((len(groups), self._vectors.shape[1]), np.float32)
        known = [
            (row, self._number[word]) for row, words in enumerate(groups) for word in words if word in self._number
        ]
        if known:
            rows, numbers = np.array(known).T
            np.add.at(sums, rows, np.asarray(self._vectors[numbers], np.float32))
        return sums


def mapped_vectors(n: int, dim: int) -> npt.NDArray[np.float16]:
    """Zeros, (n, dim), in a file without a name, so that they take no memory of the process."""
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, np.float16, "w+", shape=(max(n, 1), dim))[:n]
