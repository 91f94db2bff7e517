"""What a writer (`folder.py`) and a reader (`view.py`) of an embedded collection have in common: an open shard."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qdrant_edge import EdgeShard

from pearl_qdrant.errors import StoreClosedError, StoreError
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.content import Content, IndexState
from pearl_qdrant.store.edge.ledger import read_lines
from pearl_qdrant.store.ownership import ProcessGuard
from pearl_qdrant.store.schema import Manifest


class OpenedCollection:
    """A collection that this process has open. Thread-safe: one lock protects all use of the shard.

    `path` is the folder with the ledger, `manifest` as it was committed, or last written here.
    """

    def __init__(self, path: Path, name: str, manifest: Manifest, content: Content) -> None:
        self.path, self.name, self.manifest = path, name, manifest
        self.guard = ProcessGuard(f"Collection '{name}'")
        self._content = content
        self._index = content.index
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

    def index_state(self) -> IndexState | None:
        """The state of the graph; None if none was built."""
        return self._index

    def read_ledger(self) -> Iterator[bytes]:
        """Yield the lines of the ledger of learned names; raises StoreError if it cannot be read."""
        with edge_shard.edge_errors(self.name, "reading what it learned"):
            yield from read_lines(self.path)


def keep_from_flushing(shard: EdgeShard | None) -> None:
    """In a forked process: never free a shard. Edge flushes one that Python frees, into the first process's files."""
    if shard is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(shard))
