"""The decision about the first candidate: the sum of small regression trees over its features and the mention's.

    logit          = start + sum over trees of the value of the leaf that the features lead to
    contribution   of a feature = sum over the splits on it, on the way, of value of the child - value of the split

So the contributions and the start add up to the logit. Trees say what a sum cannot: a word more says nothing where the
judge takes two names for one, and much where it does not. `runs/ranking_fit.py` fits them, `decision.npz` has them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The k nodes of all trees in one row; a place is a number among them."""

    column: IntArray  # (k,)
    threshold: FloatArray  # (k,)
    children: IntArray  # places of the right and the left child of each, (2 k,)
    first: IntArray  # twice their places: of the right children among `children`, (k,)
    value: FloatArray  # (k,)
    roots: IntArray  # places of the roots, (trees,)

    def next(self, row: FloatArray) -> IntArray:
        """The place to which a row of features leads from each node, (k,)."""
        # All splits are made, those that are not on the way too: that takes a quarter of the time of following it.
        return self.children.take(self.first + (row.take(self.column) <= self.threshold))


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
    nodes: _Nodes = field(init=False, repr=False, compare=False)  # the same in one row

    def __post_init__(self) -> None:
        starts = (np.arange(len(self.column)) * self.column.shape[1])[:, None]
        children = np.stack([(self.right + starts).ravel(), (self.left + starts).ravel()], axis=1).ravel()
        column = self.column.ravel()
        first = 2 * np.arange(len(column))
        nodes = _Nodes(column, self.threshold.ravel(), children, first, self.value.ravel(), starts[:, 0])
        object.__setattr__(self, "nodes", nodes)

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
        found = np.empty(len(rows))
        for i, row in enumerate(rows):
            following, at = self.nodes.next(row), self.nodes.roots
            for _ in range(self.depth):
                at = following.take(at)
            found[i] = self.nodes.value.take(at).sum()
        return found

    def contributions(self, row: FloatArray) -> tuple[float, dict[str, float]]:
        """The start, and what each feature adds to the logit of one row, (p,), where it adds something."""
        nodes, at = self.nodes, self.nodes.roots
        following, added = nodes.next(row), np.zeros(len(self.features))
        gains = nodes.value.take(following) - nodes.value
        for _ in range(self.depth):
            added += np.bincount(nodes.column.take(at), gains.take(at), minlength=len(added))
            at = following.take(at)
        start = float(nodes.value.take(nodes.roots).sum())
        return start, {name: x for name, x in zip(self.features, added.tolist(), strict=True) if x}


@lru_cache(maxsize=1)
def shipped_forest() -> Forest:
    """The trees that come with this package."""
    with files(__package__).joinpath("decision.npz").open("rb") as file, np.load(file) as arrays:
        return Forest.from_arrays(arrays)
