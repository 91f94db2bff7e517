"""Measures the cosine that an encoder gives to unrelated names.

Encoders differ: around 0.1 for MiniLM, 0.8 for E5. The ranking uses only the part of a cosine above this baseline.
"""

from __future__ import annotations

import numpy as np

from pearl_qdrant.encoder.protocol import Encoder

_NAMES = (
    "granite",
    "tax return",
    "Marie Curie",
    "violin sonata",
    "liver enzyme",
    "Buenos Aires",
    "football league",
    "blue whale",
    "steam engine",
    "supreme court",
    "apple pie",
    "quadratic equation",
    "winter coat",
    "desert wind",
    "railway bridge",
    "peace treaty",
)

_HIGHEST = 0.95  # reached only by a broken encoder, for which all names are alike


def baseline_similarity(encoder: Encoder) -> float:
    """Mean cosine of 16 unrelated names, in [0, 0.95]."""
    vectors = encoder.encode(_NAMES).vectors
    cosines = vectors @ vectors.T
    n = len(_NAMES)
    return float(np.clip((cosines.sum() - np.trace(cosines)) / (n * (n - 1)), 0.0, _HIGHEST))
