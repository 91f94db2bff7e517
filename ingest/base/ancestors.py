"""The class graph of a base in two arrays, and the ancestors of a class, nearest first.

An edge takes 8 bytes: the graph of all of Wikidata (some five million edges) takes 40 MB. Cycles are harmless. A walk
ends at a maximal number of classes, so a long chain takes no more time for each of its classes than a usual tree.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_MAX_KNOWN = 1 << 16
_STEPS = 8  # for each class: most have one or two parents

T = TypeVar("T")


def walk_up(
    classes: Iterable[T], parents_of: Callable[[T], Collection[T] | None], most: int
) -> tuple[list[T], list[int]]:
    """The classes and their ancestors, nearest first, each once, and the height of each in steps; both (n,).

    Args:
        classes: Where the walk begins.
        parents_of: The direct parents of a class, each once; None if it has none.
        most: The walk ends after this many classes, or after `_STEPS` times as many steps from one to another.
    """
    found = list(islice(dict.fromkeys(classes), most))
    heights, seen, n_steps = [0] * len(found), set(found), 0
    for one, height in zip(found, heights, strict=False):  # both grow during the walk
        parents = parents_of(one) or ()
        for parent in parents:
            if parent not in seen:
                if len(found) >= most:
                    return found, heights
                seen.add(parent)
                found.append(parent)
                heights.append(height + 1)
        n_steps += len(parents)
        if n_steps > _STEPS * most:
            break
    return found, heights


def nearest_types(found: Iterable[T], heights: Iterable[int], type_of: Callable[[T], str | None]) -> tuple[str, ...]:
    """Types of the lowest classes of a walk that have any; those of higher classes are vaguer, or another sense."""
    types: dict[str, None] = {}
    lowest = 0
    for one, height in zip(found, heights, strict=True):
        if types and height > lowest:
            break
        if (coarse := type_of(one)) is not None:
            types[coarse] = None
            lowest = height
    return tuple(types)


class ClassGraph(Generic[T]):
    """Classes and their direct parents."""

    def __init__(self, children: npt.ArrayLike, parents: npt.ArrayLike, ids: Sequence[T] | None = None) -> None:
        """Index the edges.

        Args:
            children: `hash` of the child classes, (n,), in any order; that of a number is the number itself.
            parents: Number of the parent of each of them, (n,), from 0 to 2^31 - 1. A class keeps its parents in this
                order.
            ids: Parents by their numbers; None: the numbers are the classes.
        """
        lower = np.asarray(children)
        order = np.argsort(lower, kind="stable")
        # Arrays of the standard library: a search for one number is ten times faster in them than in numpy's.
        self._children = array("q" if lower.itemsize == 8 else "i", lower[order].tobytes())
        self._parents = array("i", np.asarray(parents, dtype=np.int32)[order].tobytes())
        self._ids = ids
        self._known: dict[T, tuple[T, ...]] = {}

    def __len__(self) -> int:
        """The number of edges."""
        return len(self._parents)

    def walk_up(self, classes: Iterable[T], most: int) -> tuple[list[T], list[int]]:
        """The classes and their ancestors; see the function `walk_up`."""
        return walk_up(classes, self.parents, most)

    def parents(self, one: T) -> tuple[T, ...]:
        """Direct parents. They are cached, since most walks pass through the same few classes."""
        found = self._known.get(one)
        if found is None:
            key = hash(one)
            start = bisect_left(self._children, key)
            numbers: Any = dict.fromkeys(self._parents[start : bisect_right(self._children, key, start)])
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            found = self._known[one] = tuple(numbers if self._ids is None else [self._ids[i] for i in numbers])
        return found
