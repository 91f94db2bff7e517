"""Hidden versions of a collection: those before the current one, and leftovers."""

from __future__ import annotations

from pearl_qdrant.errors import CollectionNotFoundError
from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.store.versions.protocol import PLAIN


def prune_collection(name: str, *, store: StoreLike = None) -> int:
    """Delete all versions of a collection but the current one; returns how many there were.

    Readers that still have an older version open on a server get errors: let them reload first. Leftovers of calls that
    died are deleted, too, and what a call builds at the moment.

    Args:
        name: The collection.
        store: An open store, a folder or a URL; None: from PEARL_QDRANT_STORE, else QDRANT_URL, else the user's data
            folder. The key of a server is read from the environment.

    Raises:
        CollectionNotFoundError: If there is no collection of that name.
        StoreLockedError: If an older version is open for writing (embedded store).
        StoreError: If a version cannot be deleted.
    """
    with use_store(store) as opened:
        versions = opened.versions.list(name)
        if not versions:
            raise CollectionNotFoundError(name, opened.collections())
        others = [version.id for version in versions if not version.is_current]
        for version in sorted(others, key=lambda one: one == PLAIN):  # on a server, the last one frees the name
            opened.versions.delete(name, version)
        return len(others)
