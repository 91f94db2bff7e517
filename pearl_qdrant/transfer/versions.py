"""Hidden versions of a collection: those before the current one, and leftovers."""

from __future__ import annotations

import logging

from pearl_qdrant.errors import CollectionNotFoundError, NoCurrentVersionError
from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.store.protocol import Store
from pearl_qdrant.store.versions import PLAIN, Version

log = logging.getLogger(__name__)


def prune_collection(name: str, *, store: StoreLike = None) -> int:
    """Delete the versions of a collection that another one took the place of; returns how many there were.

    A version that is newer than the current one, or whose mark is damaged, stays, with a warning in the log. Readers
    that still have an older version open on a server get errors: let them reload first. Leftovers of calls that died
    are deleted, too, and what a call builds at the moment.

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
        number = _current_number(name, opened, versions[0])
        others = [version for version in versions if not (version.is_current or _is_kept(version, name, number))]
        for version in sorted(others, key=lambda one: one.id == PLAIN):  # on a server, the last one frees the name
            opened.versions.delete(name, version.id)
        return len(others)


def _current_number(name: str, store: Store, first: Version) -> int:
    """The number of the current version; 0 if there are only leftovers of calls that died.

    Raises:
        StoreError: If there are versions, and it is not known which one is current.
    """
    if not first.is_current:
        try:
            store.open(name, read_only=True).close()
        except NoCurrentVersionError:
            raise
        except CollectionNotFoundError:
            return 0
    return first.mark.number


def _is_kept(version: Version, name: str, number: int) -> bool:
    """Whether a version is newer than the current one, or nobody knows what it is; the log says so."""
    why = "its mark cannot be read" if version.mark.is_damaged else "it is newer than the current one"
    if version.mark.is_damaged or version.mark.number > number:
        log.warning("Version %s of collection '%s' is kept: %s", version.id or "''", name, why)
        return True
    return False
