"""Which version of an embedded collection is current: the collection itself, or one that took its place.

    NAME/                    the version that a load made, as before there were others
    NAME/current.json        the version that is current; absent if it is the one above
    NAME/.versions/ID/       each other version: a collection folder of its own
    NAME/.versions/ID/version.json   what it says of itself, see `VersionMark`
    .build-ID/               a version that is being built, also with its version.json

`current.json` is replaced atomically. A reader looks at it when it opens a collection, and then works within the folder
of that version alone.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from pydantic import ValidationError

from pearl_qdrant.store.atomic import read_at_most, sync_folder, write_atomically
from pearl_qdrant.store.versions.protocol import PLAIN, VersionMark

POINTER_FILE = "current.json"
VERSIONS_FOLDER = ".versions"
MARK_FILE = "version.json"
BUILD_PREFIX = ".build-"

_MAX_BYTES = 4096
_ID = re.compile(r"[0-9a-f]{1,64}")


class _Pointer(msgspec.Struct):
    """The content of `POINTER_FILE`."""

    version: str = PLAIN


def current_version(root: Path) -> str:
    """Return the id of the current version of a collection's folder."""
    try:
        with (root / POINTER_FILE).open("rb") as file:
            version = msgspec.json.decode(read_at_most(file, _MAX_BYTES), type=_Pointer).version
    except (OSError, ValueError, RecursionError):
        return PLAIN
    return version if _ID.fullmatch(version) else PLAIN


def version_path(root: Path, version: str) -> Path:
    """Return the folder of a version."""
    return root if version == PLAIN else root / VERSIONS_FOLDER / version


def current_path(root: Path) -> Path:
    """Return the folder of the current version."""
    return version_path(root, current_version(root))


def root_of(path: Path) -> Path:
    """Return the folder of the collection of which `path` is a version."""
    return path.parent.parent if path.parent.name == VERSIONS_FOLDER and (path / MARK_FILE).is_file() else path


def write_current(root: Path, version: str) -> None:
    """Make a version the current one, atomically and durably; raises OSError."""
    if version == PLAIN:
        (root / POINTER_FILE).unlink(missing_ok=True)
        sync_folder(root)
    else:
        write_atomically(root / POINTER_FILE, msgspec.json.encode(_Pointer(version)).decode())


def read_mark(path: Path, name: str) -> VersionMark:
    """Read the mark of a version's folder; one that a load made has none."""
    try:
        with (path / MARK_FILE).open("rb") as file:
            return VersionMark.model_validate_json(read_at_most(file, _MAX_BYTES))
    except (OSError, ValidationError):
        return VersionMark(id=PLAIN, collection=name, is_complete=True)


def write_mark(path: Path, mark: VersionMark) -> None:
    """Replace the mark of a version's folder; raises OSError."""
    write_atomically(path / MARK_FILE, mark.model_dump_json())
