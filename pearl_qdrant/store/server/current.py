"""Which collection of the server is behind a name, and whether a write to it counts.

A version of a collection is a collection of its own, called NAME.pearl-qdrant-v.ID. The current one is behind the alias
NAME. Where the server has a collection NAME itself, made by a load, an alias of that name is not possible: then the
metadata of that collection names the current version. Both change in one request.

A linker that writes while a collection is moved to another version must lose nothing. So whoever moves it notes this in
the metadata, and a writer looks after each write: if the collection is being moved, the writer waits until it knows
whether another version is current, and if so, the write is repeated there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from qdrant_client import models

from pearl_qdrant.errors import CollectionMovedError, CollectionNotFoundError, NoCurrentVersionError
from pearl_qdrant.store.server.connection import Connection
from pearl_qdrant.store.versions import PLAIN, VersionMark

VERSION_KEY = "pearl_qdrant_version"
"""Key of the `VersionMark` in a collection's metadata."""

POINTER_KEY = "pearl_qdrant_current"
"""Key in the metadata of a collection that a load made: the id of the version that took its place."""

MOVING_KEY = "pearl_qdrant_moving"
"""Key in the metadata of the current version while it is moved: who does it, and a number that grows."""

SILENT_S = 20.0
"""If that number does not grow for so long, the process that moved the collection has died."""

_INFIX = ".pearl-qdrant-v."
_POLL_S = 0.1
_GAP_S = 3.0
"""How long a name may be missing while its collection is replaced by an alias; it takes two requests."""


def physical_name(name: str, version: str) -> str:
    """Return the server's own name of a version."""
    return name if version == PLAIN else f"{name}{_INFIX}{version}"


def split_name(physical: str) -> tuple[str, str]:
    """Reverse `physical_name`: the collection and the version."""
    name, infix, version = physical.rpartition(_INFIX)
    return (name, version) if infix else (physical, PLAIN)


def read_mark(metadata: Mapping[str, Any] | None, name: str) -> VersionMark:
    """Read the mark of a version; a collection that a load made has none of its own."""
    try:
        return msgspec.convert((metadata or {})[VERSION_KEY], VersionMark)
    except KeyError:
        return VersionMark(collection=name, is_complete=True)
    except msgspec.ValidationError:
        return VersionMark(collection=name, is_damaged=True)


def find_current(connection: Connection, name: str, *, gap_s: float = _GAP_S) -> tuple[str, models.CollectionInfo]:
    """Find the id of the current version of a collection, and what the server says of it; one request, or two.

    Where there are versions but none is current, it looks again for `gap_s`.

    Raises:
        NoCurrentVersionError: If there are complete versions of it, but none is current.
        CollectionNotFoundError: If there is no collection of that name.
    """
    deadline = None
    while True:
        try:
            info = _get(connection, name, PLAIN)
            metadata = info.config.metadata or {}
            if version := metadata.get(POINTER_KEY):
                return version, _get_named(connection, name, str(version))
            return _existing(connection, name, read_mark(metadata, name).id), info
        except NoCurrentVersionError:
            raise
        except CollectionNotFoundError as error:
            # The collection may just be replaced by an alias.
            if all(split_name(one) == (one, PLAIN) or split_name(one)[0] != name for one in error.existing):
                raise
            deadline = deadline or time.monotonic() + gap_s
            if time.monotonic() >= deadline:
                if complete := _complete_versions(connection, name, error.existing):
                    raise NoCurrentVersionError(name, complete) from error
                raise
        time.sleep(_POLL_S)


def _complete_versions(connection: Connection, name: str, physical: Sequence[str]) -> list[str]:
    """The server's names of the versions of a collection that were current once, or might have been."""
    found = []
    for one in physical:
        if split_name(one)[0] == name != one:
            mark = read_mark(_get(connection, name, split_name(one)[1]).config.metadata, name)
            found += [one] if mark.is_complete or mark.is_damaged else []
    return found


def _get_named(connection: Connection, name: str, version: str) -> models.CollectionInfo:
    """Look at the version that the metadata of a collection names."""
    try:
        return _get(connection, name, version)
    except CollectionNotFoundError as error:
        raise NoCurrentVersionError(
            name,
            [one for one in error.existing if split_name(one)[0] == name],
            f"its metadata names {physical_name(name, version)}, which is missing",
            advice=f"Restore that one from a snapshot, or go back to '{name}' itself: PATCH /collections/{name} with "
            f'{{"metadata": {{"{POINTER_KEY}": null}}}}',
        ) from error


def _existing(connection: Connection, name: str, version: str) -> str:
    """Return a version if there is one; a backup of it may have been restored as the collection itself."""
    physical = physical_name(name, version)
    if version == PLAIN or physical in connection.known_versions:
        return version
    try:
        _get(connection, name, version)
    except CollectionNotFoundError:
        return PLAIN
    connection.known_versions.add(physical)
    return version


def _get(connection: Connection, name: str, version: str) -> models.CollectionInfo:
    return connection.info(physical_name(name, version))


def confirm_write(connection: Connection, name: str, version: str) -> None:
    """Wait until a write to a version is sure to count; CollectionMovedError if another version is current now."""
    seen, since = None, time.monotonic()
    while True:
        current, info = find_current(connection, name)
        if current != version:
            raise CollectionMovedError(name)
        moving = (info.config.metadata or {}).get(MOVING_KEY)
        if not moving:
            return
        if moving != seen:
            seen, since = moving, time.monotonic()
        elif time.monotonic() - since > SILENT_S:
            return
        time.sleep(_POLL_S)
