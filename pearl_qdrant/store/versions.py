"""Versions: several states of a collection behind one name, one of which is current.

A version is built where nobody sees it, and one atomic change makes it current. The one before it stays until it is
pruned. Readers that are open keep the version that they opened.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from pearl_qdrant.store.schema import Manifest

if TYPE_CHECKING:
    from pearl_qdrant.store.protocol import Collection, Placement

PLAIN = ""
"""The id of the version that is the collection itself, as a load makes it."""

Maker = Literal["load", "push", "pull", "reencode"]


@dataclass(frozen=True, slots=True)
class VersionMark:
    """What a version says of itself, beside its manifest.

    Attributes:
        id, collection, made_by: Its id; of which collection; which call made it.
        is_complete: Whether it was built and checked; one that is not is a leftover, unless a call builds it now.
        replaced: Id of the version that it took the place of; None if there was none, or it was never current.
        number: How often another version had become current when this one did last; 0 if it never took a place.
        placement: How a cluster was told to distribute it: shards, replicas and write consistency; empty: not at all.
        is_damaged: Whether the mark cannot be read, so that nobody knows what the version is.
    """

    id: str = PLAIN
    collection: str = ""
    made_by: Maker = "load"
    is_complete: bool = False
    replaced: str | None = None
    number: int = 0
    placement: tuple[int | None, ...] = ()
    is_damaged: bool = False


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a collection; the current one is what opening the collection opens."""

    mark: VersionMark
    is_current: bool
    manifest: Manifest | None

    @property
    def id(self) -> str:
        """Its id."""
        return self.mark.id


class Versions(Protocol):
    """The versions of a store's collections."""

    def list(self, name: str) -> list[Version]:
        """Return all versions of a collection, the current one first, hidden and incomplete ones too."""
        ...

    def create(
        self, manifest: Manifest, *, version: str, made_by: Maker, placement: Placement | None = None
    ) -> Collection:
        """Create a hidden version of `manifest.collection`, with its payload indexes, and open it.

        Raises:
            CollectionExistsError: If it exists.
        """
        ...

    def open(self, name: str, version: str, *, read_only: bool = False) -> Collection:
        """Open a version; errors as for `Store.open`."""
        ...

    def moving(self, name: str, *, wait_s: float) -> AbstractContextManager[Collection]:
        """Hold all writers of the current version back, and open it, until the block ends; readers go on.

        Embedded, it is the lock of the collection, which no other process may have meanwhile. On a server, writers wait
        after each write until they know whether it counts, and repeat it if it does not.

        Raises:
            StoreLockedError: If another process, or this one, has it open for writing (embedded) after `wait_s`.
            StoreError: If somebody else moves it.
        """
        ...

    def switch(self, name: str, version: str) -> None:
        """Make a version the current one, atomically. The one before it stays.

        An embedded version is closed, and the caller is in `moving`, if there is a current version.
        """
        ...

    def delete(self, name: str, version: str) -> None:
        """Delete a version that is not current.

        Raises:
            StoreLockedError: If it is open for writing (embedded).
        """
        ...


def placement_of(placement: Placement | None) -> tuple[int | None, ...]:
    """The placement as a mark has it."""
    given = () if placement is None else astuple(placement)
    return given if any(given) else ()


def new_version() -> str:
    """An id that no other version has."""
    return os.urandom(6).hex()
