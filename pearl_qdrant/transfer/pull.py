"""`pull_collection`: a collection from a server, or from any other store."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pearl_qdrant.errors import StoreRejectedError
from pearl_qdrant.store.open import StoreLike, is_url, use_store
from pearl_qdrant.store.protocol import Collection, Store
from pearl_qdrant.store.versions import VersionMark
from pearl_qdrant.transfer.moving import (
    MakeShard,
    NoSnapshotError,
    OnProgress,
    Transfer,
    TransferResult,
    Way,
    no_progress,
)

if TYPE_CHECKING:
    from pearl_qdrant.store.edge.store import EdgeStore
    from pearl_qdrant.store.server.collection import ServerCollection

_WORK_PREFIX = ".pull-"
_STALE_S = 86_400.0
"""An older folder was left by a pull that died; a download of a day would be one of terabytes."""


def pull_collection(
    name: str,
    *,
    source: StoreLike,
    store: StoreLike = None,
    replace: bool = False,
    way: Way = "auto",
    wait_s: float | None = None,
    on_progress: OnProgress = no_progress,
) -> TransferResult:
    """Copy a collection from a server. No name is encoded again.

    A collection of one shard travels as the snapshot that the server makes of it, with its graph, which the embedded
    engine opens; otherwise names travel with their vectors. It is built hidden, checked, and then visible at once. If
    the call is killed while names travel, the same call goes on.

    Args:
        name: The collection.
        source: URL of the server, or another store. Its key is read from the environment.
        store: Where to; None: from PEARL_QDRANT_STORE, else QDRANT_URL, else the user's data folder.
        replace: Whether to replace a collection of that name. The one before it stays hidden, until it is pruned.
        way: "auto", "snapshot" or "stream"; see `TransferResult.way`.
        wait_s: How long to wait for a server that does not answer, in seconds; None as in `open_store`.
        on_progress: Called from time to time with (names moved, all names).

    Raises:
        CollectionNotFoundError: If the server has no such collection.
        CollectionExistsError: If the store has one of that name, and `replace` is not set.
        IncompleteError: If its load or an update did not finish.
        OptionError: If it must be a snapshot, and cannot be one.
        StoreError: If a store fails, or what arrived is not what was sent. Then nothing changed in the store.
    """
    with use_store(source, wait_s=wait_s) as server, use_store(store, wait_s=wait_s) as target:
        make_shard = None if way == "stream" else _shard_maker(server, target)
        return Transfer(
            name, server, target, "pull", replace, None, on_progress, make_shard, must_be_shard=way == "snapshot"
        ).run()


def _shard_maker(source: Store, target: Store) -> MakeShard | None:
    """Return the way with the finished shard, if there is one between these kinds of store."""
    if not is_url(source.location) or is_url(target.location):
        return None
    embedded = cast("EdgeStore", target)
    return lambda collection, version: _make_shard(cast("ServerCollection", collection), embedded, version)


def _make_shard(source: ServerCollection, target: EdgeStore, version: str) -> Collection:
    """Make a hidden version of an embedded store from the shard of a server; see `MakeShard`."""
    from pearl_qdrant.store.edge.shard import edge_errors

    status = source.status()
    if not status.is_finalized:
        raise NoSnapshotError("its graph is not built")
    with edge_errors(source.name, "creating it"):
        Path(target.location).mkdir(parents=True, exist_ok=True)
        _remove_stale(Path(target.location))
        work = Path(tempfile.mkdtemp(prefix=_WORK_PREFIX, dir=target.location))
    try:
        with edge_errors(source.name, "creating it"):
            folder = _download(source, work, status.vectors, VersionMark(version, source.name, "pull"))
            return target.versions.adopt(folder, source.name, version)
    except StoreRejectedError as error:
        raise NoSnapshotError(str(error)) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _download(source: ServerCollection, work: Path, n_vectors: int, mark: VersionMark) -> Path:
    """Make a collection's folder from the server's shard, and return it.

    Raises:
        StoreRejectedError: If the server's shard is not one for it; the message says why.
    """
    from pearl_qdrant.store.edge.content import IndexState
    from pearl_qdrant.store.edge.snapshots import make_from_snapshot
    from pearl_qdrant.store.server.snapshots import download_shard, only_shard

    connection, physical, snapshot = source.connection, source.physical, work / "shard.snapshot"
    download_shard(connection, physical, only_shard(connection, physical), snapshot)
    folder = work / "collection"
    folder.mkdir()
    changed = {"has_plain_payloads": True, "checkpoints": (), "state": "loading"}
    manifest = source.manifest.model_copy(update=changed)
    make_from_snapshot(folder, snapshot, manifest, IndexState(n_vectors), mark)
    return folder


def _remove_stale(store: Path) -> None:
    """Remove folders that pulls left when they died."""
    for path in store.glob(f"{_WORK_PREFIX}*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE_S:
                shutil.rmtree(path, ignore_errors=True)
