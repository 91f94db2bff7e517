"""Versions of collections on a server: built as hidden collections, made current by an alias or by metadata."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from qdrant_client import models

from pearl_qdrant.errors import CollectionNotFoundError, ManifestError, StoreError
from pearl_qdrant.store.protocol import Placement
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.store.server.collection import ServerCollection, parse_manifest
from pearl_qdrant.store.server.connection import Connection
from pearl_qdrant.store.server.current import (
    MOVING_KEY,
    POINTER_KEY,
    SILENT_S,
    VERSION_KEY,
    find_current,
    physical_name,
    read_mark,
    split_name,
)
from pearl_qdrant.store.versions import PLAIN, Maker, Version, VersionMark, placement_of

if TYPE_CHECKING:
    from pearl_qdrant.store.server.store import ServerStore

_BEAT_S = 2.0
"""How often whoever moves a collection says that it still does."""

_POLL_S = 0.1


class ServerVersions:
    """The versions of a server's collections; see `versions.Versions`."""

    def __init__(self, store: ServerStore) -> None:
        self._store = store
        self._connection: Connection = store.connection
        self._holds: dict[str, _Hold] = {}

    def list(self, name: str) -> list[Version]:
        """Return all versions of a collection, the current one first."""
        found = [version for one, version in map(split_name, self._connection.collections()) if one == name]
        current = self._current(name) if found else None
        listed = []
        for version in found:
            info = self._connection.info(physical_name(name, version))
            try:
                manifest: Manifest | None = parse_manifest(info.config.metadata, name)
            except ManifestError:
                manifest = None
            mark = replace(read_mark(info.config.metadata, name), id=version)
            listed.append(Version(mark, version == current, manifest))
        return sorted(listed, key=lambda one: (not one.is_current, one.id))

    def create(
        self, manifest: Manifest, *, version: str, made_by: Maker, placement: Placement | None = None
    ) -> ServerCollection:
        """Create a hidden version, and open it."""
        name = manifest.collection
        mark = VersionMark(id=version, collection=name, made_by=made_by, placement=placement_of(placement))
        self._store.create_physical(
            physical_name(name, version), manifest, placement, metadata={VERSION_KEY: asdict(mark)}
        )
        return self.open(name, version)

    def open(self, name: str, version: str, *, read_only: bool = False) -> ServerCollection:
        """Open a version."""
        info = self._connection.info(physical_name(name, version))
        return self._store.open_physical(name, version, info, is_hidden=True)

    @contextmanager
    def moving(self, name: str, *, wait_s: float) -> Iterator[ServerCollection]:
        """Hold writers back; see `versions.Versions.moving`."""
        version = find_current(self._connection, name)[0]
        physical = physical_name(name, version)
        self._refuse_other_mover(name, physical, wait_s)
        hold = _Hold(lambda mark: self._set(physical, {MOVING_KEY: mark}))
        self._holds[name] = hold
        try:
            with hold:
                yield self._store.open_physical(name, version, self._connection.info(physical), is_hidden=True)
        finally:
            del self._holds[name]

    def _refuse_other_mover(self, name: str, physical: str, wait_s: float) -> None:
        """Wait until nobody else moves a collection; one that died is silent."""
        deadline, since, seen = time.monotonic() + wait_s, time.monotonic(), None
        while mark := (self._connection.info(physical).config.metadata or {}).get(MOVING_KEY):
            if mark != seen:
                seen, since = mark, time.monotonic()
            if time.monotonic() - since > min(SILENT_S, 3 * _BEAT_S):
                return
            if time.monotonic() > deadline + SILENT_S:
                raise StoreError(f"Another process moves collection '{name}' to another version at the moment: wait.")
            time.sleep(_POLL_S)

    def switch(self, name: str, version: str) -> None:
        """Make a version the current one, in one request."""
        hold = self._holds.get(name)
        if hold is not None and not hold.is_sound:
            raise StoreError(
                f"Qdrant at {self._connection.location} did not answer for too long while collection '{name}' was "
                f"moved, so that its writers may not have waited. Run the same command again; it goes on."
            )
        before = self._current(name)
        if before == version:
            return
        number = 1 + max(one.mark.number for one in self.list(name))
        self._update_mark(name, version, is_complete=True, replaced=before, number=number)
        if name in self._connection.collections():  # an alias of that name is not possible
            self._set(name, {POINTER_KEY: version or None})
        else:
            self._point_alias(name, version, exists=before is not None)

    def delete(self, name: str, version: str) -> None:
        """Delete a version that is not current."""
        current = self._current(name)
        if version == current:
            raise ValueError(f"version '{version}' of '{name}' is the current one")
        physical = physical_name(name, version)
        with suppress(CollectionNotFoundError):
            self._call(lambda: self._connection.client.delete_collection(physical), physical)
        if version == PLAIN and current is not None:
            self._point_alias(name, current, exists=False)

    def delete_all(self, name: str) -> None:
        """Delete the alias of a collection, and all its versions."""
        physical = [one for one in self._connection.collections() if split_name(one)[0] == name]
        if name not in physical:
            remove = models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=name))
            self._call(lambda: self._connection.client.update_collection_aliases([remove]), name)
        for one in sorted(physical):  # the one of the plain name first: it says which is current
            with suppress(CollectionNotFoundError):
                self._call(lambda one=one: self._connection.client.delete_collection(one), one)  # type: ignore[misc]

    def _current(self, name: str) -> str | None:
        with suppress(CollectionNotFoundError):
            return find_current(self._connection, name, gap_s=0)[0]
        return None

    def _point_alias(self, name: str, version: str, *, exists: bool) -> None:
        """Let an alias name a version, in one request."""
        target = models.CreateAlias(collection_name=physical_name(name, version), alias_name=name)
        operations: list[models.AliasOperations] = [models.CreateAliasOperation(create_alias=target)]
        if exists:
            operations.insert(0, models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=name)))
        self._call(lambda: self._connection.client.update_collection_aliases(operations), name)

    def _update_mark(self, name: str, version: str, **changes: object) -> None:
        physical = physical_name(name, version)
        mark = read_mark(self._connection.info(physical).config.metadata, name)
        self._set(physical, {VERSION_KEY: asdict(mark) | changes})

    def _set(self, physical: str, metadata: dict[str, object]) -> None:
        self._call(lambda: self._connection.client.update_collection(physical, metadata=metadata), physical)

    def _call(self, request: Callable[[], object], physical: str) -> object:
        return self._connection.call(request, collection=physical)


class _Hold:
    """Says in a collection's metadata that it is moved, again and again until the end of the block.

    Args:
        say: Writes the text, or removes it if it is None.
    """

    def __init__(self, say: Callable[[str | None], None]) -> None:
        self._say = say
        self._token = os.urandom(6).hex()
        self._said_at = 0.0
        self._is_broken = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="pearl-qdrant-moving", daemon=True)

    @property
    def is_sound(self) -> bool:
        """Whether no writer can have taken this process for dead."""
        return not self._is_broken and time.monotonic() - self._said_at < SILENT_S / 2

    def __enter__(self) -> _Hold:
        self._say(f"{self._token} 0")
        self._said_at = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._end.set()
        self._thread.join()
        with suppress(StoreError):  # the version that was left may be deleted by now
            self._say(None)

    def _beat(self) -> None:
        number = 0
        while not self._end.wait(_BEAT_S):
            number += 1
            with suppress(StoreError):
                self._say(f"{self._token} {number}")
                now = time.monotonic()
                self._is_broken |= now - self._said_at > SILENT_S / 2
                self._said_at = now
