"""Versions of embedded collections: folders like that of a collection, hidden, of which one becomes current at a time.

    NAME/            the current version; `manifest.json` says which (`content.Content.version`)
    .version-ID/     one that is being built, or that another one took the place of

A switch gives the collection's folder the files of another version, by links, and then replaces its `manifest.json`, as
each commit does. Before, what is current is linked to a hidden folder. The ledger stays where it is.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from qdrant_edge import EdgeShard

from pearl_qdrant.errors import (
    CollectionExistsError,
    CollectionNotFoundError,
    ManifestError,
    StoreLockedError,
    StoreRejectedError,
)
from pearl_qdrant.store.atomic import sync_folder
from pearl_qdrant.store.edge import lock as edge_lock
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.collection import EdgeCollection
from pearl_qdrant.store.edge.content import (
    LOCK_FILE,
    SHARD_FOLDER,
    Content,
    IndexState,
    is_collection,
    new_token,
    read_content,
    remove_other_files,
    share_files,
    store_files,
    write_content,
)
from pearl_qdrant.store.edge.folder import CollectionFolder
from pearl_qdrant.store.edge.ledger import append_lines, read_lines, size
from pearl_qdrant.store.protocol import Placement
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.store.versions import Maker, Version, VersionMark, new_version

if TYPE_CHECKING:
    from pearl_qdrant.store.edge.store import EdgeStore

_PREFIX = ".version-"

_RETRY_S = 0.2

_SHARD = {"segments", "wal", "edge_config.json"}
"""What a shard has; a server's snapshot has more beside it, of replicas and clocks."""


