"""A collection that this process has open for writing: its lock, its work folder, its commits (`content.py`).

A process has one `CollectionFolder` for a collection, and its last user closes it. The writer changes files in a folder
of its own, and commits by storing them: an edit that is killed half-way leaves nothing, and a bulk load is kept.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import IO, ClassVar, Literal, TypeVar

import portalocker
from qdrant_edge import EdgeShard

from pearl_qdrant.errors import CollectionNotFoundError, ManifestError, StoreClosedError, StoreError, StoreLockedError
from pearl_qdrant.store.edge import content as edge_content
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.content import (
    LOCK_FILE,
    MANIFEST_FILE,
    SHARD_FOLDER,
    WORK_FOLDER,
    Content,
    Files,
    IndexState,
)
from pearl_qdrant.store.schema import Manifest, Quantization
from pearl_qdrant.store.system import ProcessGuard, resource_error

# Points up to which a load keeps the payload indexes; else they are made with the graph (`child_main.py`).
SMALL_POINTS = 20_000
COMPACT_POINTS = 50_000  # at which a load compacts its growing segment: 70 MB of anonymous memory with payload indexes
COMPACT_UNINDEXED_POINTS = 100_000  # the same without: until then 1.6 KB of anonymous memory a point, n-grams included
WAIT_S = 2.0  # how long a second process waits: long enough if the first one is just closing
POLL_S = 0.05
_OWNER_CHARS = 100  # of the content of a lock file


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Job:
    """The job of a child: what it does to which shard.

    Segments from `threshold_kb` of vectors on are compacted, or get a graph. With an `index`, compacted segments have a
    graph already, so that new ones need it too. Beyond `small_points` a load drops the payload indexes until the graph
    is built. A growing segment is compacted at `compact_points`, without payload indexes at `compact_unindexed_points`.
    """

    task: Literal["load", "finalize"]
    collection: str
    shard: str
    dim: int
    threshold_kb: int
    quantization: Quantization
    index: IndexState | None
    small_points: int
    compact_points: int
    compact_unindexed_points: int


class CollectionLock:
    """A file locked by the operating system until `release` or the end of the process; it names the owner."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._guard = ProcessGuard("The lock of a collection")

    @classmethod
    def acquire(cls, path: Path, collection: str, *, wait_s: float | None = None) -> CollectionLock:
        """Lock a collection by its lock file.

        Raises StoreLockedError if another process has it for `wait_s` more, FileNotFoundError if its folder does not
        exist, StoreError if the file cannot be written, or the file system has no locks.
        """
        try:
            file = os.fdopen(os.open(path, edge_content.APPEND_FLAGS, 0o666), "r+", encoding="utf-8")
        except FileNotFoundError:
            raise
        except OSError as error:
            what = f"Collection '{collection}' cannot be opened for writing"
            raise (
                resource_error(error, what) or edge_shard.unwritable_error(collection, str(path.parent), str(error))
            ) from error
        try:
            while_locked(partial(_lock, file, path, collection), WAIT_S if wait_s is None else wait_s)
            # Another process may have deleted the collection, and made one of that name, before we had the lock: then
            # we have locked a file that is no longer in the folder.
            if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
                raise FileNotFoundError(str(path))
            file.truncate(0)
            with suppress(OSError):  # on a full disk the lock names no owner
                os.write(file.fileno(), f"process {os.getpid()}: {_command()}".encode(errors="replace"))
        except BaseException:
            file.close()
            raise
        return cls(file)

    def release(self) -> None:
        """Unlock; the file stays, empty. In a forked process this only closes the copy: unlocking would unlock both."""
        if self._guard.is_owner and not self._file.closed:
            self._file.truncate(0)
            portalocker.unlock(self._file)
        self._file.close()


def while_locked(do: Callable[[], T], wait_s: float) -> T:
    """Call again while it raises StoreLockedError, for so long at most."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return do()
        except StoreLockedError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(POLL_S)


def _lock(file: IO[str], path: Path, collection: str) -> None:
    try:
        portalocker.lock(file, portalocker.LOCK_EX | portalocker.LOCK_NB)
    except portalocker.AlreadyLocked as error:
        raise StoreLockedError(collection, read_owner(path)) from error
    except portalocker.LockException as error:
        failed = f"Collection '{collection}' cannot be locked"
        raise resource_error(error, failed) or StoreError(
            f"{failed} ({error}): the file system does not support locks. Keep the store on a local disk, or use a "
            f"Qdrant server as the store, as in http://localhost:6333.",
            option="store",
        ) from error


def find_owner(path: Path) -> str | None:
    """Find which process has the lock; None if nobody has, or the file cannot be read. It waits for nobody."""
    try:
        with path.open("rb") as file:
            try:
                portalocker.lock(file, portalocker.LOCK_SH | portalocker.LOCK_NB)
            except portalocker.AlreadyLocked:
                return read_owner(path)
            portalocker.unlock(file)
    except (OSError, portalocker.LockException):  # or a file system without locks
        pass
    return None


def read_owner(path: Path) -> str:
    """Read which process has the lock. Anybody may have written the file, so the text is made printable."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            owner = file.read(_OWNER_CHARS)
    except OSError:  # on Windows nobody else may read a locked file
        return "unknown"
    return "".join(char if char.isprintable() else "?" for char in owner) or "unknown"


