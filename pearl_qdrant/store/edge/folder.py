"""The folder of one embedded collection, open in this process: lock, manifest, shard.

    NAME/.lock           held while the collection is open; says by which process
    NAME/manifest.json   written last of all when a collection is made
    NAME/index.json      how far the graph goes; absent until it is built
    NAME/files.json      the seal: how Edge's files were when the collection was closed; absent while it is open
    NAME/shard/          Qdrant Edge's own files

However often a collection is opened in a process, there is one `CollectionFolder`: the last to close it closes it.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import msgspec
from qdrant_edge import EdgeShard

from pearl_qdrant.errors import CollectionNotFoundError, ManifestError, StoreClosedError, StoreError, StoreLockedError
from pearl_qdrant.store import graph
from pearl_qdrant.store.atomic import write_atomically
from pearl_qdrant.store.edge import lock as edge_lock
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.process import Job
from pearl_qdrant.store.edge.seal import break_seal, lay_seal
from pearl_qdrant.store.ownership import Owner
from pearl_qdrant.store.schema import Manifest

MANIFEST_FILE = "manifest.json"
INDEX_FILE = "index.json"
LOCK_FILE = ".lock"
SHARD_FOLDER = "shard"

SMALL_POINTS = 20_000
"""Up to so many points a load keeps the payload indexes; beyond, they are made with the graph (`edge_writer.py`)."""

MAX_MANIFEST_BYTES = 64 * 1024 * 1024
"""Far more than a manifest has: the table of n-grams takes 350 KB, a checkpoint 200 bytes."""

_MAX_INDEX_BYTES = 4096  # it has 60

COMPACT_POINTS = 50_000
"""Points at which a load compacts its growing segment: 70 MB of anonymous memory with payload indexes."""

COMPACT_LEAN_POINTS = 100_000
"""The same without payload indexes: 1.6 KB of anonymous memory a point until then, n-grams included."""


class _Registry:
    """What this process has open, by path, and the lock around it."""

    def __init__(self) -> None:
        self.lock: AbstractContextManager[object] = threading.RLock()
        self.folders: dict[Path, CollectionFolder] = {}


_registry = _Registry()


@dataclass(frozen=True, slots=True)
class IndexState:
    """How far the graph goes.

    Attributes:
        vectors: Vectors in the graph when it was built.
        rewritten: How many of them a load has written again since, which took them out of it.
        m, ef_construct: With what it was built, and is built on.
    """

    vectors: int
    rewritten: int = 0
    m: int = graph.OLD_M
    ef_construct: int = graph.OLD_EF_CONSTRUCT


def read_manifest(path: Path, collection: str) -> Manifest:
    """The manifest in a collection's folder.

    Raises:
        ManifestError: If there is none, or it is unreadable.
    """
    text = None
    try:
        if (path / MANIFEST_FILE).is_file():
            with (path / MANIFEST_FILE).open("rb") as file:
                text = file.read(MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise ManifestError(collection, f"unreadable: {error}") from error
    if text is not None and len(text) > MAX_MANIFEST_BYTES:
        raise ManifestError(collection, f"it has more than {MAX_MANIFEST_BYTES:,} bytes")
    return Manifest.parse(text, collection)


class CollectionFolder:
    """One collection that this process has open. Thread-safe: one lock stands around all use of the shard.

    Of the two locks, the registry's is taken first: who holds a folder's may not ask for it.

    Attributes:
        name: Of the collection.
        path: Its folder.
        manifest: As last read or written.
        count_while_lent: Counts points while a writer has the shard; None otherwise.
        owner: The process that opened it.
    """

    def __init__(self, path: Path, name: str) -> None:
        """Lock and open; see `acquire`."""
        self.name = name
        self.path = path
        self.count_while_lent: Callable[[], int] | None = None
        self.owner = Owner(f"Collection '{name}'")
        self._mutex = threading.RLock()
        self._users = 0
        self._lent_to: str | None = None
        self._shard: EdgeShard | None = None
        self._lock = edge_lock.CollectionLock.acquire(path / LOCK_FILE, name)
        try:
            self.manifest = read_manifest(path, name)
            self._load(check=break_seal)
        except BaseException:
            self._lock.release()
            raise

    @classmethod
    def acquire(cls, path: Path, name: str) -> CollectionFolder:
        """The open folder at `path`, opened if it is not; to be paired with `release`.

        Raises:
            CollectionNotFoundError: If it was deleted just now.
            ManifestError: If it has no usable manifest.
            StoreLockedError: If another process has it open.
            StoreError: If its files are damaged, or cannot be written.
        """
        _watch_process()
        with _registry.lock:
            folder = _registry.folders.get(path)
            if folder is None:
                try:
                    folder = cls(path, name)
                except FileNotFoundError as error:
                    raise CollectionNotFoundError(name) from error
                _registry.folders[path] = folder
            elif folder._shard is None and folder._lent_to is None:  # it could not be opened after a load
                folder._load()
            folder._users += 1
            return folder

    @staticmethod
    def is_open(path: Path) -> bool:
        """Whether this process has it open."""
        with _registry.lock:
            return path in _registry.folders

    def release(self) -> None:
        """Give it back; the last one closes it. In a process that was forked from the owner, it does nothing."""
        if not self.owner.is_here:
            return
        with _registry.lock, self._mutex:
            self._users -= 1
            # A writer that is still open has the shard: it finds nobody left, and closes for us.
            if not self._users and self._lent_to is None:
                self._close()

    @contextmanager
    def shard(self, doing: str) -> Iterator[EdgeShard]:
        """The shard, for this thread alone.

        Args:
            doing: What for, as in "searching it".

        Raises:
            StoreError: If a writer or `finalize` has it, or Edge fails.
        """
        self.owner.check()
        with self._mutex:
            if self._lent_to is not None:
                raise StoreError(f"Collection '{self.name}' is {self._lent_to}: wait for its end before {doing}.")
            if self._shard is None:
                raise StoreClosedError(f"Collection '{self.name}' is closed. Open it again before {doing}.")
            with edge_shard.edge_errors(self.name, doing):
                yield self._shard

    @contextmanager
    def lent(self, lent_to: str) -> Iterator[None]:
        """Close the shard for a child process to open it, and open it again afterwards.

        Args:
            lent_to: What happens meanwhile, as in "being loaded".
        """
        is_ours = False
        try:
            with self.shard("starting that") as shard:
                self._shard, self._lent_to, is_ours = None, lent_to, True
            # Not under the lock, which `_take_back` takes after the registry's.
            self._shut(shard, "starting that")
            yield
        finally:
            if is_ours:
                self._take_back()

    def _take_back(self) -> None:
        """Open the shard again, unless all users have gone meanwhile."""
        if not self.owner.is_here:
            return
        with _registry.lock, self._mutex:
            self._lent_to = None
            self.count_while_lent = None
            if self._users:
                self._load()
            else:
                self._close()

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest, atomically.

        Raises:
            StoreFullError: If there is no space for it.
            StoreError: If it cannot be written.
        """
        with self._mutex:
            self._write(MANIFEST_FILE, manifest.model_dump_json(indent=2), "writing its manifest")
            self.manifest = manifest

    def index_state(self) -> IndexState | None:
        """How far the graph goes; None if none was built."""
        try:
            with (self.path / INDEX_FILE).open("rb") as file:
                return msgspec.json.decode(file.read(_MAX_INDEX_BYTES), type=IndexState)
        except (OSError, ValueError, RecursionError):  # an unreadable one costs no more than a finalize
            return None

    def write_index_state(self, state: IndexState) -> None:
        """Replace it; raises as `write_manifest`."""
        self._write(INDEX_FILE, json.dumps(asdict(state)), "noting how far its graph goes")

    def _write(self, file: str, text: str, doing: str) -> None:
        try:
            write_atomically(self.path / file, text + "\n")
        except OSError as error:
            raise edge_shard.classify(str(error), self.name, doing) from error

    def load_job(self) -> Job:
        """A child's job to load points."""
        return self._job("load")

    def finalize_job(self) -> Job:
        """A child's job to build the graph."""
        return self._job("finalize")

    def _job(self, task: str) -> Job:
        state = self.index_state()
        return Job(
            task="finalize" if task == "finalize" else "load",
            collection=self.name,
            shard=str(self.path / SHARD_FOLDER),
            dim=self.manifest.dim,
            has_lexical=self.manifest.has_lexical,
            threshold_kb=edge_shard.INDEXING_THRESHOLD_KB,
            quantization=self.manifest.quantization,
            has_graph=state is not None,
            graph_m=graph.M if state is None else state.m,
            graph_ef_construct=graph.EF_CONSTRUCT if state is None else state.ef_construct,
            small_points=SMALL_POINTS,
            compact_points=COMPACT_POINTS,
            compact_lean_points=COMPACT_LEAN_POINTS,
        )

    def _load(self, check: Callable[[Path, str], bool] = lambda path, name: False) -> None:
        """Open the shard; the child of a process that was killed may need a moment to let go of it.

        Args:
            check: As in `edge_shard.load_shard`. Not needed for what was open in this process a moment ago.
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
                return

    def _shut(self, shard: EdgeShard, doing: str) -> None:
        """Flush and close a shard; closed it is in any case."""
        with edge_shard.edge_errors(self.name, doing):
            try:
                shard.flush()
            finally:
                shard.close()

    def _close(self) -> None:
        """Close it for good; the caller holds both locks."""
        _registry.folders.pop(self.path, None)
        shard, self._shard = self._shard, None
        try:
            if shard is not None:
                self._shut(shard, "closing it")
                lay_seal(self.path / SHARD_FOLDER)
        finally:
            self._lock.release()

    def _disown(self) -> None:
        """In a process that was just forked: leave files and locks to the owner, whatever happens here."""
        if self._shard is not None:
            # What Edge does when a shard is collected is to flush it: one reference more, and it never is.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._shard))
        self._lock.release()


def _disown_all() -> None:
    """What was open in the process that this one was forked from is not open here."""
    for folder in _registry.folders.values():
        folder._disown()
    _registry.folders.clear()
    _registry.lock = threading.RLock()  # a thread that did not come along may hold it


def _close_all() -> None:
    """Close at the end of the process what was left open, but for what a thread is at work on."""
    for folder in list(_registry.folders.values()):
        if folder.owner.is_here and folder._mutex.acquire(blocking=False):
            with suppress(StoreError):
                if folder._lent_to is None:
                    folder._close()
            folder._mutex.release()


@cache
def _watch_process() -> None:
    """Be there when this process forks or ends; asked for once, when the first collection is opened."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_disown_all)
    atexit.register(_close_all)
