"""Statistics of the open collections of a linker: rarity of n-grams, number of names, types, how names are written.

They are computed on first use, and again after an edit. So a linker answers after `add` and `delete` exactly as one
that is opened then.
"""

from __future__ import annotations

import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import islice
from typing import TypeVar, cast

from pearl_qdrant.errors import ManifestError
from pearl_qdrant.lexical.ngrams import SAMPLE_NAMES, IdfTable
from pearl_qdrant.linking.candidates import SearchTarget
from pearl_qdrant.linking.columns import sample
from pearl_qdrant.linking.mention_detection.name_policy import SAMPLE, NameCase
from pearl_qdrant.linking.values import BaseColumn
from pearl_qdrant.store.protocol import Collection

T = TypeVar("T")

_ALL_TYPES = 200_000  # more types than any base has; Wikidata has 100,000 classes with at least one item


def _kept(compute: Callable[[CollectionStatistics], T]) -> Callable[[CollectionStatistics], T]:
    """A statistic that is computed on first use and kept until `invalidate`. The lock is held during the computation.
    So `invalidate` waits for a computation that began before the edit, then discards its result, and no thread can
    store an outdated value afterwards.
    """

    @wraps(compute)
    def kept(statistics: CollectionStatistics) -> T:
        with statistics.lock:
            if compute not in statistics.values:
                statistics.values[compute] = compute(statistics)
            return cast("T", statistics.values[compute])

    return kept


@dataclass(frozen=True, slots=True)
class SearchTargets:
    """A snapshot of the collections to search."""

    all: tuple[SearchTarget, ...]  # the collections, each with its IDF table
    log_size: float  # natural logarithm of the number of names in all of them

    @property
    def has_all_words(self) -> bool:
        """Whether the IDF tables have counted all names; those of large bases have seen a sample."""
        return self.log_size <= math.log(SAMPLE_NAMES)


class CollectionStatistics:
    """Statistics of a linker's open collections. Safe to use from several threads."""

    def __init__(self, collections: Sequence[Collection]) -> None:
        self._collections = tuple(collections)
        self.lock = threading.Lock()
        self.values: dict[Callable[..., object], object] = {}
        self._edit = object()

    @property
    def names(self) -> list[str]:
        """Names of the collections."""
        return [collection.name for collection in self._collections]

    @property
    def is_remote(self) -> bool:
        """Whether a collection is on a server."""
        return any(collection.is_remote for collection in self._collections)

    @_kept
    def targets(self) -> SearchTargets:
        """The collections to search. Raises ManifestError if the IDF table of a collection is damaged."""
        targets = tuple(SearchTarget(collection, _idf(collection)) for collection in self._collections)
        return SearchTargets(targets, math.log(max(1, sum(map(_n_names, self._collections)))))

    @_kept
    def type_counts(self) -> Counter[str]:
        """Names of each type that an entity has: native, coarse and predicted."""
        found = Counter[str]()
        for one in self._collections:
            of_one: dict[str, int] = {}  # a name may have a type in several fields
            for values in one.type_counts(_ALL_TYPES).values():
                for name, n in values.items():
                    of_one[name] = max(n, of_one.get(name, 0))
            found.update(of_one)
        return +found  # Edge still lists types whose points were all deleted, with a count of 0

    def types(self) -> frozenset[str]:
        """All types that an entity has."""
        return frozenset(self.type_counts())

    @_kept
    def name_case(self) -> NameCase:
        """How the collections write their names."""
        return NameCase.of_points(p for c in self._collections for p in islice(c.scroll(), SAMPLE))

    @_kept
    def columns(self) -> dict[str, BaseColumn]:
        """The columns of the entities, by a sample of them."""
        values: dict[str, list[list[str]]] = {}
        for entity in sample(self._collections):
            for name in entity.property_ids():
                values.setdefault(name, []).append(entity.values(name))
        return {name: BaseColumn.of(has) for name, has in values.items()}

    @_kept
    def _languages(self) -> frozenset[str]:
        return frozenset(name for one in self._collections for name in one.language_counts())

    def has_type(self, name: str) -> bool:
        """Whether an entity has this type. Also asks the collections: a server may list only frequent types."""
        return name in self.types() or any(collection.has_type(name) for collection in self._collections)

    def languages_like(self, languages: Sequence[str]) -> tuple[str, ...]:
        """Some languages, and those of the names that are one of them with a country or script: `de-at` for `de`."""
        known = sorted(one for one in self._languages() if re.split("[-_]", one)[0] in languages)
        return tuple(dict.fromkeys((*languages, *known)))

    def state(self) -> tuple[object, ...] | None:
        """What changes with each edit of the collections in this process; two states are equal if their items are.
        Every edit writes the manifest. None if a collection may change without that: on a server, which has other
        clients, and during a load.
        """
        manifests = [collection.manifest for collection in self._collections]
        if self.is_remote or any(manifest.state != "ready" for manifest in manifests):
            return None
        return (self._edit, *manifests)

    def invalidate(self) -> None:
        """Forget all statistics; call it after each edit."""
        with self.lock:
            self._edit = object()
            self.values.clear()


def _n_names(collection: Collection) -> int:
    """Names in a collection, by its manifest, which edits keep up to date; counted if the load is not complete."""
    manifest = collection.manifest
    return manifest.names if manifest.state == "ready" and manifest.names else collection.count()


def _idf(collection: Collection) -> IdfTable:
    """The stored IDF table; computed if there is none, as in a collection that only `add` filled."""
    text = collection.manifest.ngram_rarity
    if text is not None:
        try:
            return IdfTable.from_text(text)
        except ValueError as error:
            raise ManifestError(collection.name, f"its IDF table is damaged ({error})") from error
    return IdfTable.from_names(point.name for point in collection.scroll())
