"""A view: a collection as it was when it was opened, for one process that only reads it.

The view has a folder of its own (`places.py`) with links to the large files that are current and copies of the small
ones (`placing.py`). So it takes no lock of the collection, writes nothing into its folder, and sees nothing of
what is written later.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from qdrant_edge import EdgeShard

from pearl_qdrant.errors import CollectionNotFoundError, ReadOnlyError, StoreError
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.content import (
    MANIFEST_FILE,
    SHARD_FOLDER,
    Content,
    read_content,
    take_files,
)
from pearl_qdrant.store.edge.ledger import LEDGER_FILE
from pearl_qdrant.store.edge.opened import OpenedCollection, keep_from_flushing
from pearl_qdrant.store.edge.places import ViewPlace, make_places, may_work_elsewhere
from pearl_qdrant.store.edge.placing import copy_file
from pearl_qdrant.store.ownership import ProcessGuard
from pearl_qdrant.store.schema import Manifest

_Status = tuple[int, int, int] | None
"""What changes if another state is committed (`_stat`)."""


class CollectionView(OpenedCollection):
    """A collection that this process has open for reading; `path` is the folder of the view."""

    def __init__(
        self, source: Path, name: str, view: ViewPlace, seen: _Status, current: tuple[Manifest, Content]
    ) -> None:
        """Make the view of what is current in a folder; see `open`."""
        manifest, content = current
        super().__init__(view.path, name, manifest, content)
        self._source, self._seen = source, seen
        with suppress(FileNotFoundError):
            copy_file(source / LEDGER_FILE, view.path / LEDGER_FILE, self._content.ledger_bytes)
        shard = view.path / SHARD_FOLDER
        take_files(source, name, self._content.files, shard)
        self._shard = edge_shard.load_shard(shard, name)
        self._end = weakref.finalize(self, _close, self._shard, view, self.guard)

    @classmethod
    def open(cls, path: Path, name: str) -> CollectionView:
        """Open the state of a collection that was committed last.

        Args:
            path: Its folder.
            name: Its name.

        Raises:
            CollectionNotFoundError: If it has just been deleted.
            ManifestError: If it has no usable manifest.
            StoreError: If its files are damaged, or no view can be made.
        """
        while True:
            if not path.is_dir():
                raise CollectionNotFoundError(name)
            seen, current = _stat(path), read_content(path, name)
            for view in make_places(path.parent, name):
                try:
                    return cls(path, name, view, seen, current)
                except BaseException as error:
                    view.remove()
                    if not isinstance(error, (OSError, StoreError)):
                        raise
                    if _is_other(path, name, current[1]):  # its files were removed meanwhile
                        break
                    failed = _unless_elsewhere(error, name)
            else:
                raise edge_shard.os_error(failed, name, "opening it") from failed

    @property
    def is_outdated(self) -> bool:
        """Whether another state was committed since this view was opened; it takes a look at a file."""
        seen = _stat(self._source)
        if seen == self._seen:
            return False
        if _is_other(self._source, self.name, self._content):
            return True
        self._seen = seen
        return False

    def refuse(self, doing: str) -> NoReturn:
        """Raise `ReadOnlyError`."""
        raise ReadOnlyError([self.name], doing)

    def release(self) -> None:
        """Close the view and remove its folder. In a forked process this does nothing."""
        if self.guard.is_owner:
            with self._mutex:
                self._shard = None
                self._end()


def _is_other(path: Path, name: str, content: Content) -> bool:
    """Whether another state is current by now, or none."""
    try:
        return read_content(path, name)[1].token != content.token
    except StoreError:
        return True


def _unless_elsewhere(error: OSError | StoreError, name: str) -> OSError:
    """The error of a view that could not be made where another place may do; else it is raised."""
    if isinstance(error, StoreError):
        raise error
    if not may_work_elsewhere(error):
        raise edge_shard.os_error(error, name, "opening it") from error
    return error


def _close(shard: EdgeShard, view: ViewPlace, guard: ProcessGuard) -> None:
    """Close a view; also called when it is no longer used, and at exit."""
    if not guard.is_owner:
        keep_from_flushing(shard)
        view.remove()
        return
    # In this order, Edge finds no files that it could drop from the page cache, where other readers need them.
    view.remove()
    with suppress(Exception):
        shard.close()


def _stat(path: Path) -> _Status:
    """What changes if another state is committed."""
    try:
        status = (path / MANIFEST_FILE).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
