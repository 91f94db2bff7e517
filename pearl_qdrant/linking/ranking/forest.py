"""The decision about the first candidate: the sum of small regression trees over its features and the mention's.

    logit          = start + sum over trees of the value of the leaf that the features lead to
    contribution   of a feature = sum over the splits on it, on the way, of value of the child - value of the split

So the contributions and the start add up to the logit. Trees say what a sum cannot: a word more says nothing where the
judge takes two names for one, and much where it does not. `training.ranking` fits them, `decision.npz` has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_BLOCK = 1024  # Rows at once: their places in the trees take 2 MB


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees of at most n nodes each, as arrays; a leaf leads to itself.

    Attributes:
        features: Names of the features, in the order of the columns.
        column: Column that a node splits on, (trees, n).
        threshold: Values up to this go left, (trees, n).
        left: The node to the left, (trees, n).
        right: The node to the right, (trees, n).
        value: Logit of a node, (trees, n); of a split the mean of its leaves, weighted by what reached them in the fit.
        depth: Splits on the longest way.
    """

    features: tuple[str, ...]
    column: IntArray
    threshold: FloatArray
    left: IntArray
    right: IntArray
    value: FloatArray
    depth: int

    @classmethod
    def from_arrays(cls, arrays: Any) -> Forest:
        """Arrays by the names of `to_arrays`."""
        features = tuple(str(name) for name in arrays["features"])
        column, left, right = (arrays[name].astype(np.int64) for name in ("column", "left", "right"))
        threshold, value = (arrays[name].astype(np.float64) for name in ("threshold", "value"))
        return cls(features, column, threshold, left, right, value, int(arrays["depth"]))

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The forest in few bytes."""
        return {
            "features": np.array(self.features),
            "column": self.column.astype(np.uint8),
            "threshold": self.threshold.astype(np.float32),
            "left": self.left.astype(np.uint8),
            "right": self.right.astype(np.uint8),
            "value": self.value.astype(np.float32),
            "depth": np.array(self.depth),
        }

    def logits(self, rows: FloatArray) -> FloatArray:
        """The logits of m rows of features, (m, p) to (m,)."""
        trees = np.arange(len(self.column))
        found = np.empty(len(rows))
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            at = np.zeros((len(block), len(trees)), dtype=np.int64)
            for _ in range(self.depth):
                is_left = np.take_along_axis(block, self.column[trees, at], axis=1) <= self.threshold[trees, at]
                at = np.where(is_left, self.left[trees, at], self.right[trees, at])
            found[start : start + _BLOCK] = self.value[trees, at].sum(axis=1)
        return found

    def contributions(self, row: FloatArray) -> tuple[float, dict[str, float]]:
        """The start, and what each feature adds to the logit of one row, (p,), where it adds something."""
        trees = np.arange(len(self.column))
        at = np.zeros(len(trees), dtype=np.int64)
        added = np.zeros(len(self.features))
        for _ in range(self.depth):
            columns = self.column[trees, at]
            is_left = row[columns] <= self.threshold[trees, at]
            child = np.where(is_left, self.left[trees, at], self.right[trees, at])
            np.add.at(added, columns, self.value[trees, child] - self.value[trees, at])
            at = child
        start = float(self.value[:, 0].sum())
        return start, {name: float(x) for name, x in zip(self.features, added, strict=True) if x}


@lru_cache(maxsize=1)
def shipped_forest() -> Forest:
    """The trees that come with this package."""
    with files(__package__).joinpath("decision.npz").open("rb") as file, np.load(file) as arrays:
        return Forest.from_arrays(arrays)
