"""What the classes of an item say about it: its ancestors, its coarse types, and whether it is to be read at all."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice

from ingest.ancestors import ClassGraph
from ingest.type_map import TypeMap

MAX_KB_TYPES = 64
"""Native types kept of an entity. Beyond the nearest come philosophical ones that every entity has."""

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
"""Pages of the projects that no text ever mentions."""

_CACHED = 16_384


@dataclass(frozen=True, slots=True)
class ClassTypes:
    """What a set of classes means.

    Attributes:
        kb_types: Ids of the classes and of all above them, nearest first, at most `MAX_KB_TYPES`.
        types: Coarse types.
        is_internal: Whether an instance of them is a page of the Wikimedia projects itself.
        is_included: Whether one of the wanted classes is among them, or every class is wanted.
    """

    kb_types: tuple[str, ...]
    types: tuple[str, ...]
    is_internal: bool
    is_included: bool


class ClassTypeFinder:
    """Classes to `ClassTypes`, remembering the last ones."""

    def __init__(
        self, edges: Iterable[tuple[int, tuple[int, ...]]], *, type_map: TypeMap, wanted: frozenset[int]
    ) -> None:
        """Read the edges, 8 bytes each.

        Args:
            edges: Numbers of classes, each with those directly above it.
            type_map: From ids of classes to coarse types.
            wanted: Numbers of the classes to be read; all if empty.
        """
        children, parents = array("i"), array("i")
        for child, above in edges:
            children.extend([child] * len(above))
            parents.extend(above)
        self._graph = ClassGraph(children, parents)
        self._type_map = type_map
        self._wanted = wanted
        self._names: dict[int, str] = {}
        self.find = lru_cache(maxsize=_CACHED)(self._find)
        self._find_coarse = lru_cache(maxsize=_CACHED)(self._find_coarse_types)

    def _find(self, classes: tuple[int, ...], superclasses: tuple[int, ...]) -> ClassTypes:
        """What it means to be an instance of some classes, and a class below others; either may be empty."""
        own = tuple(dict.fromkeys((*classes, *superclasses)))
        levels = self._graph.levels(own)
        is_included = not self._wanted or any(not self._wanted.isdisjoint(level) for level in levels)
        of_instance = levels if not superclasses else self._graph.levels(classes)
        is_internal = any(not INTERNAL_CLASSES.isdisjoint(level) for level in of_instance)
        kb_types = tuple(self._name(number) for number in islice(chain.from_iterable(levels), MAX_KB_TYPES))
        types = tuple(dict.fromkeys(chain.from_iterable(map(self._find_coarse, own))))
        return ClassTypes(kb_types, types, is_internal, is_included)

    def _find_coarse_types(self, number: int) -> tuple[str, ...]:
        """Coarse types of the nearest ancestors that have one: what is further up is vaguer, or another sense."""
        for level in self._graph.levels((number,)):
            types = self._type_map.map_types(map(self._name, level))
            if types:
                return types
        return ()

    def _name(self, number: int) -> str:
        """The id of a class, one string for all entities."""
        return self._names.setdefault(number, f"Q{number}")
