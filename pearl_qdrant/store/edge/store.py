"""The embedded store: collections in a folder, through Qdrant Edge, Qdrant's own engine in this process.

It serves one process that writes, and any number that only read (`view.py`). Searches run in this process. Bulk loads
and the building of the graph run in a child process (`child_main.py`), because of the engine's memory use and because
the engine holds the interpreter lock.

    NAME/            the current version of a collection; `manifest.json` says which (`content.Content.version`)
    .version-ID/     a folder like it, hidden: one that is being built, or that another one took the place of

A switch gives the collection's folder the files of another version, by links, and then replaces its `manifest.json`, as
each commit does. Before, what is current is linked to a hidden folder. The ledger stays where it is.
"""

from __future__ import annotations

import os
import shutil
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from qdrant_edge import EdgeShard

from pearl_qdrant.errors import (
    CollectionExistsError,
    CollectionNotFoundError,
    ManifestError,
    SettingsError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreRejectedError,
)
from pearl_qdrant.settings import DEFAULT_QUANTIZATION
from pearl_qdrant.store.edge import content as edge_content
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.collection import EdgeCollection
from pearl_qdrant.store.edge.content import LOCK_FILE, SHARD_FOLDER, WORK_FOLDER, Content, IndexState
from pearl_qdrant.store.edge.folder import CollectionFolder, CollectionLock, find_owner, while_locked
from pearl_qdrant.store.edge.view import CollectionView
from pearl_qdrant.store.protocol import Glance, Maker, Placement, Version, VersionMark, new_version
from pearl_qdrant.store.schema import Manifest, Quantization, check_name
from pearl_qdrant.store.system import ProcessGuard, resource_error, sync_folder

if TYPE_CHECKING:
    from pearl_qdrant.store.server.collection import ServerCollection

_STALE_S = 86_400.0  # older temporary folders were left by a process that died; a pull may take hours
_NEW, _DELETED, _VERSION = ".new-", ".deleted-", ".version-"  # how hidden folders begin
_SHARD = {"segments", "wal", "edge_config.json"}  # a server's snapshot has more beside it, of replicas and clocks