class EdgeVersions:
    """The versions of an embedded store's collections; see `versions.Versions`."""

    def __init__(self, store: EdgeStore) -> None:
        self._store = store

    def list(self, name: str) -> list[Version]:
        """Return all versions of a collection, the current one first; raises ManifestError if that is not known."""
        root, found = self._store.root(name), []
        if is_collection(root):
            manifest, content = read_content(root, name)
            found.append(Version(content.version, True, manifest))
        for _, manifest, content in self.hidden(name):
            if not found or content.version.id != found[0].id:  # of a switch that was killed at its end
                found.append(Version(content.version, False, manifest))
        return found

    def create(
        self, manifest: Manifest, *, version: str, made_by: Maker, placement: Placement | None = None
    ) -> EdgeCollection:
        """Create a hidden version, and open it."""
        path, name = self._path(version), manifest.collection
        if path.exists():
            raise CollectionExistsError(name)
        mark = VersionMark(version, name, made_by)
        self._store.create_folder(path, manifest, placement, mark=mark)
        return self._store.open_folder(path, name)

    def adopt(self, snapshot: Path, manifest: Manifest, index: IndexState, mark: VersionMark) -> EdgeCollection:
        """Make a hidden version of a shard's snapshot, and open it.

        The snapshot is the server's file, whole: its checksum was compared. The version is built beside it.

        Raises:
            StoreRejectedError: If the engine cannot open it, as that of a newer server; the message is a sentence part.
            StoreError: If there is too little space or memory, or files cannot be written.
        """
        name, folder, path = manifest.collection, snapshot.with_name("collection"), self._path(mark.id)
        folder.mkdir()
        shard = folder / SHARD_FOLDER
        with edge_shard.edge_errors(name, "creating it"):
            try:
                EdgeShard.unpack_snapshot(str(snapshot), str(shard))
                for other in shard.iterdir():
                    if other.name not in _SHARD:
                        shutil.rmtree(other) if other.is_dir() else other.unlink()
                opened = EdgeShard.load(str(shard))  # it repeats what is in the log alone
                opened.flush()
                opened.close()
            except BaseException as error:
                if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # Edge's own
                    raise
                if edge_shard.known_error(str(error), name, "creating it") is not None:
                    raise
                raise StoreRejectedError(f"the engine here cannot open it ({error})") from error
            files = store_files(folder, shard, {})
            shutil.rmtree(shard)
            write_content(folder, manifest, Content(files, index=index, version=mark))
            folder.rename(path)
            sync_folder(path.parent)
        return self._store.open_folder(path, name)

    def open(self, name: str, version: str, *, read_only: bool = False) -> EdgeCollection:
        """Open a version."""
        return self._store.open_folder(self._existing(name, version), name, read_only=read_only)

    @contextmanager
    def moving(self, name: str, *, wait_s: float) -> Iterator[EdgeCollection]:
        """Lock the collection, and open it; see `versions.Versions.moving`."""
        deadline = time.monotonic() + wait_s
        while True:
            try:
                if CollectionFolder.is_open(self._store.root(name)):
                    raise StoreLockedError(name, f"this one, {os.getpid()}: close it first")
                collection = self._store.open(name)
                break
            except StoreLockedError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_RETRY_S)
        try:
            with collection.editing():
                pass  # commits what a killed load left: at the end it would take the place of the version switched to
            yield collection
        finally:
            collection.close()

    def switch(self, name: str, version: str) -> None:
        """Make a version the current one, by one file."""
        root, path = self._store.root(name), self._existing(name, version)
        if path == root:
            shutil.rmtree(self._path(version), ignore_errors=True)  # of a switch that was killed at its end
            return
        with edge_shard.edge_errors(name, "replacing it"):
            manifest, content = read_content(path, name)
            mark = replace(content.version, is_complete=True)
            if not is_collection(root):
                write_content(path, manifest, replace(content, version=mark))
                path.rename(root)
                sync_folder(root.parent)
                return
            before = self._keep_current(root, name)
            known = set(read_lines(root))
            if learned := [line for line in read_lines(path) if line not in known]:
                append_lines(root, learned)
            mark = replace(mark, replaced=before, number=1 + max(one.mark.number for one in self.list(name)))
            share_files(path, content.files, root)
            now = Content(content.files, ledger_bytes=size(root), index=content.index, version=mark)
            write_content(root, manifest, now)
            remove_other_files(root, now)
            shutil.rmtree(path, ignore_errors=True)

    def _keep_current(self, root: Path, name: str) -> str:
        """Link the current version to a hidden folder; returns its id."""
        manifest, content = read_content(root, name)
        mark = replace(content.version, id=content.version.id or new_version(), collection=name)
        kept = root.with_name(f".new-{new_token()}")
        kept.mkdir()
        share_files(root, content.files, kept)
        write_content(kept, manifest, Content(content.files, index=content.index, version=mark))
        shutil.rmtree(self._path(mark.id), ignore_errors=True)  # of a switch that was killed
        kept.rename(self._path(mark.id))
        sync_folder(root.parent)
        return mark.id

    def delete(self, name: str, version: str) -> None:
        """Delete a version that is not current."""
        with suppress(CollectionNotFoundError):
            path = self._existing(name, version)
            if path == self._store.root(name):
                raise ValueError(f"version '{version}' of '{name}' is the current one")
            if CollectionFolder.is_open(path):
                raise StoreLockedError(name, f"this one, {os.getpid()}: close it first")
            with ExitStack() as stack:
                stack.callback(edge_lock.CollectionLock.acquire(path / LOCK_FILE, name).release)
                with edge_shard.edge_errors(name, "deleting a version of it"):
                    gone = path.with_name(f".deleted-{new_token()}")
                    path.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def hidden(self, name: str) -> Iterator[tuple[Path, Manifest, Content]]:
        """Yield the versions that are not current, or are built, but for those with a damaged manifest."""
        for path in sorted(Path(self._store.location).glob(f"{_PREFIX}*")):
            with suppress(ManifestError):
                manifest, content = read_content(path, name)
                if content.version.collection == name:
                    yield path, manifest, content

    def _path(self, version: str) -> Path:
        return Path(self._store.location) / f"{_PREFIX}{version}"

    def _existing(self, name: str, version: str) -> Path:
        root = self._store.root(name)
        if is_collection(root) and read_content(root, name)[1].version.id == version:
            return root
        path = self._path(version)
        with suppress(ManifestError):
            if read_content(path, name)[1].version.collection == name:
                return path
        raise CollectionNotFoundError(name, self._store.collections())