def _command() -> str:
    """Return this process's command with its first argument only, as in "pearl-qdrant ingest"."""
    name = Path(sys.argv[0] or sys.executable).name
    return " ".join([name, *sys.argv[1:2]])[:80]


class OpenedCollection:
    """A collection that this process has open. Thread-safe: one lock protects all use of the shard. `path` is the
    folder with the ledger, `manifest` as it was committed, or last written here.
    """

    def __init__(self, path: Path, name: str, manifest: Manifest, content: Content) -> None:
        self.path, self.name, self.manifest = path, name, manifest
        self.guard = ProcessGuard(f"Collection '{name}'")
        self._content = content
        self.index = content.index
        self._mutex = threading.RLock()
        self._shard: EdgeShard | None = None

    @contextmanager
    def shard(self, doing: str) -> Iterator[EdgeShard]:
        """Lock the shard for this thread, to do as in "searching it"; StoreError if it is not here, or Edge fails."""
        self.guard.check()
        with self._mutex:
            if self._shard is None:
                raise self._no_shard_error(doing)
            with edge_shard.edge_errors(self.name, doing):
                yield self._shard

    def _no_shard_error(self, doing: str) -> StoreError:
        return StoreClosedError(f"Collection '{self.name}' is closed. Open it again before {doing}.")

    @property
    def state_token(self) -> str | None:
        """What names the state that is searched here; None if it is not committed."""
        return self._content.token

    @property
    def ledger_loss(self) -> str | None:
        """See `protocol.Collection.ledger_loss`."""
        n_bytes, wanted = edge_content.ledger_size(self.path), self._content.ledger_bytes
        if n_bytes >= wanted:
            return None
        return (
            f"its file {edge_content.LEDGER_FILE} has {n_bytes:,} of {wanted:,} bytes, so that names that it learned "
            f"are gone. Copy that file back into the collection's folder, or learn them again"
        )

    def read_ledger(self) -> Iterator[bytes]:
        with edge_shard.edge_errors(self.name, "reading what it learned"):
            yield from edge_content.read_lines(self.path)


def keep_from_flushing(shard: EdgeShard | None) -> None:
    """In a forked process: never free a shard. Edge flushes one that Python frees, into the first process's files."""
    if shard is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(shard))


class _Registry:
    """The collections that this process has open, by path, and the lock that protects them."""

    lock: AbstractContextManager[object] = threading.RLock()
    folders: ClassVar[dict[Path, CollectionFolder]] = {}


_registry = _Registry()


