"""The probability that two names mean the same: a logistic model of `pairs.features.FEATURES`.

Its terms are written as they are computed, so that `resolution.json` can be read:

    dense            a feature
    dense>0.5        how much it is above a number, max(0, dense - 0.5)
    person*inner     the product of two features

`runs/resolution/model.py` fits the coefficients, and chooses the thresholds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from pearl_qdrant.resolution.pairs.features import COLUMN, FEATURES

MODEL_FILE = "resolution.json"

_ROUNDS = 100
_UNSEEN = 500
"""Candidates with the prior that are added to those of a list, so that a short list changes little."""

_MOST_SHIFT = 2.0

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PairModel:
    """Coefficients, and the thresholds that were chosen with them.

    Attributes:
        terms: What is computed from the features.
        weights: (terms,).
        bias: Logit of a pair whose terms are 0.
        thresholds: Least mean probability between two clusters, by the precision of merges; both in [0, 1], ascending.
        prior: Share of the candidates that were right where the model was fitted.
        least_dense, least_lexical: Pairs below both are not compared further: hardly one of them is a merge.
    """

    terms: tuple[str, ...]
    weights: FloatArray
    bias: float
    thresholds: tuple[tuple[float, float], ...]
    prior: float
    least_dense: float
    least_lexical: float

    @classmethod
    def from_names(cls, stored: Mapping[str, object]) -> PairModel:
        """A model from what `resolution.json` has.

        Raises:
            ValueError: If a term has a feature that this version does not know.
        """
        weights = stored["terms"]
        if not isinstance(weights, dict):
            raise TypeError("the terms of a model are names with numbers")
        numbers = {name: float(str(stored[name])) for name in ("bias", "prior", "least_dense", "least_lexical")}
        thresholds = stored["thresholds"]
        if not isinstance(thresholds, dict):
            raise TypeError("the thresholds of a model are precisions with probabilities")
        by_precision = tuple(sorted((float(precision), float(value)) for precision, value in thresholds.items()))
        compute_terms(np.zeros((1, len(FEATURES)), np.float32), list(weights))
        values = np.array([float(value) for value in weights.values()])
        return cls(tuple(weights), values, thresholds=by_precision, **numbers)

    def threshold(self, precision: float) -> float:
        """The least probability at which that share of the merges is right; between the measured ones, on a line."""
        precisions, thresholds = zip(*self.thresholds, strict=True)
        return float(np.interp(precision, (*precisions, 1.0), (*thresholds, 1.0)))

    def logits(self, features: npt.NDArray[np.float32]) -> FloatArray:
        """Logits of p pairs, (p,), from (p, features), in a list like those of the fit."""
        return compute_terms(features, self.terms).astype(np.float64) @ self.weights + self.bias

    def shift(self, logits: npt.NDArray[np.floating], n_candidates: int) -> float:
        """What to add to the logits in this list: less where most things have one name, more where they have several.

        The share of right candidates is estimated from the probabilities themselves, again and again until both agree.

        Args:
            logits: Of the candidates that may be right, (p,).
            n_candidates: All candidates; the others count as wrong.

        Source: Saerens et al. 2002, "Adjusting the outputs of a classifier to new a priori probabilities".
        """
        start = np.log(self.prior / (1 - self.prior))
        shift = 0.0
        for _ in range(_ROUNDS):
            right = float(probability_of(logits + shift).sum())
            share = (right + _UNSEEN * self.prior) / (n_candidates + _UNSEEN)
            shift = float(np.clip(np.log(share / (1 - share)) - start, -_MOST_SHIFT, _MOST_SHIFT))
        return shift

    def is_worth_comparing(
        self, dense: npt.NDArray[np.floating], lexical: npt.NDArray[np.floating]
    ) -> npt.NDArray[np.bool_]:
        """Which of p pairs may merge, by cosine and n-grams alone, (p,)."""
        worth: npt.NDArray[np.bool_] = (dense >= self.least_dense) | (lexical >= self.least_lexical)
        return worth


def probability_of(logits: npt.NDArray[np.floating]) -> FloatArray:
    """Probabilities of logits."""
    found: FloatArray = 1 / (1 + np.exp(-np.clip(logits.astype(np.float64), -30, 30)))
    return found


def compute_terms(features: npt.NDArray[np.float32], terms: Sequence[str]) -> npt.NDArray[np.float32]:
    """The terms of p pairs, (p, terms), from (p, features).

    Raises:
        ValueError: If a term has an unknown feature.
    """
    return np.column_stack([_term(features, term) for term in terms]) if terms else features[:, :0]


def _term(features: npt.NDArray[np.float32], term: str) -> npt.NDArray[np.float32]:
    first, product, second = term.partition("*")
    if product:
        return _feature(features, first) * _feature(features, second)
    first, above, limit = term.partition(">")
    values = _feature(features, first)
    return np.maximum(values - np.float32(limit), 0) if above else values


def _feature(features: npt.NDArray[np.float32], name: str) -> npt.NDArray[np.float32]:
    if name not in COLUMN:
        raise ValueError(f"the model has a feature that this version does not know: {name!r}")
    column: npt.NDArray[np.float32] = features[:, COLUMN[name]]
    return column


@lru_cache(maxsize=1)
def shipped_model() -> PairModel:
    """The model that ships with the package."""
    return PairModel.from_names(json.loads(files(__package__).joinpath(MODEL_FILE).read_text("utf-8")))
