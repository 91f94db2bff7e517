"""A view: a collection as it was when it was opened, for one process that only reads it.

The view has a folder of its own (`places.py`) with links to the large files of the collection and copies of the small
ones (`placing.py`). So it takes no lock of the collection, writes nothing into its folder, and sees nothing of what is
written later.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import msgspec
import portalocker
from qdrant_edge import EdgeShard

from pearl_qdrant.errors import CollectionNotFoundError, ReadOnlyError, StoreClosedError, StoreError, StoreLockedError
from pearl_qdrant.store.edge import checksums as edge_checksums
from pearl_qdrant.store.edge import ledger as edge_ledger
from pearl_qdrant.store.edge import lock as edge_lock
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.content import (
    LOCK_FILE,
    PUBLISHED_FILE,
    PUBLISHED_FOLDER,
    SHARD_FOLDER,
    IndexState,
    Published,
    read_index_state,
    read_manifest,
    read_published,
)
from pearl_qdrant.store.edge.current import current_path, root_of
from pearl_qdrant.store.edge.places import ViewPlace, make_places, may_work_elsewhere
from pearl_qdrant.store.edge.placing import LOG_FOLDER, copy_file, make_log, place, shard_files, without_log
from pearl_qdrant.store.ownership import ProcessGuard
from pearl_qdrant.store.schema import Manifest

_BUSY_S = 60.0
"""How long to try with a writer that opens and closes the collection all the time; each try takes 0.1 s."""


class _ChangedError(Exception):
    """The files were replaced while a view of them was made."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the state of a collection is.

    Attributes:
        path: Folder of the collection.
        name: Its name.
        folder: Folder with `shard/`.
        state: What is published of it; None for a collection of an older version.
        sums: Checksums of the files; None if it was not closed and nothing is published.
    """

    path: Path
    name: str
    folder: Path
    state: Published | None
    sums: edge_checksums.Sums | None

    @property
    def token(self) -> str | None:
        return self.state.token if self.state else None

    @property
    def is_published(self) -> bool:
        """Whether a writer has the collection open, or was killed."""
        return self.folder != self.path

    def is_unchanged(self) -> bool:
        """Whether the files are still those that were found. Those of a closed collection change when it is opened."""
        if self.is_published:  # before a writer removes its folder, it publishes another state
            state = read_published(self.path)
            return state is not None and state.folder == self.folder.name
        return self.sums is None or edge_checksums.read_checksums(self.path) == self.sums


def _find(path: Path, name: str) -> _Source | None:
    """Find the state of a collection; None while its writer opens or closes it, or if that was killed by then."""
    state = read_published(path)
    if state is not None and state.folder is not None:
        folder = path / PUBLISHED_FOLDER / state.folder
        sums = edge_checksums.read_checksums(folder)
        return None if sums is None else _Source(path, name, folder, state, sums)
    sums = edge_checksums.read_checksums(path)
    return None if sums is None else _Source(path, name, path, state, sums)


class CollectionView:
    """A collection that this process has open for reading. Thread-safe: one lock protects all use of the shard.

    Attributes:
        name: Name of the collection.
        path: Folder of the view.
        manifest: As it was committed.
        guard: Refuses use in a forked process.
    """

    count_in_writer = None

    def __init__(self, source: _Source, view: ViewPlace) -> None:
        """Make the view in a folder; see `open`."""
        self.name = source.name
        self.path = view.path
        self.guard = ProcessGuard(f"Collection '{source.name}'")
        self._mutex = threading.RLock()
        self._source = source
        self._seen = _stat(source.path)
        self._root = root_of(source.path)
        self.manifest, self._index = _read_content(source)
        self._shard: EdgeShard | None = _open_shard(source, view.path)
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
            StoreLockedError: If another process repairs it after a crash, or has it open with an older version.
            StoreError: If its files are damaged, or no view can be made.
        """
        start = time.monotonic()
        deadline = start + edge_lock.WAIT_S
        while True:
            source = _find(path, name)
            try:
                if source is not None:
                    return cls._open(source)
                with _lock_of_killed(path, name):
                    if _find(path, name) is None:
                        return cls._open(_Source(path, name, path, read_published(path), None))
            except _ChangedError:
                if source is not None:  # there is another state by now
                    deadline = min(time.monotonic() + edge_lock.WAIT_S, start + _BUSY_S)
            if not path.is_dir():
                raise CollectionNotFoundError(name)
            read_manifest(path, name)  # raises if it is none of ours
            if time.monotonic() >= deadline:
                raise _unpublished_error(path, name)
            time.sleep(edge_lock.POLL_S)

    @classmethod
    def _open(cls, source: _Source) -> CollectionView:
        for view in make_places(root_of(source.path).parent, source.name):
            try:
                return cls(source, view)
            except OSError as error:
                view.remove()
                if not source.is_unchanged():
                    raise _ChangedError from error
                if isinstance(error, FileNotFoundError):
                    raise edge_shard.damaged_error(source.name, str(error)) from error
                if not may_work_elsewhere(error):
                    raise edge_shard.os_error(error, source.name, "opening it") from error
            except StoreError as error:
                view.remove()
                if not source.is_unchanged():
                    raise _ChangedError from error
                raise
            except BaseException:
                view.remove()
                raise
        raise AssertionError("make_places ends with an error")

    @property
    def is_outdated(self) -> bool:
        """Whether another state was committed since this view was opened; it takes a look at two files."""
        with suppress(StoreError):  # nobody can read which version is current: this one stays
            if current_path(self._root) != self._source.path:
                return True
        seen = _stat(self._source.path)
        if seen == self._seen:
            return False
        state = read_published(self._source.path)
        if (state.token if state else None) != self._source.token:
            return True
        self._seen = seen
        return False

    @property
    def state_token(self) -> str | None:
        """What names the state of this view; None if nothing does, as after a crash."""
        return None if self._source.sums is None else self._source.token

    @contextmanager
    def shard(self, doing: str) -> Iterator[EdgeShard]:
        """Lock the shard for this thread; `doing` says what it is used for, as in "searching it"."""
        self.guard.check()
        with self._mutex:
            if self._shard is None:
                raise StoreClosedError(f"Collection '{self.name}' is closed. Open it again before {doing}.")
            with edge_shard.edge_errors(self.name, doing):
                yield self._shard

    def index_state(self) -> IndexState | None:
        """The state of the graph; None if none was built."""
        return self._index

    def read_ledger(self) -> Iterator[bytes]:
        """Yield the lines of the ledger of learned names, as they were committed."""
        try:
            yield from edge_ledger.read_lines(self.path)
        except OSError as error:
            raise edge_shard.os_error(error, self.name, "reading what it learned") from error

    def refuse(self, doing: str) -> NoReturn:
        """Raise `ReadOnlyError`."""
        raise ReadOnlyError([self.name], doing)

    def release(self) -> None:
        """Close the view and remove its folder. In a forked process this does nothing."""
        if self.guard.is_owner:
            with self._mutex:
                self._shard = None
                self._end()


