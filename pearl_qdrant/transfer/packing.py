"""The fast way: the finished shard of a collection, graph and all, as a shard snapshot of the server."""

from __future__ import annotations

from typing import Protocol

from pearl_qdrant.errors import StoreError
from pearl_qdrant.store.protocol import Collection, Store
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.transfer.records import OnProgress


class CannotPackError(StoreError):
    """A collection cannot move as a snapshot; the message says why, as a part of a sentence."""


class Packer(Protocol):
    """Moves a finished shard between two kinds of store."""

    def move(self, source: Collection, target: Store, version: str, *, on_progress: OnProgress) -> Collection:
        """Make a hidden version in the target from the source's shard, and open it.

        Raises:
            CannotPackError: If that is not possible. Nothing is left in the target then.
            StoreError: If a store fails.
        """
        ...

    def manifest(self, source: Collection) -> Manifest:
        """Return the manifest of what `move` made."""
        ...
