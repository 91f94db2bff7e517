"""List, describe, delete and finalize collections of a store.

`store` is an open store, a folder or a URL. None means PEARL_QDRANT_STORE, else QDRANT_URL, else the user's data
folder. The key of a server is read from the environment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.store.protocol import CollectionStatus
from pearl_qdrant.store.schema import Manifest

SHOWN_TYPES = 25
"""Values of each type field in a description."""


@dataclass(frozen=True, slots=True)
class CollectionDescription:
    """The facts about a collection.

    Attributes:
        manifest: Its base, model and counts.
        status: Its points, graph and indexes.
        types: Points by value of each type field; the most frequent values.
    """

    manifest: Manifest
    status: CollectionStatus
    types: dict[str, dict[str, int]]

    def to_json(self) -> dict[str, Any]:
        """Return all facts as one flat JSON object, without checkpoints and the IDF table."""
        status = self.status
        return {
            **self.manifest.model_dump(exclude={"format_version", "checkpoints", "ngram_rarity"}),
            "points": status.points,
            "vectors": status.vectors,
            "indexed_vectors": status.indexed_vectors,
            "segments": status.segments,
            "is_finalized": status.is_finalized,
            "types": self.types,
        }


def list_collections(store: StoreLike = None) -> list[str]:
    """Return the names of all collections, sorted.

    Raises:
        StoreError: If the store cannot be read or does not answer.
    """
    with use_store(store) as opened:
        return opened.collections()


def describe_collection(name: str, *, store: StoreLike = None) -> CollectionDescription:
    """Return the facts about a collection.

    Raises:
        CollectionNotFoundError: If there is no collection of that name.
        StoreError: If the store cannot be opened or does not answer.
    """
    with use_store(store) as opened:
        collection = opened.open(name)
        try:
            return CollectionDescription(
                collection.manifest, collection.status(), collection.type_counts(limit=SHOWN_TYPES)
            )
        finally:
            collection.close()


def delete_collection(name: str, *, store: StoreLike = None) -> None:
    """Delete a collection with all its points, without a question.

    Raises:
        CollectionNotFoundError: If there is no collection of that name.
        StoreLockedError: If another process, or this one, has it open (embedded store).
        StoreError: If it cannot be deleted.
    """
    with use_store(store) as opened:
        opened.delete(name)


def finalize_collection(
    name: str,
    *,
    store: StoreLike = None,
    wait_s: float | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> CollectionStatus:
    """Build the graph of a collection, for fast search; return its status afterwards.

    Args:
        name: The collection.
        store: See the module.
        wait_s: How long to wait for a server that does not answer, in seconds; None: a few seconds if nothing listens,
            two minutes if it is busy.
        on_progress: Called from time to time with (vectors indexed, all vectors).

    Raises:
        CollectionNotFoundError: If there is no collection of that name.
        StoreError: If the graph cannot be built.
    """
    with use_store(store, wait_s=wait_s) as opened:
        collection = opened.open(name)
        try:
            collection.finalize(on_progress)
            return collection.status()
        finally:
            collection.close()
