"""The embedded store: collections in a folder, through Qdrant Edge, Qdrant's own engine in this process.

It serves one process that writes, and any number that only read (`view.py`). Searches run in this process. Bulk loads
and the building of the graph run in a child process (`child_main.py`), because of the engine's memory use and because
the engine holds the interpreter lock.
"""

from __future__ import annotations

import os
import shutil
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from pearl_qdrant.errors import (
    CollectionExistsError,
    CollectionNotFoundError,
    ManifestError,
    SettingsError,
    StoreError,
    StoreLockedError,
)
from pearl_qdrant.store.atomic import sync_folder
from pearl_qdrant.store.edge import ledger as edge_ledger
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.collection import EdgeCollection
from pearl_qdrant.store.edge.content import (
    LOCK_FILE,
    SHARD_FOLDER,
    WORK_FOLDER,
    Content,
    is_collection,
    new_token,
    read_content,
    store_files,
    write_content,
)
from pearl_qdrant.store.edge.folder import CollectionFolder
from pearl_qdrant.store.edge.lock import CollectionLock, find_owner
from pearl_qdrant.store.edge.versions import EdgeVersions
from pearl_qdrant.store.edge.view import CollectionView
from pearl_qdrant.store.names import check_name
from pearl_qdrant.store.ownership import ProcessGuard
from pearl_qdrant.store.protocol import Glance, Placement
from pearl_qdrant.store.resources import resource_error
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.store.versions import VersionMark

_STALE_S = 86_400.0  # older temporary folders were left by a process that died; a pull may take hours
_TEMPORARY = (".new-", ".deleted-")


