"""Figures of the second paper, for comparison.

Source: Li & Zhao 2021, Pre-training Universal Language Representation, Tables 2, 4 and 9.
"""

from __future__ import annotations

from collections.abc import Mapping

ANALOGY: Mapping[str, Mapping[str, float]] = {
    "word": {"GloVe": 80.3, "BERT-base": 55.8, "ULR-BERT-base": 70.8},
    "phrase": {"GloVe": 20.5, "BERT-base": 34.8, "ULR-BERT-base": 34.0},
    "sentence": {"GloVe": 20.0, "BERT-base": 34.2, "ULR-BERT-base": 32.3},
}
"""Mean of semantic and syntactic accuracy by level and model, in percent, on all questions."""

_RETRIEVAL = {
    "BM25": (27.1, 62.5, 76.4),
    "BERT-base": (29.6, 58.9, 67.1),
    "MLM-BERT-base": (37.0, 66.8, 72.6),
    "ULR-BERT-base": (39.7, 66.0, 77.3),
}
_DEPTHS = (1, 5, 10)

RETRIEVAL: Mapping[int, Mapping[str, float]] = {
    depth: {model: figures[i] for model, figures in _RETRIEVAL.items()} for i, depth in enumerate(_DEPTHS)
}
"""Top-1, top-5 and top-10 accuracy of question retrieval by model, in percent."""
