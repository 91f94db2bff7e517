"""Hidden versions of a collection: those before the current one, and leftovers."""

from __future__ import annotations

import logging

from pearl_qdrant.errors import CollectionNotFoundError, NoCurrentVersionError
from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.store.versions.protocol import PLAIN, Version

log = logging.getLogger(__name__)


def prune_collection(name: str, *, store: StoreLike = None) -> int:
    """Delete the versions of a collection that another one took the place of; returns how many there were.

    A version that is newer than the current one, or whose mark is damaged, stays, with a warning in the log. Readers that still have an older version open on a server get errors: let them reload first. Leftovers of calls that
    died are deleted, too, and what a call builds at the moment.

    Args:
        name: The collection.
        store: An open store, a folder or a URL; None: from PEARL_QDRANT_STORE, else QDRANT_URL, else the user's data
            folder. The key of a server is read from the environment.

    Raises:
        CollectionNotFoundError: If there is no collection of that name.
        StoreLockedError: If an older version is open for writing (embedded store).
        StoreError: If a version cannot be deleted, or it is not known which one is current. Then nothing is deleted.
    """
    with use_store(store) as opened:
        versions = opened.versions.list(name)
        if not versions:
            raise CollectionNotFoundError(name, opened.collections())
        if not versions[0].is_current:  # an embedded store has refused this already
            from pearl_qdrant.store.server.current import physical_name

            raise NoCurrentVersionError(name, [physical_name(name, version.id) for version in versions])
        others = [version for version in versions[1:] if not _is_kept(version, versions[0])]
        for version in sorted(others, key=lambda one: one.id == PLAIN):  # on a server, the last one frees the name
            opened.versions.delete(name, version.id)
        return len(others)


def _is_kept(version: Version, current: Version) -> bool:
    """Whether a version is newer than the current one, or nobody knows what it is; the log says so."""
    why = "its mark (version.json) cannot be read" if version.mark.is_damaged else "it is newer than the current one"
    if version.mark.is_damaged or version.mark.number > current.mark.number:
        log.warning("Version %s of collection '%s' is kept: %s", version.id or "''", current.mark.collection, why)
        return True
    return False
