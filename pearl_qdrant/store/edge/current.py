"""Which version of an embedded collection is current: the collection itself, or one that took its place.

    NAME/                    the version that a load made, as before there were others
    NAME/current.json        the version that is current; absent if there has never been another than the one above
    NAME/.versions/ID/       each other version: a collection folder of its own
    NAME/.versions/ID/version.json   what it says of itself, see `VersionMark`
    .build-ID/               a version that is being built, also with its version.json

`current.json` is written before `.versions` has anything in it, and replaced atomically. So where versions are and no
usable `current.json`, it was lost: nothing is opened or deleted then. A reader looks at it when it opens a collection,
and then works within the folder of that version alone.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from pydantic import ValidationError

from pearl_qdrant.errors import ManifestError, StoreError
from pearl_qdrant.store.atomic import read_at_most, write_atomically
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.content import read_manifest
from pearl_qdrant.store.versions import PLAIN, VersionMark

POINTER_FILE = "current.json"
VERSIONS_FOLDER = ".versions"
MARK_FILE = "version.json"
BUILD_PREFIX = ".build-"

_MAX_BYTES = 4096
_ID = re.compile(r"[0-9a-f]{1,64}")


class _Pointer(msgspec.Struct):
    """The content of `POINTER_FILE`."""

    version: str


def current_version(root: Path) -> str:
    """Return the id of the current version of a collection's folder.

    Raises:
        StoreError: If the file that says it is missing or damaged, or names a version that is not there.
    """
    seen = None
    while True:
        try:
            with (root / POINTER_FILE).open("rb") as file:
                version = msgspec.json.decode(read_at_most(file, _MAX_BYTES), type=_Pointer).version
        except (FileNotFoundError, NotADirectoryError):
            if not version_folders(root):
                return PLAIN
            raise _lost_error(root, "is missing") from None
        except OSError as error:
            raise edge_shard.os_error(error, root.name, "opening it") from error
        except (ValueError, RecursionError) as error:
            raise _lost_error(root, f"is damaged ({error})") from error
        if version == PLAIN or (_ID.fullmatch(version) and version_path(root, version).is_dir()):
            return version
        if version == seen:  # else another process has replaced it meanwhile, and deleted what it named
            raise _lost_error(root, f"names a version that is not there ({version!a})")
        seen = version


def version_folders(root: Path) -> list[Path]:
    """Return the folders of the versions that took the place of the one that a load made."""
    return sorted(path for path in (root / VERSIONS_FOLDER).glob("[!.]*") if path.is_dir())


def _lost_error(root: Path, why: str) -> StoreError:
    """Make the error for a collection of which nobody knows the current version; it names the latest one first."""
    marks = [(read_mark(path, root.name), path) for path in (root, *version_folders(root))]
    found = []
    for mark, path in sorted(marks, key=lambda one: -one[0].number):
        try:
            manifest = read_manifest(path, root.name)
        except ManifestError:  # a version that was pruned, or is damaged itself
            continue
        found.append(
            (mark, f"{mark.id or 'the first one'} ({mark.made_by}, {manifest.names:,} names, {manifest.model})")
        )
    usable = [mark.id for mark, _ in found if mark.is_complete]
    choose = (
        ""
        if not usable
        else (
            f" or choose one, as in: echo '{msgspec.json.encode(_Pointer(usable[0])).decode()}' > {root / POINTER_FILE}"
        )
    )
    return StoreError(
        f"Collection '{root.name}' has versions, and its {POINTER_FILE}, which says which is current, {why}. "
        f"Nothing is lost: there are, the latest first, {'; '.join(text for _, text in found) or 'none'}. Restore "
        f"{POINTER_FILE} from a copy,{choose}"
    )


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
    write_atomically(root / POINTER_FILE, msgspec.json.encode(_Pointer(version)).decode())


def read_mark(path: Path, name: str) -> VersionMark:
    """Read the mark of a version's folder; a collection of which a load made the only version has none."""
    is_version = path.parent.name == VERSIONS_FOLDER or path.name.startswith(BUILD_PREFIX)
    version = path.name.removeprefix(BUILD_PREFIX) if is_version else PLAIN
    try:
        with (path / MARK_FILE).open("rb") as file:
            return VersionMark.model_validate_json(read_at_most(file, _MAX_BYTES)).model_copy(update={"id": version})
    except FileNotFoundError:
        return VersionMark(id=version, collection=name, is_complete=not is_version, is_damaged=is_version)
    except (OSError, ValidationError):
        return VersionMark(id=version, collection=name, is_damaged=True)


def write_mark(path: Path, mark: VersionMark) -> None:
    """Replace the mark of a version's folder; raises OSError."""
    write_atomically(path / MARK_FILE, mark.model_dump_json())
