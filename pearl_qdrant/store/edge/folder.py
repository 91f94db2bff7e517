"""The folder of one embedded collection, open in this process: lock, manifest, shard.

    NAME/.lock           locked while the collection is open; names the process that has it
    NAME/manifest.json   written last when a collection is made
    NAME/index.json      how many vectors are in the graph; absent until it is built
    NAME/files.json      size and checksum of Edge's files when the collection was closed; absent after a change
    NAME/published.json  what readers see, with files in NAME/published/ from the first change on
    NAME/learned.jsonl   the ledger of learned names; absent until something is learned (`ledger.py`)
    NAME/shard/          Qdrant Edge's own files

A process has one `CollectionFolder` for a collection, however often it opens it. The last user to close it closes it.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path

from qdrant_edge import EdgeShard

from pearl_qdrant.errors import CollectionNotFoundError, StoreClosedError, StoreError, StoreLockedError
from pearl_qdrant.store import graph
from pearl_qdrant.store.atomic import write_atomically
from pearl_qdrant.store.edge import ledger as edge_ledger
from pearl_qdrant.store.edge import lock as edge_lock
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.checksums import verify_and_remove_checksums
from pearl_qdrant.store.edge.child_process import Job
from pearl_qdrant.store.edge.content import (
    INDEX_FILE,
    LOCK_FILE,
    MANIFEST_FILE,
    SHARD_FOLDER,
    IndexState,
    read_index_state,
    read_manifest,
)
from pearl_qdrant.store.edge.publisher import Publisher
from pearl_qdrant.store.ownership import ProcessGuard
from pearl_qdrant.store.schema import Manifest

SMALL_POINTS = 20_000
"""Up to this many points a load keeps the payload indexes. Beyond, they are made with the graph (`child_main.py`)."""

COMPACT_POINTS = 50_000
"""Points at which a load compacts its growing segment: 70 MB of anonymous memory with payload indexes."""

COMPACT_UNINDEXED_POINTS = 100_000
"""The same without payload indexes: until then 1.6 KB of anonymous memory a point, n-grams included."""


class _Registry:
    """The collections that this process has open, by path, and the lock that protects them."""

    def __init__(self) -> None:
        self.lock: AbstractContextManager[object] = threading.RLock()
        self.folders: dict[Path, CollectionFolder] = {}


_registry = _Registry()


class CollectionFolder:
    """One collection that this process has open. Thread-safe: one lock protects all use of the shard.

    There are two locks in this process: the registry's, which protects the set of open folders, and one in each
    folder, which protects its shard. To avoid a deadlock the registry's is always taken first: a thread that holds a
    folder's lock must not take the registry's.

    While a bulk load or `finalize` runs, the shard is handed over: closed here, and open in a child process.

    Attributes:
        name: Name of the collection.
        path: Its folder.
        manifest: As last read or written.
        count_in_writer: Counts points while a writer has the shard; None otherwise.
        guard: Refuses use in a forked process.
    """

    def __init__(self, path: Path, name: str) -> None:
        """Lock and open; see `acquire`."""
        self.name = name
        self.path = path
        self.count_in_writer: Callable[[], int] | None = None
        self.guard = ProcessGuard(f"Collection '{name}'")
        self._mutex = threading.RLock()
        self._users = 0
        self._handed_over_for: str | None = None  # as in "being loaded"
        self._shard: EdgeShard | None = None
        self._n_editors = 0
        self._is_settled = False  # nothing was done to the shard since Edge opened it
        self._publisher = Publisher(path, name)
        self._lock = edge_lock.CollectionLock.acquire(path / LOCK_FILE, name)
        try:
            self.manifest = read_manifest(path, name)
            self._load(check=partial(verify_and_remove_checksums, on_verified=self._publisher.begin))
            self._publisher.check_opened()
            self.manifest = read_manifest(path, name)  # after a kill it may be another one
            if not self._publisher.is_published:
                self._commit()
        except BaseException:
            self._lock.release()
            raise

    @classmethod
    def acquire(cls, path: Path, name: str) -> CollectionFolder:
        """Return the open folder at `path`, and open it if it is not. Each call needs one `release`.

        Raises:
            CollectionNotFoundError: If it has just been deleted.
            ManifestError: If it has no usable manifest.
            StoreLockedError: If another process has it open.
            StoreError: If its files are damaged, or cannot be written.
        """
        _register_exit_handlers()
        with _registry.lock:
            folder = _registry.folders.get(path)
            if folder is None:
                try:
                    folder = cls(path, name)
                except FileNotFoundError as error:
                    raise CollectionNotFoundError(name) from error
                _registry.folders[path] = folder
            elif folder._shard is None and folder._handed_over_for is None:  # it could not be opened after a load
                folder._load()
            folder._users += 1
            return folder

    @staticmethod
    def is_open(path: Path) -> bool:
        """Whether this process has it open."""
        with _registry.lock:
            return path in _registry.folders

    def release(self) -> None:
        """Stop using it; the last user closes it. In a forked process this does nothing."""
        if not self.guard.is_owner:
            return
        with _registry.lock, self._mutex:
            self._users -= 1
            # If a writer is still open, the shard is handed over: `_take_back` finds no users and closes it.
            if not self._users and self._handed_over_for is None:
                self._close()

    @contextmanager
    def shard(self, doing: str) -> Iterator[EdgeShard]:
        """Lock the shard for this thread; `doing` says what it is used for, as in "searching it".

        Raises:
            StoreError: If a writer or `finalize` has it, or Edge fails.
        """
        self.guard.check()
        with self._mutex:
            if self._handed_over_for is not None:
                raise StoreError(
                    f"Collection '{self.name}' is {self._handed_over_for}: wait until that ends before {doing}."
                )
            if self._shard is None:
                raise StoreClosedError(f"Collection '{self.name}' is closed. Open it again before {doing}.")
            with edge_shard.edge_errors(self.name, doing):
                yield self._shard

    @contextmanager
    def hand_over(self, reason: str) -> Iterator[None]:
        """Close the shard so that a child process can open it, and open it again afterwards.

        Two processes must not have a shard open at the same time: Edge locks it, and each would overwrite the other's
        files. Until the end of the block, `shard` refuses all other use.

        Args:
            reason: What happens meanwhile, as in "being loaded".
        """
        is_handed_over = False
        with self.editing():
            try:
                with self.shard("starting that") as shard:
                    self._publisher.hand_over()
                    self._shard, self._handed_over_for, is_handed_over = None, reason, True
                # Closed after this folder's lock is released: if closing fails, `_take_back` takes the registry's lock,
                # and it must take that one first.
                self._close_shard(shard, "starting that")
                yield
            finally:
                if is_handed_over:
                    self._take_back()

    def _take_back(self) -> None:
        """Open the shard again after a hand-over; close the collection if all users have released it meanwhile."""
        if not self.guard.is_owner:
            return
        with _registry.lock, self._mutex:
            self._handed_over_for = None
            self.count_in_writer = None
            self._publisher.changed_files()
            try:
                self._load()
            finally:
                if not self._users:
                    self._close()

    @contextmanager
    def editing(self) -> Iterator[None]:
        """Let readers see what the block changes when it ends, not before; blocks within it do not matter."""
        self.guard.check()
        with self._mutex:
            if self._shard is not None:
                self._publisher.before_change()
            self._n_editors += 1
        try:
            yield
        finally:
            if self.guard.is_owner:
                with self._mutex:
                    self._n_editors -= 1
                    if not self._n_editors:
                        self._commit()

    @contextmanager
    def changing(self, doing: str) -> Iterator[EdgeShard]:
        """Lock the shard for this thread to change it, in a block of `editing`; arguments and errors as for `shard`."""
        with self.editing(), self.shard(doing) as shard:
            self.record_change()
            yield shard

    def record_change(self) -> None:
        """Note that the shard is changed. The caller is in `editing`."""
        self._is_settled = False
        self._publisher.changed_files()

    @property
    def state_token(self) -> str | None:
        """What names the state that readers find; None if there is a newer one here."""
        return self._publisher.token

    def record_ledger(self) -> None:
        """Note that the ledger is another one. The caller is in `editing`."""
        self._publisher.changed()

    def _commit(self) -> None:
        """Publish what changed. The caller holds this folder's lock."""
        if self._shard is not None:
            self._publisher.commit(self._shard)

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest, atomically.

        Raises:
            StoreFullError: If there is no space for it.
            StoreError: If it cannot be written.
        """
        with self.editing(), self._mutex:
            self._write(MANIFEST_FILE, manifest.model_dump_json(indent=2), "writing its manifest")
            if manifest != self.manifest:
                self._publisher.changed()
            self.manifest = manifest

    def index_state(self) -> IndexState | None:
        """Read the state of the graph; None if none was built."""
        return read_index_state(self.path)

    def write_index_state(self, state: IndexState) -> None:
        """Replace the state of the graph; raises as `write_manifest`."""
        self._write(INDEX_FILE, json.dumps(asdict(state)), "writing the state of its graph")
        self._publisher.changed()

    def _write(self, file: str, text: str, doing: str) -> None:
        try:
            write_atomically(self.path / file, text + "\n")
        except OSError as error:
            raise edge_shard.os_error(error, self.name, doing) from error

    def read_ledger(self) -> Iterator[bytes]:
        """Yield the lines of the ledger of learned names; raises StoreError if it cannot be read."""
        try:
            yield from edge_ledger.read_lines(self.path)
        except OSError as error:
            raise edge_shard.os_error(error, self.name, "reading what it learned") from error

    def append_ledger(self, lines: Sequence[bytes]) -> None:
        """Append lines to the ledger of learned names; raises as `write_manifest`."""
        with self.editing(), self._mutex:
            self._publisher.changed()
            try:
                edge_ledger.append_lines(self.path, lines)
            except OSError as error:
                raise edge_shard.os_error(error, self.name, "learning names") from error

    def load_job(self) -> Job:
        """Describe the job of a child that loads points."""
        return self._job("load")

    def finalize_job(self) -> Job:
        """Describe the job of a child that builds the graph."""
        return self._job("finalize")

    def _job(self, task: str) -> Job:
        state = self.index_state()
        return Job(
            task="finalize" if task == "finalize" else "load",
            collection=self.name,
            shard=str(self.path / SHARD_FOLDER),
            dim=self.manifest.dim,
            has_descriptions=self.manifest.has_descriptions,
            threshold_kb=edge_shard.INDEXING_THRESHOLD_KB,
            quantization=self.manifest.quantization,
            has_graph=state is not None,
            graph_m=graph.M if state is None else state.m,
            graph_ef_construct=graph.EF_CONSTRUCT if state is None else state.ef_construct,
            parts=1 if state is None else state.parts,
            small_points=SMALL_POINTS,
            compact_points=COMPACT_POINTS,
            compact_unindexed_points=COMPACT_UNINDEXED_POINTS,
        )

    def _load(self, check: Callable[[Path, str], bool] = lambda path, name: False) -> None:
        """Open the shard. If a process was killed, its child may keep the shard locked a little longer: wait for it.

        Args:
            check: As in `edge_shard.load_shard`; not needed if the shard was open in this process just before.
        """
        deadline = time.monotonic() + edge_lock.WAIT_S
        while True:
            try:
                self._shard = edge_shard.load_shard(self.path / SHARD_FOLDER, self.name, check=check)
            except StoreLockedError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(edge_lock.POLL_S)
            else:
                # Edge writes two dense vectors of a point in another order each time.
                self._is_settled = not self.manifest.has_descriptions
                return

    def _close_shard(self, shard: EdgeShard, doing: str) -> None:
        """Flush and close a shard; it is closed even if flushing fails."""
        with edge_shard.edge_errors(self.name, doing):
            try:
                shard.flush()
            finally:
                shard.close()

    def _close(self) -> None:
        """Close and unlock the collection. The caller holds both locks."""
        _registry.folders.pop(self.path, None)
        shard, self._shard = self._shard, None
        try:
            if shard is not None:
                self._close_shard(shard, "closing it")
                self._publisher.end(is_settled=self._is_settled)
        finally:
            self._lock.release()

    def _detach_after_fork(self) -> None:
        """In a forked process: leave the files and the lock to the first process."""
        if self._shard is not None:
            # Edge flushes a shard when Python frees it, which here would write into the first process's files. One
            # reference too many keeps it from ever being freed.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._shard))
        self._lock.release()


def _detach_all_after_fork() -> None:
    """In a forked process: forget the collections that the first process has open."""
    for folder in _registry.folders.values():
        folder._detach_after_fork()
    _registry.folders.clear()
    # A thread of the first process may have held the lock when it forked. That thread does not exist here, so it would
    # never be released: make a new one.
    _registry.lock = threading.RLock()


def _close_all() -> None:
    """At exit: close the collections that are still open, except where another thread is using one."""
    for folder in list(_registry.folders.values()):
        if folder.guard.is_owner and folder._mutex.acquire(blocking=False):
            with suppress(StoreError):
                if folder._handed_over_for is None:
                    folder._close()
            folder._mutex.release()


@cache
def _register_exit_handlers() -> None:
    """Be called when this process forks or exits; registered once, when the first collection is opened."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_detach_all_after_fork)
    atexit.register(_close_all)
