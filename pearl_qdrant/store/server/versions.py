"""Which collection of the server is behind a name, and whether a write to it counts.

A version of a collection is a collection of its own, called NAME.pearl-qdrant-v.ID. The current one is behind the alias
NAME. Where the server has a collection NAME itself, made by a load, an alias of that name is not possible: then the
metadata of that collection names the current version. Both change in one request.

A linker that writes while a collection is moved to another version must lose nothing. So whoever moves it notes this in
the metadata, and a writer looks after each write: if the collection is being moved, the writer waits until it knows
whether another version is current, and if so, the write is repeated there.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from pydantic import ValidationError
from qdrant_client import models

from pearl_qdrant.errors import (
    CollectionMovedError,
    CollectionNotFoundError,
    ManifestError,
    NoCurrentVersionError,
    StoreError,
    StoreRejectedError,
)
from pearl_qdrant.store.protocol import PLAIN, VersionMark
from pearl_qdrant.store.schema import Checkpoint, Manifest
from pearl_qdrant.store.server.connection import Connection

MANIFEST_KEY = "pearl_qdrant"  # key of the manifest in the collection's metadata; other keys there are never changed

CHECKPOINT_PREFIX = "pearl_qdrant_checkpoint_"
"""Each input that is being loaded has its own key, so that processes do not overwrite each other's checkpoints."""

VERSION_KEY = "pearl_qdrant_version"  # key of the `VersionMark` in a collection's metadata

POINTER_KEY = "pearl_qdrant_current"
"""Key in the metadata of a collection that a load made: the id of the version that took its place."""

MOVING_KEY = "pearl_qdrant_moving"
"""Key in the metadata of the current version while it is moved: who does it, and a number that grows."""

SILENT_S = 20.0  # if that number does not grow for so long, the process that moved the collection has died
_INFIX = ".pearl-qdrant-v."
POLL_S = 0.1
BEAT_S = 2.0  # how often whoever moves a collection says that it still does
_GAP_S = 3.0  # how long a name may be missing while its collection is replaced by an alias; it takes two requests


def physical_name(name: str, version: str) -> str:
    """Return the server's own name of a version."""
    return name if version == PLAIN else f"{name}{_INFIX}{version}"


def split_name(physical: str) -> tuple[str, str]:
    """Reverse `physical_name`: the collection and the version."""
    name, infix, version = physical.rpartition(_INFIX)
    return (name, version) if infix else (physical, PLAIN)


def checkpoint_key(input_name: str) -> str:
    """Key of the checkpoint of an input."""
    return CHECKPOINT_PREFIX + sha256(input_name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def parse_manifest(metadata: Mapping[str, Any] | None, name: str) -> Manifest:
    """Read the manifest and the checkpoints of a collection from its metadata; ManifestError if they are not there."""
    metadata = metadata or {}
    checkpoints = [value for key, value in metadata.items() if key.startswith(CHECKPOINT_PREFIX) and value]
    manifest = Manifest.parse(metadata.get(MANIFEST_KEY), name)
    try:
        parsed = tuple(map(Checkpoint.model_validate, checkpoints))
    except ValidationError as error:
        raise ManifestError(name, f"a checkpoint is unreadable: {error.errors()[0]['msg']}") from error
    return manifest.with_checkpoints(tuple(sorted(parsed, key=lambda one: one.input)))


def read_mark(metadata: Mapping[str, Any] | None, name: str) -> VersionMark:
    """Read the mark of a version; a collection that a load made has none of its own."""
    try:
        return msgspec.convert((metadata or {})[VERSION_KEY], VersionMark)
    except KeyError:
        return VersionMark(collection=name, is_complete=True)
    except msgspec.ValidationError:
        return VersionMark(collection=name, is_damaged=True)


class Current(NamedTuple):
    """The id of the current version of a collection, what the server says of it, and its name on the server."""

    version: str
    info: models.CollectionInfo
    physical: str


def find_current(connection: Connection, name: str, *, gap_s: float = _GAP_S) -> Current:
    """Find what is behind the name of a collection, or behind an alias of the user's; one request, or a few.

    Where there are versions but none is current, it looks again for `gap_s`.

    Raises:
        NoCurrentVersionError: If there are complete versions of it, but none is current.
        CollectionNotFoundError: If there is no collection of that name.
    """
    deadline = None
    while True:
        try:
            base, info = _behind_alias(connection, name)
            metadata = info.config.metadata or {}
            if version := metadata.get(POINTER_KEY):
                return Current(version, _get_named(connection, base, str(version)), physical_name(base, version))
            version = _existing(connection, base, read_mark(metadata, name).id)
            return Current(version, info, physical_name(base, version))
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
        time.sleep(POLL_S)


def _behind_alias(connection: Connection, name: str) -> tuple[str, models.CollectionInfo]:
    """The collection that a name means, and what the server says of it: another one for an alias of the user's, which
    may lead elsewhere at any time. A key that may not list aliases takes the name as it is.
    """
    info = _get(connection, name, PLAIN)
    manifest = (info.config.metadata or {}).get(MANIFEST_KEY)
    if not isinstance(manifest, dict) or manifest.get("collection") in (None, name):
        return name, info
    try:
        aliases = connection.call(connection.client.get_aliases).aliases
    except StoreRejectedError:
        return name, info
    for one in aliases:
        if one.alias_name == name:
            return one.collection_name, _get(connection, one.collection_name, PLAIN)
    return name, info  # a copy that was restored under another name


def _complete_versions(connection: Connection, name: str, physical: Sequence[str]) -> list[str]:
    """The server's names of the versions of a collection that were current once, or might have been."""
    found = []
    for one in physical:
        if split_name(one)[0] == name != one:
            mark = read_mark(_get(connection, name, split_name(one)[1]).config.metadata, name)
            found += [one] if mark.is_complete or mark.is_damaged else []
    return found


def _get_named(connection: Connection, name: str, version: str) -> models.CollectionInfo:
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


def confirm_write(connection: Connection, name: str, physical: str) -> None:
    """Wait until a write to a version, by the server's name, is sure to count; CollectionMovedError if another one is
    current now.
    """
    seen, since = None, time.monotonic()
    while True:
        _, info, current = find_current(connection, name)
        if current != physical:
            raise CollectionMovedError(name)
        moving = (info.config.metadata or {}).get(MOVING_KEY)
        if not moving:
            return
        if moving != seen:
            seen, since = moving, time.monotonic()
        elif time.monotonic() - since > SILENT_S:
            return
        time.sleep(POLL_S)


class Hold:
    """Says in a collection's metadata that it is moved, again and again until the end of the block; None removes it."""

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

    def __enter__(self) -> Hold:
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
        while not self._end.wait(BEAT_S):
            number += 1
            with suppress(StoreError):
                self._say(f"{self._token} {number}")
                now = time.monotonic()
                self._is_broken |= now - self._said_at > SILENT_S / 2
                self._said_at = now