class EdgeStore:
    """The collections in one folder; the folder is created with the first collection."""

    def __init__(self, path: Path) -> None:
        self._path = Path(os.path.realpath(path))
        self._opened: list[EdgeCollection] = []
        self._views: weakref.WeakSet[EdgeCollection] = weakref.WeakSet()  # one that nobody uses any more closes itself
        self._guard = ProcessGuard(f"The store {self.location}")
        self._versions = EdgeVersions(self)

    def __repr__(self) -> str:
        return f"EdgeStore({self.location!r})"

    @property
    def location(self) -> str:
        """The folder."""
        return str(self._path)

    @property
    def versions(self) -> EdgeVersions:
        """The versions of its collections."""
        return self._versions

    def collections(self) -> list[str]:
        """Return the names of the folders that hold a collection, usable or not; sorted."""
        self._guard.check()
        try:
            return sorted(path.name for path in self._path.iterdir() if _is_collection(path))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._read_error(error) from error

    def glance(self, names: Sequence[str]) -> Iterator[Glance]:
        """Look at collections without opening or locking them; see `protocol.Store.glance`."""
        for name in names:
            try:
                path = self.root(name)
                manifest, content = read_content(path, name)
                with suppress(ManifestError):  # of a load that runs, or was killed
                    of_load, kept = read_content(path / WORK_FOLDER, name)
                    if kept.token == content.token:  # else it was committed
                        manifest, content = of_load, kept
            except StoreError as error:
                if _is_collection(self.root(name)):  # else it was deleted meanwhile
                    yield Glance(name, None, problem=str(error))
                continue
            graph = content.index
            n_indexed = max(0, graph.vectors - graph.rewritten) if graph else 0
            has_graph = edge_shard.needs_no_graph(manifest.names - n_indexed, manifest.dim)
            writer = None if CollectionFolder.is_open(path) else find_owner(path / LOCK_FILE)
            yield Glance(name, manifest, has_graph, writer=writer)

    def create(self, manifest: Manifest, placement: Placement | None = None) -> EdgeCollection:
        """Create a collection; see `protocol.Store.create`. If this fails, nothing of it is left."""
        self.create_folder(self.root(manifest.collection), manifest, placement)
        return self.open(manifest.collection)

    def create_folder(
        self, path: Path, manifest: Manifest, placement: Placement | None = None, *, mark: VersionMark | None = None
    ) -> None:
        """Create the folder of a collection, or of a version of one; see `create`."""
        if placement not in (None, Placement()):
            raise SettingsError(
                f"The embedded store at {self.location} has no shards or replicas. Use a Qdrant server as the store.",
                option="store",
            )
        name = manifest.collection
        with edge_shard.edge_errors(name, "creating it"):
            if path.exists():
                raise CollectionExistsError(name)
            with self.temporary_folder() as temporary:
                edge_shard.check_space(temporary, name, doing="creating it")
                shard = temporary / SHARD_FOLDER
                edge_shard.create_shard(shard, manifest.dim)
                files = store_files(temporary, shard, {})
                shutil.rmtree(shard)
                version = mark or VersionMark(collection=name, is_complete=True)
                write_content(temporary, manifest.as_created(), Content(files, version=version))
                try:
                    temporary.rename(path)
                except OSError as error:
                    if path.exists():  # another process has created it meanwhile
                        raise CollectionExistsError(name) from error
                    raise
                sync_folder(self._path)

    @contextmanager
    def temporary_folder(self) -> Iterator[Path]:
        """Make a folder beside the collections, until the end of the block; raises OSError."""
        self._path.mkdir(parents=True, exist_ok=True)
        for left in (one for prefix in _TEMPORARY for one in self._path.glob(f"{prefix}*")):
            with suppress(OSError):  # other processes may do so at the same time
                if time.time() - left.stat().st_mtime > _STALE_S:
                    shutil.rmtree(left, ignore_errors=True)
        temporary = self._path / f"{_TEMPORARY[0]}{new_token()}"
        temporary.mkdir()
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def open(self, name: str, *, read_only: bool = False) -> EdgeCollection:
        """Open a collection; see `protocol.Store.open`.

        Opened for writing twice in a process, both handles share one shard. Each read-only handle has its own view.
        """
        path = self.root(name)
        self._check_exists(path)
        return self.open_folder(path, name, read_only=read_only)

    def open_folder(self, path: Path, name: str, *, read_only: bool = False) -> EdgeCollection:
        """Open a version of a collection by its folder; errors as for `open`."""
        if read_only:
            view = EdgeCollection(CollectionView.open(path, name))
            self._views.add(view)
            return view
        self._opened.append(EdgeCollection(CollectionFolder.acquire(path, name)))
        return self._opened[-1]

    def delete(self, name: str, *, keep_ledger: bool = False) -> None:
        """Delete a collection; StoreLockedError if it is open, here or in another process."""
        path = self.root(name)
        self._check_exists(path)
        paths = [path, *(hidden for hidden, _, _ in self._versions.hidden(name))]
        if any(map(CollectionFolder.is_open, paths)):
            raise StoreLockedError(name, f"this one, {os.getpid()}: close it first")
        gone = self._path / f".deleted-{new_token()}"
        with edge_shard.edge_errors(name, "deleting it"), ExitStack() as stack:
            try:
                for one in paths:
                    stack.callback(CollectionLock.acquire(one / LOCK_FILE, name).release)
                if os.name == "nt":  # Windows cannot rename a folder with an open file
                    stack.close()
                if keep_ledger:
                    edge_ledger.keep_ledger(self._path, name)
                else:
                    edge_ledger.delete_kept_ledger(self._path, name)
                gone.mkdir()
                for i, one in enumerate(reversed(paths)):  # the current one last: it is gone at once, or there
                    one.rename(gone / str(i))
            except FileNotFoundError as error:  # another process has deleted it meanwhile
                raise CollectionNotFoundError(name, self.collections()) from error
            finally:
                shutil.rmtree(gone, ignore_errors=True)  # what is left of it is removed later

    def close(self) -> None:
        """Close the collections that this store has opened; in a forked process nothing is closed."""
        while self._opened:
            self._opened.pop().close()
        for view in list(self._views):
            view.close()

    def root(self, name: str) -> Path:
        """Return the folder of a collection of that name; StoreRejectedError if there can be none."""
        self._guard.check()
        check_name(name)
        return self._path / name

    def _check_exists(self, path: Path) -> None:
        """Raise CollectionNotFoundError for a missing collection."""
        try:
            exists = _is_collection(path)
        except OSError as error:
            raise self._read_error(error) from error
        if not exists:
            raise CollectionNotFoundError(path.name, self.collections())

    def _read_error(self, error: OSError) -> StoreError:
        """Make the error for a folder that cannot be read."""
        return resource_error(error, f"The store {self.location} cannot be read") or StoreError(
            f"The store {self.location} cannot be read: {error}. Use a folder that can be read as the store.",
            option="store",
        )


def _is_collection(path: Path) -> bool:
    """Whether a folder of a store holds a collection, or a part of one."""
    return not path.name.startswith(".") and is_collection(path)