def _close(shard: EdgeShard, view: ViewPlace, guard: ProcessGuard) -> None:
    """Close a view; also called when it is no longer used, and at exit."""
    if not guard.is_owner:
        # Edge flushes a shard that Python frees, which here would write into the first process's view: never free it.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(shard))
        view.remove()
        return
    # In this order, Edge finds no files that it could drop from the page cache, where other readers need them.
    view.remove()
    with suppress(Exception):
        shard.close()


def _stat(path: Path) -> tuple[int, int, int] | None:
    """What changes if the published state is replaced."""
    try:
        status = (path / PUBLISHED_FILE).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _read_content(source: _Source) -> tuple[Manifest, IndexState | None]:
    """The manifest and the state of the graph that belong to a state."""
    if not source.is_published or source.state is None:
        return read_manifest(source.path, source.name), read_index_state(source.path)
    index = None
    with suppress(ValueError):
        index = msgspec.json.decode(source.state.index, type=IndexState)
    return Manifest.parse(source.state.manifest, source.name), index


def _open_shard(source: _Source, view: Path) -> EdgeShard:
    """Make the files of a view, and open its shard.

    Raises:
        _ChangedError: If the files were replaced meanwhile.
        OSError: If a file cannot be read or written.
        StoreError: If the files are damaged.
    """
    shard = view / SHARD_FOLDER
    _place_files(source, view)
    if not source.is_unchanged():
        raise _ChangedError
    if source.sums is not None:
        _check(source, shard)
        make_log(shard)
    return edge_shard.load_shard(shard, source.name, check=_try if source.sums is None else _trust, has_copies=True)


