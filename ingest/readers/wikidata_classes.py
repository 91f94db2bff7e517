"""Derive ancestors, coarse types and exclusion of an item from its classes.

Only the nearest `limits.MAX_ANCESTORS` ancestors count.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from ingest.base.ancestors import ClassGraph, nearest_types
from ingest.base.type_map import TypeMap
from ingest.io import limits

INSTANCE_OF, SUBCLASS_OF = "P31", "P279"
NO_LABEL, NOT_AN_ITEM, OTHER_CLASS = "no_label", "not_an_item", "other_class"
WIKIMEDIA_INTERNAL = "wikimedia_internal"

MULTILINGUAL, FALLBACK = "mul", "en"
"""The language code of names that are the same in all languages, and the last language that is tried."""

MAX_KB_TYPES = 64
"""Native types kept of an entity. Farther ancestors are abstract ones that nearly every entity has."""

INTERNAL_CLASSES = frozenset(
    {
        17442446,  # Wikimedia internal item, above most of the others
        4167410,  # Wikimedia disambiguation page
        22808320,  # Wikimedia human name disambiguation page
        4167836,  # Wikimedia category
        11266439,  # Wikimedia template
        13406463,  # Wikimedia list article
        15184295,  # Wikimedia module
        14204246,  # Wikimedia project page
        17633526,  # Wikinews article
        17362920,  # Wikimedia duplicated page
        15671253,  # Wikimedia page outside the main knowledge tree
    }
)
"""Pages of the Wikimedia projects, which texts do not mention."""

_MAX_NUMBER = (1 << 31) - 1
_MAX_ID = len(f"Q{_MAX_NUMBER}")

_CACHED = 16_384
_MAX_CACHED_CLASSES = 64  # classes of an item; most have a few


@dataclass(frozen=True, slots=True)
class ClassTypes:
    """Properties of a set of classes.

    Attributes:
        kb_types: Ids of the classes and of their ancestors, nearest first, at most `MAX_KB_TYPES`.
        types: Coarse types.
        reason: Why an instance of them is left out: it is an internal page of the Wikimedia projects, or none of the
            requested classes is among them; None if it is read.
    """

    kb_types: tuple[str, ...]
    types: tuple[str, ...]
    reason: str | None


class ClassTypeFinder:
    """Finds the `ClassTypes` of classes; the last ones are cached."""

    def __init__(
        self, edges: Iterable[tuple[int, tuple[int, ...]]], *, type_map: TypeMap, wanted: frozenset[int]
    ) -> None:
        """Read the edges, 8 bytes each.

        Args:
            edges: Numbers of classes, each with its direct parents.
            type_map: From ids of classes to coarse types.
            wanted: Numbers of the classes to read; empty: all.
        """
        children, parents = array("i"), array("i")
        for child, above in edges:
            children.extend([child] * len(above))
            parents.extend(above)
        self._graph = ClassGraph[int](children, parents)
        self._type_map = type_map
        self._wanted = wanted
        self._find_known = lru_cache(maxsize=_CACHED)(self._find)
        self._find_coarse = lru_cache(maxsize=_CACHED)(self._find_coarse_types)
        self._name = lru_cache(maxsize=_CACHED)("Q{}".format)
        self._type_of = lru_cache(maxsize=_CACHED)(self._find_type)

    def find(self, classes: tuple[int, ...], superclasses: tuple[int, ...]) -> ClassTypes:
        """The properties of an item that is an instance of some classes and a subclass of others; both may be empty."""
        is_small = len(classes) + len(superclasses) <= _MAX_CACHED_CLASSES
        return (self._find_known if is_small else self._find)(classes, superclasses)

    def _find(self, classes: tuple[int, ...], superclasses: tuple[int, ...]) -> ClassTypes:
        own = tuple(dict.fromkeys((*classes, *superclasses)))
        found, heights = self._graph.walk_up(own, limits.MAX_ANCESTORS)
        of_instance = found if not superclasses else self._graph.walk_up(classes, limits.MAX_ANCESTORS)[0]
        reason = OTHER_CLASS if self._wanted and self._wanted.isdisjoint(found) else None
        if not INTERNAL_CLASSES.isdisjoint(of_instance):
            reason = WIKIMEDIA_INTERNAL
        kb_types = tuple(map(self._name, found[:MAX_KB_TYPES]))
        if len(own) == 1:
            types = nearest_types(found, heights, self._type_of)
        else:
            types = tuple(dict.fromkeys(chain.from_iterable(map(self._find_coarse, own[:MAX_KB_TYPES]))))
        return ClassTypes(kb_types, types, reason)

    def _find_coarse_types(self, number: int) -> tuple[str, ...]:
        return nearest_types(*self._graph.walk_up((number,), limits.MAX_ANCESTORS), self._type_of)

    def _find_type(self, number: int) -> str | None:
        return self._type_map.coarse_type(self._name(number))


def item_number(text: object) -> int:
    """The number in the id of an item ("Q42" is 42), or 0 if it is not one."""
    if not isinstance(text, str) or text[:1] != "Q" or not 2 <= len(text) <= _MAX_ID:
        return 0
    digits = text[1:]
    if not (digits.isascii() and digits.isdecimal()) or digits[0] == "0":
        return 0
    number = int(digits)
    return number if number <= _MAX_NUMBER else 0
