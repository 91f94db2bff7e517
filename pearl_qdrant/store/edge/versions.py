"""Versions of embedded collections: built in hidden folders, made current by one file."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pearl_qdrant.errors import CollectionExistsError, CollectionNotFoundError, ManifestError, StoreLockedError
from pearl_qdrant.store.atomic import sync_folder
from pearl_qdrant.store.edge import lock as edge_lock
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.collection import EdgeCollection
from pearl_qdrant.store.edge.content import LOCK_FILE, MANIFEST_FILE, SHARD_FOLDER, read_manifest
from pearl_qdrant.store.edge.current import (
    BUILD_PREFIX,
    POINTER_FILE,
    VERSIONS_FOLDER,
    current_path,
    current_version,
    read_mark,
    version_folders,
    version_path,
    write_current,
    write_mark,
)
from pearl_qdrant.store.edge.folder import CollectionFolder
from pearl_qdrant.store.edge.ledger import LEDGER_FILE
from pearl_qdrant.store.edge.placing import copy_file
from pearl_qdrant.store.protocol import Placement
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.store.versions import Maker, Version, VersionMark

if TYPE_CHECKING:
    from pearl_qdrant.store.edge.store import EdgeStore

_KEPT = {POINTER_FILE, VERSIONS_FOLDER, LOCK_FILE}
"""What stays in a collection's folder when the version that a load made is deleted."""

_RETRY_S = 0.2


class EdgeVersions:
    """The versions of an embedded store's collections; see `versions.Versions`."""

    def __init__(self, store: EdgeStore) -> None:
        self._store = store

    def list(self, name: str) -> list[Version]:
        """Return all versions of a collection, the current one first."""
        root = self._store.root(name)
        current = current_path(root)
        paths = [*([root] if is_plain(root) else []), *version_folders(root)]
        found = []
        for path in [*paths, *self.builds(name)]:
            try:
                manifest: Manifest | None = read_manifest(path, name)
            except ManifestError:
                manifest = None
            found.append(Version(read_mark(path, name), path == current, manifest))
        return sorted(found, key=lambda one: (not one.is_current, one.id))

    def create(
        self, manifest: Manifest, *, version: str, made_by: Maker, placement: Placement | None = None
    ) -> EdgeCollection:
        """Create a hidden version, and open it."""
        name = manifest.collection
        if self._find(name, version) is not None:
            raise CollectionExistsError(name)
        mark = VersionMark(id=version, collection=name, made_by=made_by)
        path = self._build_path(version)
        self._store.create_folder(path, manifest, placement, mark=mark)
        return self._store.open_folder(path, name)

    def adopt(self, folder: Path, name: str, version: str, made_by: Maker) -> EdgeCollection:
        """Take a folder that was made as a collection for a hidden version, and open it."""
        write_mark(folder, VersionMark(id=version, collection=name, made_by=made_by))
        folder.rename(self._build_path(version))
        return self._store.open_folder(self._build_path(version), name)

    def open(self, name: str, version: str, *, read_only: bool = False) -> EdgeCollection:
        """Open a version."""
        return self._store.open_folder(self._existing(name, version), name, read_only=read_only)

    @contextmanager
    def moving(self, name: str, *, wait_s: float) -> Iterator[EdgeCollection]:
        """Lock the current version, and open it; see `versions.Versions.moving`."""
        deadline = time.monotonic() + wait_s
        while True:
            path = current_path(self._store.root(name))
            try:
                if CollectionFolder.is_open(path):
                    raise StoreLockedError(name, f"this one, {os.getpid()}: close it first")
                collection = self._store.open(name)
                break
            except StoreLockedError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_RETRY_S)
        try:
            yield collection
        finally:
            collection.close()

    def switch(self, name: str, version: str) -> None:
        """Make a version the current one, by one file."""
        root = self._store.root(name)
        path = self._existing(name, version)
        with edge_shard.file_errors(name, "replacing it"):
            if not is_collection(root):
                write_mark(path, read_mark(path, name).model_copy(update={"is_complete": True}))
                path.rename(root)
                sync_folder(root.parent)
                return
            before = current_version(root)
            if before == version:
                return
            if path.parent == root.parent:
                write_current(root, before)  # before there is a version that a lost pointer could mean
                (root / VERSIONS_FOLDER).mkdir(exist_ok=True)
                path.rename(version_path(root, version))
                path = version_path(root, version)
                sync_folder(path.parent)
            _copy_ledger(version_path(root, before), path)
            number = 1 + max(read_mark(one, name).number for one in (root, *version_folders(root)))
            changed = {"is_complete": True, "replaced": before, "number": number}
            write_mark(path, read_mark(path, name).model_copy(update=changed))
            write_current(root, version)

    def delete(self, name: str, version: str) -> None:
        """Delete a version that is not current."""
        root = self._store.root(name)
        path = self._find(name, version)
        if path is None:
            return
        if path == current_path(root) and (path != root or is_plain(root)):
            raise ValueError(f"version '{version}' of '{name}' is the current one")
        if CollectionFolder.is_open(path):
            raise StoreLockedError(name, f"this one, {os.getpid()}: close it first")
        with ExitStack() as stack:
            lock = edge_lock.CollectionLock.acquire(path / LOCK_FILE, name)
            stack.callback(lock.release)
            with edge_shard.file_errors(name, "deleting a version of it"):
                temporary = Path(tempfile.mkdtemp(prefix=".deleted-", dir=root.parent))
                if path == root:
                    for entry in list(root.iterdir()):
                        if entry.name not in _KEPT:
                            entry.rename(temporary / entry.name)
                else:
                    path.rename(temporary / "version")
        shutil.rmtree(temporary, ignore_errors=True)

    def paths(self, name: str) -> Iterator[Path]:
        """Yield the folders of all versions of a collection."""
        root = self._store.root(name)
        yield root
        yield from version_folders(root)
        yield from self.builds(name)

    def builds(self, name: str) -> Iterator[Path]:
        """Yield the folders of versions that are built, or were left by a process that died."""
        for path in sorted(self._store.root(name).parent.glob(f"{BUILD_PREFIX}*")):
            if read_mark(path, "").collection == name:
                yield path

    def _build_path(self, version: str) -> Path:
        return Path(self._store.location) / f"{BUILD_PREFIX}{version}"

    def _find(self, name: str, version: str) -> Path | None:
        root = self._store.root(name)
        built = self._build_path(version)
        if (version_path(root, version) / MANIFEST_FILE).is_file():
            return version_path(root, version)
        is_ours = (built / MANIFEST_FILE).is_file() and read_mark(built, "").collection == name
        return built if is_ours else None

    def _existing(self, name: str, version: str) -> Path:
        path = self._find(name, version)
        if path is None:
            raise CollectionNotFoundError(name, self._store.collections())
        return path


def is_plain(root: Path) -> bool:
    """Whether a folder holds the version that a load made, or a part of it."""
    return (root / MANIFEST_FILE).is_file() or (root / SHARD_FOLDER).is_dir()


def is_collection(path: Path) -> bool:
    """Whether a folder holds a collection, or a part of one."""
    return is_plain(path) or (path / POINTER_FILE).is_file() or bool(version_folders(path))


def _copy_ledger(source: Path, target: Path) -> None:
    """Bring what was learned to another version, which had none or an older state of it."""
    temporary = target / f".{LEDGER_FILE}.new"
    temporary.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        copy_file(source / LEDGER_FILE, temporary)
        temporary.replace(target / LEDGER_FILE)
        sync_folder(target)