def _place_files(source: _Source, view: Path) -> None:
    """Link and copy the files of the shard, and the committed part of the ledger."""
    shard = view / SHARD_FOLDER
    ledger = source.path / edge_ledger.LEDGER_FILE
    with suppress(FileNotFoundError):
        n_bytes = source.state.ledger_bytes if source.is_published and source.state else None
        copy_file(ledger, view / edge_ledger.LEDGER_FILE, n_bytes)
    if source.sums is None:
        place(source.folder / SHARD_FOLDER, shard_files(source.folder / SHARD_FOLDER), shard)
        (shard / LOG_FOLDER).mkdir(exist_ok=True)
        for file in (source.folder / SHARD_FOLDER / LOG_FOLDER).iterdir():
            if file.is_file():  # the engine leaves a folder where it is killed while it replaces a file
                copy_file(file, shard / LOG_FOLDER / file.name)
        return
    present = shard_files(source.folder / SHARD_FOLDER)
    missing = without_log(source.sums).keys() - set(present)
    if missing:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), min(missing))
    place(source.folder / SHARD_FOLDER, [name for name in present if name in source.sums], shard)


def _check(source: _Source, shard: Path) -> None:
    """Refuse files that are not as their checksums say."""
    assert source.sums is not None
    found = edge_checksums.sums_of(shard, follow_links=True)
    changed = [name for name, sum_ in sorted(without_log(source.sums).items()) if found.get(name) != sum_]
    if changed:
        why = f"{changed[0]} is not as it was when the collection was closed"
        raise edge_shard.damaged_error(source.name, why)


def _trust(shard: Path, name: str) -> bool:
    """For `load_shard`: nothing to check."""
    return False


def _try(shard: Path, name: str) -> bool:
    """For `load_shard`: open the shard in a child with limits first."""
    edge_checksums.open_on_trial(shard, name)
    return True


@contextmanager
def _lock_of_killed(path: Path, name: str) -> Iterator[None]:
    """Lock a collection that was not closed and of which nothing is published, while a view of it is made.

    Raises:
        _ChangedError: If a writer has it open.
    """
    try:
        file = (path / LOCK_FILE).open("rb")
    except FileNotFoundError:  # nobody has ever opened it
        yield
        return
    except OSError as error:
        raise edge_shard.os_error(error, name, "opening it") from error
    with file:
        try:
            portalocker.lock(file, portalocker.LOCK_SH | portalocker.LOCK_NB)
        except portalocker.AlreadyLocked as error:
            raise _ChangedError from error
        except portalocker.LockException:  # a file system without locks, on which no writer works
            pass
        yield


def _unpublished_error(path: Path, name: str) -> StoreError:
    state = read_published(path)
    owner = edge_lock.read_owner(path / LOCK_FILE)
    if state is not None and state.problem:
        return StoreError(
            f"Collection '{name}' is open for writing in another process ({owner}), which cannot publish it for "
            f"readers: {state.problem}. End that process, or keep the store on a file system with hard links and some "
            f"free space.",
            option="store",
        )
    return StoreLockedError(name, owner)
