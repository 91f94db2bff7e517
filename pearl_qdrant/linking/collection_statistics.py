"""Statistics of the linked collections: rarity of n-grams, number of names, types, how names are written.

They are computed on first use, and again after an edit. So a linker answers after `add` and `delete` exactly as one
that is opened then.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar, cast

from pearl_qdrant.errors import ManifestError
from pearl_qdrant.lexical.idf import IdfTable
from pearl_qdrant.linking.candidates import SearchTarget
from pearl_qdrant.linking.mention_detection.name_policy import SAMPLE, NameCase
from pearl_qdrant.store.protocol import Collection

_ALL_TYPES = 200_000
"""More types than any base has; Wikidata has 100,000 classes with at least one item."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SearchTargets:
    """A snapshot of the collections to search.

    Attributes:
        all: The collections, each with its IDF table.
        log_size: Natural logarithm of the number of names in all of them.
    """

    all: tuple[SearchTarget, ...]
    log_size: float


class CollectionStatistics:
    """Statistics of a linker's collections. Safe to use from several threads.

    Args:
        collections: Open collections.
    """

    def __init__(self, collections: Sequence[Collection]) -> None:
        self._collections = tuple(collections)
        self._lock = threading.Lock()
        self._values: dict[Callable[..., object], object] = {}
        self._edit = object()

    @property
    def names(self) -> list[str]:
        """Names of the collections."""
        return [collection.name for collection in self._collections]

    @property
    def is_remote(self) -> bool:
        """Whether a collection is on a server."""
        return any(collection.is_remote for collection in self._collections)

    def targets(self) -> SearchTargets:
        """The collections to search. Raises ManifestError if the IDF table of a collection is damaged."""
        return self._kept(self._compute_targets)

    def types(self) -> frozenset[str]:
        """All types that an entity has: native, coarse and predicted."""
        return self._kept(self._compute_types)

    def name_case(self) -> NameCase:
        """How the collections write their names."""
        return self._kept(self._compute_name_case)

    def has_type(self, name: str) -> bool:
        """Whether an entity has this type. Also asks the collections: a server may list only frequent types."""
        return name in self.types() or any(collection.has_type(name) for collection in self._collections)

    def languages_like(self, languages: Sequence[str]) -> tuple[str, ...]:
        """Some languages, and those of the names that are one of them with a country or script: `de-at` for `de`."""
        known = sorted(one for one in self._kept(self._compute_languages) if _plain(one) in languages)
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
        with self._lock:
            self._edit = object()
            self._values.clear()

    def _kept(self, compute: Callable[[], T]) -> T:
        """A value that is computed on first use and kept until `invalidate`.

        The lock is held during the computation. So `invalidate` waits for a computation that began before the edit,
        then discards its result, and no thread can store an outdated value afterwards.
        """
        with self._lock:
            if compute not in self._values:
                self._values[compute] = compute()
            return cast("T", self._values[compute])

    def _compute_targets(self) -> SearchTargets:
        targets = tuple(SearchTarget(collection, _idf(collection)) for collection in self._collections)
        return SearchTargets(targets, math.log(max(1, sum(map(_n_names, self._collections)))))

    def _compute_name_case(self) -> NameCase:
        return NameCase.of_points(p for c in self._collections for p in islice(c.scroll(), SAMPLE))

    def _compute_types(self) -> frozenset[str]:
        counts = [collection.type_counts(_ALL_TYPES) for collection in self._collections]
        # Edge still lists types whose points were all deleted, with a count of 0.
        return frozenset(name for one in counts for values in one.values() for name, n in values.items() if n)

    def _compute_languages(self) -> frozenset[str]:
        return frozenset(name for one in self._collections for name in one.language_counts())


def _plain(language: str) -> str:
    """The code of a language without country and script."""
    return re.split("[-_]", language)[0]


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
