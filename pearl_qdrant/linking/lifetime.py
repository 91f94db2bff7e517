"""The open or closed state of a linker, and the state of its collections: read-only, outdated, reloaded."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import CollectionMovedError, LinkerClosedError, ReadOnlyError
from pearl_qdrant.store.protocol import Collection, Store
from pearl_qdrant.store.schema import Manifest

T = TypeVar("T")

MOST_MOVES = 3
"""How often an edit is repeated because the collection was moved."""


def encoder_of(manifest: Manifest, model: str | None = None, *, device: str) -> Encoder:
    """Load the model that encoded a collection, or another one that the caller names."""
    return load_encoder(model or manifest.model, device=device, pooling=manifest.pooling, prefix=manifest.prefix)


class Lifetime:
    """Guards the uses of an object that another thread may close meanwhile.

    There is no lock: a use that runs while another thread closes may finish, or may fail somewhere in the store. In
    the second case the guard replaces the store's error with `LinkerClosedError`.

    Args:
        names: Names of the open collections, for the error.
        is_read_only: Whether edits are refused.

    Attributes:
        reloading: Held while the collections are opened again.
    """

    def __init__(self, names: Sequence[str], *, is_read_only: bool = False) -> None:
        self._names = list(names)
        self._is_closed = False
        self.is_read_only = is_read_only
        self.reloading = threading.Lock()

    def end(self) -> bool:
        """Mark as closed; returns False if it was closed already."""
        was_open = not self._is_closed
        self._is_closed = True
        return was_open

    def check(self) -> None:
        """Raise `LinkerClosedError` if closed."""
        if self._is_closed:
            raise LinkerClosedError(self._names)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Guard one use."""
        self.check()
        try:
            yield
        except LinkerClosedError:
            raise
        except Exception:
            self.check()
            raise

    @contextmanager
    def in_edit(self) -> Iterator[None]:
        """Guard one edit. Raises ReadOnlyError if the linker is read-only."""
        with self.in_use():
            if self.is_read_only:
                raise ReadOnlyError(self._names, "adding, deleting and learning")
            yield

    def while_open(self, answers: Iterator[T]) -> Iterator[T]:
        """Yield answers until closed; then raise."""
        with self.in_use():
            for answer in answers:
                self.check()
                yield answer


class Reloader(ABC):
    """The part of `EntityLinker` that follows the changes of other processes."""

    _collections: tuple[Collection, ...]
    _store: Store
    _lifetime: Lifetime
    _warnings: tuple[str, ...]

    @abstractmethod
    def _take(self, collections: Sequence[Collection]) -> None:
        """Use these open collections from now on."""

    @property
    def is_outdated(self) -> bool:
        """Whether a newer state of a collection exists than the one that is open here.

        `reload` brings it. Embedded, that is any change of a collection that was opened read-only; asking takes one
        look at two files. On a server, it is another version of it, as after `reencode`; the server is asked once in a
        second at most.
        """
        with self._lifetime.in_use():
            return any(collection.is_outdated for collection in self._collections)

    def _repeat_if_moved(self, edit: Callable[[], T]) -> T:
        """Do an edit; once more in the new version if another one took the collection's place meanwhile."""
        for _ in range(MOST_MOVES):
            try:
                return edit()
            except CollectionMovedError:
                self.reload()
        return edit()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why answers may be wrong: a text for each collection whose load or update had not finished on opening.

        They are logged on opening, too, and each link carries them. Of collections that were opened read-only and
        changed since, one more text says so, which links do not carry.
        """
        outdated = [one.name for one in self._collections if one.is_outdated]
        newer = f"{', '.join(outdated)} changed after this linker was opened: reload() brings the newer state."
        return (*self._warnings, newer) if outdated else self._warnings

    def reload(self) -> bool:
        """Open the collections again if there is a newer state; returns whether there was one.

        Collections on a server are always read again: their manifests, statistics and learned names. Links that are
        being made meanwhile are of the older state or of the newer one.

        Raises:
            CollectionNotFoundError: If a collection does not exist any more; the linker keeps its state.
            ModelMismatchError: If another model encoded it since, and this linker was opened with a model of its own;
                as before.
            StoreError: If it cannot be opened; as before.
        """
        with self._lifetime.in_use(), self._lifetime.reloading:
            newer = [collection.is_outdated or collection.is_remote for collection in self._collections]
            if any(newer):
                read_only = self._lifetime.is_read_only
                self._take(
                    [
                        self._store.open(collection.name, read_only=read_only) if is_newer else collection
                        for collection, is_newer in zip(self._collections, newer, strict=True)
                    ]
                )
            return any(newer)
