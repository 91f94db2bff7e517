"""Made-up answers and samples for tests of calibration."""

from __future__ import annotations

from typing import Any

import numpy as np

from pearl_qdrant.linking.calibration.metrics import Answers, Samples
from pearl_qdrant.linking.ranking.model import FEATURES, NIL_FEATURES, FloatArray


def answers(
    probability: list[float] | FloatArray, correct: list[float] | FloatArray, *, is_nil: list[bool] | None = None
) -> Answers:
    """Answers that are all links."""
    p, right = np.asarray(probability, dtype=float), np.asarray(correct, dtype=float)
    nil = np.zeros(len(p), dtype=bool) if is_nil is None else np.array(is_nil)
    return Answers(p, right, p, right, p, nil, np.ones(len(p)))


def without_features(logits: FloatArray, *others: Any, certainty: FloatArray | float = 1.0) -> Samples:
    """Samples that only have logits; `certainty` is below 1 where a rule decides."""
    n = len(logits)
    features = np.zeros((*logits.shape, len(FEATURES)), dtype=np.float32)
    of_rules = np.zeros(logits.shape), np.broadcast_to(certainty, n).astype(np.float64)
    return Samples(logits, *others, features, np.zeros((n, len(NIL_FEATURES))), *of_rules)


def made_samples(
    n: int, rng: np.random.Generator, *, slope: float = 1.0, nil_bias: float = 0.0, nil_share: float | None = None
) -> Samples:
    """Mentions of 5 candidates whose right answer is drawn from a softmax with this slope and bias."""
    logits = -np.sort(-rng.normal(0, 3, (n, 5)), axis=1)
    nil = rng.normal(0, 3, n)
    scaled = np.exp(np.concatenate([slope * logits, slope * nil[:, None] + nil_bias], axis=1))
    drawn = (scaled / scaled.sum(1, keepdims=True)).cumsum(1) > rng.random((n, 1))
    gold = drawn.argmax(axis=1)
    is_right = np.arange(5) == gold[:, None]
    made = without_features(logits, nil, is_right, np.ones(n, dtype=np.int64), gold == 5, np.ones(n))
    return made if nil_share is None else made.with_nil_share(nil_share)