class CollectionFolder(OpenedCollection):
    """One collection that this process has open for writing.

    The registry's lock protects the set of open folders, and one in each folder its shard. To avoid a deadlock the
    registry's is always taken first. While a bulk load or `finalize` runs, the shard is handed over: closed here, and
    open in a child process.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._users = 0
        self._handed_over_for: str | None = None  # as in "being loaded"
        self._lent: EdgeShard | None = None  # while it is handed over, until a child process opens it
        self._n_editors = 0
        self._is_changed = False  # since the last commit
        self._has_new_files = False  # the shard's files are not those that are stored
        self._has_learned = False
        self._is_kept = False  # if this process is killed, the next one goes on with the work folder
        self.work = path / WORK_FOLDER  # of the files that change
        self.work_shard = self.work / SHARD_FOLDER
        self._lock = CollectionLock.acquire(path / LOCK_FILE, name)
        try:
            super().__init__(path, name, *edge_content.read_content(path, name))
            try:
                self._begin_work()
                self._load()
                if not self._is_kept and edge_content.adopt_ledger(path.parent, name, path):
                    self._is_changed = True
                    self._commit()
            except StoreError as error:
                is_damage = isinstance(error, ManifestError) or "look damaged" in str(error)
                if not is_damage or not (self.work / MANIFEST_FILE).is_file():
                    raise
                raise StoreError(
                    f"Collection '{name}' cannot go on with a load that was stopped: {error.args[0]} What was "
                    f"committed before that load is whole: to go back to it, remove {self.work}."
                ) from error
        except BaseException:
            self._lock.release()
            raise

    def _begin_work(self) -> None:
        """Make a shard of the stored files, or go on with that of a killed load."""
        edge_content.remove_other_files(self.path, self._content)
        with edge_shard.edge_errors(self.name, "opening it"):
            if (self.work / MANIFEST_FILE).is_file():
                manifest, content = edge_content.read_content(self.work, self.name)
                if content.token == self._content.token:  # else it was committed, and killed at the end of that
                    self.manifest, self.index = manifest, content.index
                    self._is_changed = self._has_new_files = self._is_kept = True
                    return
            with suppress(FileNotFoundError):
                shutil.rmtree(self.work)
            try:
                edge_content.take_files(self.path, self.name, self._content.files, self.work_shard, is_lasting=True)
            except BaseException:
                shutil.rmtree(self.work, ignore_errors=True)
                raise
            # Without a committed line, it may be the kept ledger of a collection that was made again.
            if self._content.ledger_bytes:
                edge_content.cut_ledger(self.path, self._content.ledger_bytes)

    @classmethod
    def acquire(cls, path: Path, name: str) -> CollectionFolder:
        """Return the open folder at `path`, and open it if it is not. Each call needs one `release`.

        Raises CollectionNotFoundError if it has just been deleted, StoreLockedError if another process has it open,
        ManifestError or StoreError if its files are not usable.
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

    def _no_shard_error(self, doing: str) -> StoreError:
        if self._handed_over_for is not None:
            return StoreError(
                f"Collection '{self.name}' is {self._handed_over_for}: wait until that ends before {doing}."
            )
        return super()._no_shard_error(doing)

    @contextmanager
    def hand_over(self, reason: str) -> Iterator[EdgeShard]:
        """Give the shard to a block, which uses it alone, or lets a child process open it (`job`). Until the end of the
        block, `shard` refuses all other use, and says why: as in "being loaded".
        """
        is_handed_over = False
        with self.editing():
            try:
                with self.shard("starting that") as shard:
                    self.record_change()
                    self._keep()
                    self._shard, self._lent, self._handed_over_for, is_handed_over = None, shard, reason, True
                yield shard
            finally:
                if is_handed_over:
                    self._take_back()

    def _take_back(self) -> None:
        """Have the shard again after a hand-over; close the collection if all users have released it meanwhile."""
        if not self.guard.is_owner:
            return
        with _registry.lock, self._mutex:
            self._handed_over_for = None
            self._shard, self._lent = self._lent, None
            try:
                if self._shard is None:
                    self._load()
            finally:
                if not self._users:
                    self._close()

    @contextmanager
    def editing(self) -> Iterator[None]:
        """Let readers see what the block changes when it ends, not before; blocks within it do not matter."""
        self.guard.check()
        with self._mutex:
            self._n_editors += 1
        try:
            yield
        except BaseException:
            with suppress(StoreError):
                self._end_edit()
            raise
        self._end_edit()

    def _end_edit(self) -> None:
        if self.guard.is_owner:
            with self._mutex:
                self._n_editors -= 1
                if not self._n_editors:
                    self._commit()

    @contextmanager
    def changing(self, doing: str) -> Iterator[EdgeShard]:
        """Lock the shard for this thread to change it, in a block of `editing`; arguments and errors as for `shard`."""
        with self.editing(), self.shard(doing) as shard:
            edge_shard.check_space(self.path, self.name, edge_shard.OPEN_BYTES, doing=doing)
            self.record_change()
            yield shard

    def record_change(self) -> None:
        """Note that the shard is changed. The caller is in `editing`."""
        self._is_changed = self._has_new_files = True

    @property
    def state_token(self) -> str | None:
        """What names the state that readers find; None if there is a newer one here."""
        return None if self._is_changed else super().state_token

    def _commit(self) -> None:
        """Let readers see what changed, with its files. The caller holds this folder's lock. If that fails
        (StoreError), as on a full disk, it is kept, and done with the next change.
        """
        if self._shard is None or not self._is_changed:
            return
        try:
            with edge_shard.edge_errors(self.name, "writing to it"):
                files = self._content.files
                if self._has_new_files:
                    edge_shard.check_space(self.path, self.name, edge_shard.OPEN_BYTES)
                    self._shard.flush()
                    files = edge_content.store_files(self.path, self.work_shard, files)
                content = self._next_content(edge_content.new_token(), files)
                edge_content.write_content(self.path, self.manifest, content)
        except StoreError:
            with suppress(StoreError):
                self._content = edge_content.read_content(self.path, self.name)[1]
                edge_content.remove_other_files(self.path, self._content)
            with suppress(StoreError):
                self._keep()
            raise
        self._content, self._is_changed, self._has_new_files, self._is_kept = content, False, False, False
        with suppress(OSError):  # it is told by its token
            (self.work / MANIFEST_FILE).unlink(missing_ok=True)
        edge_content.remove_other_files(self.path, content)

    def _next_content(self, token: str, files: Files) -> Content:
        n_bytes = edge_content.ledger_size(self.path)
        if not self._has_learned:  # a loss stays known until something is learned anew
            n_bytes = max(n_bytes, self._content.ledger_bytes)
        return replace(self._content, token=token, files=files, ledger_bytes=n_bytes, index=self.index)

    def _keep(self) -> None:
        """Say that the work folder has what is not committed, and counts if this process is killed."""
        with edge_shard.edge_errors(self.name, "writing its manifest"):
            if not self._is_kept:
                edge_content.sync_shard(self.work_shard)
            content = self._next_content(self._content.token, self._content.files)
            edge_content.write_content(self.work, self.manifest, content)
            self._is_kept = True

    def write_manifest(self, manifest: Manifest) -> None:
        if manifest != self.manifest:
            self._replace(manifest, self.index)

    def write_index_state(self, state: IndexState) -> None:
        self._replace(self.manifest, state)

    def _replace(self, manifest: Manifest, index: IndexState | None) -> None:
        with self._mutex:
            before = self.manifest, self.index
            self.manifest, self.index = manifest, index
            try:
                with self.editing():
                    self._is_changed = True
                    if self._is_kept:
                        self._keep()
            except StoreError:
                self.manifest, self.index = before
                if self._is_kept:
                    with suppress(StoreError):
                        self._keep()
                raise

    def append_ledger(self, lines: Sequence[bytes]) -> None:
        with self.editing(), self._mutex, edge_shard.edge_errors(self.name, "learning names"):
            self._is_changed = self._has_learned = True
            edge_content.append_lines(self.path, lines)

    def job(self, task: Literal["load", "finalize"]) -> Job:
        """Close the shard that was handed over, and make the job of the child process that opens it."""
        shard, self._lent = self._lent, None
        if shard is not None:  # not under this folder's lock: if it fails, `_take_back` takes the registry's lock first
            self._close_shard(shard, "starting that")
        return Job(
            task=task,
            collection=self.name,
            shard=str(self.work_shard),
            dim=self.manifest.dim,
            threshold_kb=edge_shard.INDEXING_THRESHOLD_KB,
            quantization=self.manifest.quantization,
            index=self.index,
            small_points=SMALL_POINTS,
            compact_points=COMPACT_POINTS,
            compact_unindexed_points=COMPACT_UNINDEXED_POINTS,
        )

    def _load(self) -> None:
        """Open the shard. If a process was killed, its child may keep the shard locked a little longer: wait for it."""
        self._shard = while_locked(partial(edge_shard.load_shard, self.work_shard, self.name), WAIT_S)

    def _close_shard(self, shard: EdgeShard, doing: str) -> None:
        try:
            edge_shard.check_space(self.path, self.name, edge_shard.OPEN_BYTES, doing=doing)
        except StoreError:
            keep_from_flushing(shard)  # its log has what was acknowledged
            raise
        with edge_shard.edge_errors(self.name, doing):
            try:
                shard.flush()
            finally:
                shard.close()

    def _close(self) -> None:
        """Close and unlock the collection. The caller holds both locks."""
        _registry.folders.pop(self.path, None)
        try:
            if self._shard is not None:
                # A load whose collection was released meanwhile ends here, too.
                if not self._n_editors or self._is_kept:
                    with suppress(StoreError):  # it was reported when it was tried first
                        self._commit()
                shard, self._shard = self._shard, None
                if self._is_kept:
                    self._close_shard(shard, "closing it")
                    return
                # In this order Edge finds no files that it could drop from the page cache, where readers need them.
                shutil.rmtree(self.work, ignore_errors=True)
                with suppress(StoreError), edge_shard.edge_errors(self.name, "closing it"):
                    shard.close()
                shutil.rmtree(self.work, ignore_errors=True)  # its log may have got a file meanwhile
        finally:
            self._lock.release()


def _detach_all_after_fork() -> None:
    """In a forked process: forget the collections that the first process has open; files and locks are its own."""
    for folder in _registry.folders.values():
        keep_from_flushing(folder._shard or folder._lent)
        folder._lock.release()
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