class EdgeStore:
    """The collections in one folder; the folder is created with the first collection."""

    def __init__(self, path: Path) -> None:
        self._path = Path(os.path.realpath(path))
        self._opened: list[EdgeCollection] = []
        self._views: weakref.WeakSet[EdgeCollection] = weakref.WeakSet()  # one that nobody uses any more closes itself
        self._guard = ProcessGuard(f"The store {self.location}")

    def __repr__(self) -> str:
        return f"EdgeStore({self.location!r})"

    @property
    def location(self) -> str:
        return str(self._path)

    @property
    def quantization(self) -> Quantization:
        return DEFAULT_QUANTIZATION

    def collections(self) -> list[str]:
        self._guard.check()
        try:
            return sorted(path.name for path in self._path.iterdir() if _is_collection(path))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._read_error(error) from error

    def glance(self, names: Sequence[str]) -> Iterator[Glance]:
        for name in names:
            try:
                path = self._root(name)
                manifest, content = edge_content.read_content(path, name)
                with suppress(ManifestError):  # of a load that runs, or was killed
                    of_load, kept = edge_content.read_content(path / WORK_FOLDER, name)
                    if kept.token == content.token:  # else it was committed
                        manifest, content = of_load, kept
            except StoreError as error:
                if _is_collection(self._root(name)):  # else it was deleted meanwhile
                    yield Glance(name, None, problem=str(error))
                continue
            graph = content.index
            n_indexed = max(0, graph.vectors - graph.rewritten) if graph else 0
            has_graph = edge_shard.needs_no_graph(manifest.names - n_indexed, manifest.dim)
            writer = None if CollectionFolder.is_open(path) else find_owner(path / LOCK_FILE)
            yield Glance(name, manifest, has_graph, writer=writer)

    def versions(self, name: str) -> list[Version]:
        root, found = self._root(name), []
        if edge_content.is_collection(root):
            manifest, content = edge_content.read_content(root, name)
            found.append(Version(content.version, True, manifest))
        for _, manifest, content in self._hidden(name):
            if not found or content.version.id != found[0].id:  # of a switch that was killed at its end
                found.append(Version(content.version, False, manifest))
        return found

    def create(
        self,
        manifest: Manifest,
        placement: Placement | None = None,
        *,
        version: str | None = None,
        made_by: Maker = "load",
    ) -> EdgeCollection:
        """Create a collection; see `protocol.Store.create`. If this fails, nothing of it is left."""
        name = manifest.collection
        path, mark = self._root(name), VersionMark(collection=name, is_complete=True)
        if version is not None:
            path, mark = self._hidden_path(version), VersionMark(version, name, made_by)
        if placement not in (None, Placement()):
            raise SettingsError(
                f"The embedded store at {self.location} has no shards or replicas. Use a Qdrant server as the store.",
                option="store",
            )
        with edge_shard.edge_errors(name, "creating it"):
            if path.exists():
                raise CollectionExistsError(name)
            with self._temporary_folder() as temporary:
                edge_shard.check_space(temporary, name, doing="creating it")
                shard = temporary / SHARD_FOLDER
                edge_shard.create_shard(shard, manifest.dim, manifest.quantization)
                self._finish_folder(temporary, path, manifest.as_created(), None, mark)
        return self._open(path, name)

    def _finish_folder(
        self, folder: Path, path: Path, manifest: Manifest, index: IndexState | None, mark: VersionMark
    ) -> None:
        """Make a collection of the shard in a temporary folder, and give it its name."""
        shard = folder / SHARD_FOLDER
        files = edge_content.store_files(folder, shard, {})
        shutil.rmtree(shard)
        edge_content.write_content(folder, manifest, Content(files, index=index, version=mark))
        try:
            folder.rename(path)
        except OSError as error:
            if path.exists():  # another process has created it meanwhile
                raise CollectionExistsError(manifest.collection) from error
            raise
        sync_folder(self._path)

    def adopt(self, source: ServerCollection, version: str, manifest: Manifest, index: IndexState) -> EdgeCollection:
        """Make a hidden version of the only shard of a collection on a server, with its graph, and open it.

        StoreRejectedError, a part of a sentence, if the server sends none, or the engine cannot open it, as that of a
        newer server. StoreError if there is too little space or memory, or files cannot be written.
        """
        name, path = manifest.collection, self._hidden_path(version)
        with edge_shard.edge_errors(name, "creating it"), self._temporary_folder() as work:
            snapshot, folder = work / "shard.snapshot", work / "collection"
            source.download_shard(snapshot)
            folder.mkdir()
            shard = folder / SHARD_FOLDER
            try:
                EdgeShard.unpack_snapshot(str(snapshot), str(shard))
                for other in shard.iterdir():
                    if other.name not in _SHARD:
                        shutil.rmtree(other) if other.is_dir() else other.unlink()
                edge_shard.check_opening(shard, name)
                opened = EdgeShard.load(str(shard))  # it repeats what is in the log alone
                opened.flush()
                opened.close()
            except BaseException as error:
                if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # Edge's own
                    raise
                if isinstance(error, StoreFullError):
                    raise
                if edge_shard.known_error(str(error), name, "creating it") is not None:
                    raise
                raise StoreRejectedError(f"the engine here cannot open it ({error})") from error
            self._finish_folder(folder, path, manifest, index, VersionMark(version, name, "pull"))
        return self._open(path, name)

    @contextmanager
    def _temporary_folder(self) -> Iterator[Path]:
        """Make a folder beside the collections, until the end of the block; raises OSError."""
        self._path.mkdir(parents=True, exist_ok=True)
        for left in (one for prefix in (_NEW, _DELETED) for one in self._path.glob(f"{prefix}*")):
            with suppress(OSError):  # other processes may do so at the same time
                if time.time() - left.stat().st_mtime > _STALE_S:
                    shutil.rmtree(left, ignore_errors=True)
        temporary = self._path / f"{_NEW}{edge_content.new_token()}"
        temporary.mkdir()
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def open(self, name: str, *, version: str | None = None, read_only: bool = False) -> EdgeCollection:
        """Open a collection; see `protocol.Store.open`. Opened for writing twice in a process, both handles share one
        shard. Each read-only handle has its own view.
        """
        if version is not None:
            return self._open(self._existing(name, version), name, read_only=read_only)
        path = self._root(name)
        self._check_exists(path)
        return self._open(path, name, read_only=read_only)

    def _open(self, path: Path, name: str, *, read_only: bool = False) -> EdgeCollection:
        if read_only:
            view = EdgeCollection(CollectionView.open(path, name))
            self._views.add(view)
            return view
        self._opened.append(EdgeCollection(CollectionFolder.acquire(path, name)))
        return self._opened[-1]

    @contextmanager
    def moving(self, name: str, *, wait_s: float) -> Iterator[EdgeCollection]:
        def lock() -> EdgeCollection:
            if CollectionFolder.is_open(self._root(name)):
                raise StoreLockedError(name, f"this one, {os.getpid()}: close it first")
            return self.open(name)

        with closing(while_locked(lock, wait_s)) as collection:
            with collection.editing():
                pass  # commits what a killed load left: at the end it would take the place of the version switched to
            yield collection

    def switch(self, name: str, version: str) -> None:
        root, path = self._root(name), self._existing(name, version)
        if path == root:
            shutil.rmtree(self._hidden_path(version), ignore_errors=True)  # of a switch that was killed at its end
            return
        with edge_shard.edge_errors(name, "replacing it"):
            manifest, content = edge_content.read_content(path, name)
            mark = replace(content.version, is_complete=True)
            if not edge_content.is_collection(root):
                edge_content.write_content(path, manifest, replace(content, version=mark))
                path.rename(root)
                sync_folder(root.parent)
                return
            before = self._keep_current(root, name)
            known = set(edge_content.read_lines(root))
            if learned := [line for line in edge_content.read_lines(path) if line not in known]:
                edge_content.append_lines(root, learned)
            mark = replace(mark, replaced=before, number=1 + max(one.mark.number for one in self.versions(name)))
            edge_content.share_files(path, content.files, root)
            now = Content(content.files, ledger_bytes=edge_content.ledger_size(root), index=content.index, version=mark)
            edge_content.write_content(root, manifest, now)
            edge_content.remove_other_files(root, now)
            shutil.rmtree(path, ignore_errors=True)

    def _keep_current(self, root: Path, name: str) -> str:
        """Link the current version to a hidden folder; returns its id."""
        manifest, content = edge_content.read_content(root, name)
        mark = replace(content.version, id=content.version.id or new_version(), collection=name)
        kept = root.with_name(f"{_NEW}{edge_content.new_token()}")
        kept.mkdir()
        edge_content.share_files(root, content.files, kept)
        edge_content.write_content(kept, manifest, Content(content.files, index=content.index, version=mark))
        shutil.rmtree(self._hidden_path(mark.id), ignore_errors=True)  # of a switch that was killed
        kept.rename(self._hidden_path(mark.id))
        sync_folder(root.parent)
        return mark.id

    def delete(self, name: str, *, version: str | None = None, keep_ledger: bool = False) -> None:
        if version is not None:
            with suppress(CollectionNotFoundError):
                path = self._existing(name, version)
                if path == self._root(name):
                    raise ValueError(f"version '{version}' of '{name}' is the current one")
                self._remove([path], name, "deleting a version of it")
            return
        path = self._root(name)
        self._check_exists(path)
        paths = [path, *(hidden for hidden, _, _ in self._hidden(name))]
        self._remove(
            paths, name, "deleting it", retire=lambda: edge_content.retire_ledger(self._path, name, keep=keep_ledger)
        )

    def _remove(
        self, paths: Sequence[Path], name: str, doing: str, *, retire: Callable[[], None] = lambda: None
    ) -> None:
        """Lock and remove folders of a collection, the first one last; `retire` is called when all are locked."""
        if any(map(CollectionFolder.is_open, paths)):
            raise StoreLockedError(name, f"this one, {os.getpid()}: close it first")
        gone = self._path / f"{_DELETED}{edge_content.new_token()}"
        with edge_shard.edge_errors(name, doing), ExitStack() as stack:
            try:
                for one in paths:
                    stack.callback(CollectionLock.acquire(one / LOCK_FILE, name).release)
                if os.name == "nt":  # Windows cannot rename a folder with an open file
                    stack.close()
                retire()
                gone.mkdir()
                for i, one in enumerate(reversed(paths)):  # the current one last: it is gone at once, or there
                    one.rename(gone / str(i))
            except FileNotFoundError as error:  # another process has deleted it meanwhile
                raise CollectionNotFoundError(name, self.collections()) from error
            finally:
                shutil.rmtree(gone, ignore_errors=True)  # what is left of it is removed later

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()
        for view in list(self._views):
            view.close()

    def _hidden(self, name: str) -> Iterator[tuple[Path, Manifest, Content]]:
        """Yield the versions that are not current, or are built, but for those with a damaged manifest."""
        for path in sorted(self._path.glob(f"{_VERSION}*")):
            with suppress(ManifestError):
                manifest, content = edge_content.read_content(path, name)
                if content.version.collection == name:
                    yield path, manifest, content

    def _hidden_path(self, version: str) -> Path:
        return self._path / f"{_VERSION}{version}"

    def _existing(self, name: str, version: str) -> Path:
        root = self._root(name)
        if edge_content.is_collection(root) and edge_content.read_content(root, name)[1].version.id == version:
            return root
        path = self._hidden_path(version)
        with suppress(ManifestError):
            if edge_content.read_content(path, name)[1].version.collection == name:
                return path
        raise CollectionNotFoundError(name, self.collections())

    def _root(self, name: str) -> Path:
        self._guard.check()
        check_name(name)
        return self._path / name

    def _check_exists(self, path: Path) -> None:
        try:
            exists = _is_collection(path)
        except OSError as error:
            raise self._read_error(error) from error
        if not exists:
            raise CollectionNotFoundError(path.name, self.collections())

    def _read_error(self, error: OSError) -> StoreError:
        return resource_error(error, f"The store {self.location} cannot be read") or StoreError(
            f"The store {self.location} cannot be read: {error}. Use a folder that can be read as the store.",
            option="store",
        )


def _is_collection(path: Path) -> bool:
    """Whether a folder of a store holds a collection, or a part of one."""
    return not path.name.startswith(".") and edge_content.is_collection(path)
