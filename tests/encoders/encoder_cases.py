"""Names, model families and comparisons for tests of encoders."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import tiny_models

from pearl_qdrant.encoder.protocol import FloatArray

FAMILIES = {"bert": tiny_models.make_bert, "roberta": tiny_models.make_roberta, "albert": tiny_models.make_albert}


ODD_NAMES = [
    "a",
    "x" * 10_000,
    "a " * 5_000,
    "北京市",
    "مدينة نيويورك",
    "עברית",
    "tab\there",
    "a\x00b",
    "\u202eabc",
    "ﬁ",
]


def cosines(a: FloatArray, b: FloatArray) -> npt.NDArray[np.float64]:
    """Cosines row by row; 1 for two rows of zeros."""
    both_zero = ~a.any(axis=1) & ~b.any(axis=1)
    return np.where(both_zero, 1.0, np.einsum("ij,ij->i", a, b, dtype=np.float64))
