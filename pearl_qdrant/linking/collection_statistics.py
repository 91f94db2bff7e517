"""What the linker knows of its collections beside their names: how rare n-grams are, how many names there are, types.

ScoredEntity when it is first needed, and anew after an edit, so that a linker answers after `add` and `delete` as one
that is opened then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pearl_qdrant.errors import ManifestError
from pearl_qdrant.lexical.idf import IdfTable, log_size
from pearl_qdrant.linking.candidates import SearchTarget
from pearl_qdrant.store.protocol import Collection

_ALL_TYPES = 200_000
"""More types than any base has: Wikidata has 100,000 classes with an item."""

T = TypeVar("T")


class _Kept(Generic[T]):
    """A value that is made when it is asked for, and kept until it is outdated. Thread-safe.

    One that is being made while it is outdated is made again: `invalidate` waits for it.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._value: T | None = None

    def get(self) -> T:
        with self._lock:
            if self._value is None:
                self._value = self._make()
            return self._value

    def invalidate(self) -> None:
        with self._lock:
            self._value = None


@dataclass(frozen=True, slots=True)
class SearchTargets:
    """Where to look, at one time.

    Attributes:
        every: The collections, each with the idf of n-grams in it.
        log_size: Natural logarithm of the names in all of them.
    """

    every: tuple[SearchTarget, ...]
    log_size: float


class CollectionStatistics:
    """Facts about the collections of a linker. Safe to use from several threads.

    Args:
        collections: Open.
    """

    def __init__(self, collections: Sequence[Collection]) -> None:
        self._collections = tuple(collections)
        self._places = _Kept(self._find_places)
        self._types = _Kept(self._find_types)

    @property
    def names(self) -> list[str]:
        """Names of the collections."""
        return [collection.name for collection in self._collections]

    @property
    def is_remote(self) -> bool:
        """Whether a collection lies on a server."""
        return any(collection.is_remote for collection in self._collections)

    def targets(self) -> SearchTargets:
        """Where to look.

        Raises:
            ManifestError: If a collection's table of rarities is damaged.
        """
        return self._places.get()

    def types(self) -> frozenset[str]:
        """Every type that an entity has, native, coarse or predicted."""
        return self._types.get()

    def has_type(self, name: str) -> bool:
        """Whether an entity has this type; asks the collections too: a server may list the most frequent alone."""
        return name in self.types() or any(collection.has_type(name) for collection in self._collections)

    def invalidate(self) -> None:
        """To be called after each edit."""
        self._places.invalidate()
        self._types.invalidate()

    def _find_places(self) -> SearchTargets:
        every = tuple(SearchTarget(collection, _idf(collection)) for collection in self._collections)
        return SearchTargets(every, log_size(sum(map(_n_names, self._collections))))

    def _find_types(self) -> frozenset[str]:
        counts = [collection.type_counts(_ALL_TYPES) for collection in self._collections]
        # Edge goes on to list the types of what was deleted, with 0 points.
        return frozenset(name for one in counts for values in one.values() for name, n in values.items() if n)


def _n_names(collection: Collection) -> int:
    """Names in a collection: as its manifest has it, which edits keep up to date; counted if it is not loaded whole."""
    manifest = collection.manifest
    return manifest.names if manifest.state == "ready" and manifest.names else collection.count()


def _idf(collection: Collection) -> IdfTable:
    """That of a collection; counted now if it was made without, as one that was filled by `add`."""
    text = collection.manifest.ngram_rarity
    if text is not None:
        try:
            return IdfTable.from_text(text)
        except ValueError as error:
            raise ManifestError(collection.name, f"its n-gram rarities are damaged ({error})") from error
    return IdfTable.from_names(point.name for point in collection.scroll())
