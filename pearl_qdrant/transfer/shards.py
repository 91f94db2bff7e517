"""Finished shards between an embedded store and a server; see `store.edge.versions.snapshots`."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pearl_qdrant.errors import PearlQdrantError, StoreRejectedError
from pearl_qdrant.store.atomic import write_atomically
from pearl_qdrant.store.open import is_url
from pearl_qdrant.store.protocol import Collection, Placement, Store
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.transfer.packing import CannotPackError, Packer
from pearl_qdrant.transfer.records import OnProgress

if TYPE_CHECKING:
    from pearl_qdrant.store.edge.collection import EdgeCollection
    from pearl_qdrant.store.edge.store import EdgeStore
    from pearl_qdrant.store.server.collection import ServerCollection
    from pearl_qdrant.store.server.store import ServerStore

FRAME_FILE = "frame.snapshot"
SNAPSHOT_FILE = "shard.snapshot"
"""Files of a transfer, in a folder of its own."""

_WORK_PREFIX = ".pull-"
_STALE_S = 86_400.0
"""An older folder was left by a pull that died; a download of a day would be one of terabytes."""


def packer_between(source: Store, target: Store, placement: Placement | None) -> tuple[Packer | None, str]:
    """Return the fast way between two stores, or None with the reason why there is none."""
    if placement not in (None, Placement()):
        return None, "shards or replicas were asked for"
    ways: dict[tuple[bool, bool], Packer] = {(False, True): ShardPusher(), (True, False): ShardPuller()}
    packer = ways.get((is_url(source.location), is_url(target.location)))
    if packer is None:
        return None, "it moves between stores of one kind"
    return packer, ""


def _remove_stale(store: Path) -> None:
    """Remove folders that pulls left when they died."""
    for path in store.glob(f"{_WORK_PREFIX}*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE_S:
                shutil.rmtree(path, ignore_errors=True)


def pushed_manifest(source: Collection) -> Manifest:
    """Return the manifest that an embedded collection has on a server."""
    return source.manifest.model_copy(update={"has_plain_payloads": False, "checkpoints": ()})


def check_versions(frame: Path, ours: set[str]) -> None:
    """Compare the versions of segments with those in a server's snapshot.

    Raises:
        FrameError: If it is no shard snapshot.
        StoreRejectedError: If they differ; the message is a part of a sentence.
    """
    from pearl_qdrant.store.edge.versions.snapshots import snapshot_versions

    theirs = snapshot_versions(frame)
    if theirs != ours:
        raise StoreRejectedError(
            f"the server writes segments of version {', '.join(sorted(theirs))}, and these have "
            f"{', '.join(sorted(ours))}"
        )


class ShardPusher:
    """Uploads the shard of an embedded collection to a server."""

    def move(self, source: Collection, target: Store, version: str, *, on_progress: OnProgress) -> ServerCollection:
        """Make a hidden version on the server from the shard; see `Packer.move`."""
        from pearl_qdrant.store.edge.versions.snapshots import FrameError

        embedded, server = cast("EdgeCollection", source), cast("ServerStore", target)
        status = source.status()
        if not status.is_finalized:
            raise CannotPackError("its graph is not built")
        if not source.manifest.has_lexical:
            raise CannotPackError("it has no sparse vectors, which a server's collections have")
        if not status.points:
            raise CannotPackError("it is empty")
        on_progress(0, status.points)
        placement = Placement(shards=1)
        manifest = self.manifest(source).model_copy(update={"state": "loading"})
        made = server.versions.create(manifest, version=version, made_by="push", placement=placement)
        try:
            self._upload(embedded, made)
        except (FrameError, StoreRejectedError) as error:
            made.close()
            with suppress(PearlQdrantError):
                server.versions.delete(source.name, version)
            raise CannotPackError(str(error)) from error
        made.finalize()
        on_progress(status.points, status.points)
        return made

    def _upload(self, source: EdgeCollection, made: ServerCollection) -> None:
        """Replace the content of an empty collection by the shard.

        Raises:
            FrameError, StoreRejectedError: If the server is not one for it; the message says why.
        """
        from pearl_qdrant.store.edge.shard import check_space, file_errors
        from pearl_qdrant.store.edge.versions.snapshots import segment_versions, write_snapshot
        from pearl_qdrant.store.server.versions.snapshots import download_shard, only_shard, takes_changes, upload_shard

        connection, physical = made.connection, made.physical
        shard_id = only_shard(connection, physical)
        with source.flushed_shard() as shard, file_errors(source.name, "packing it"):
            work = Path(tempfile.mkdtemp(prefix=".push-", dir=shard.parent))
            try:
                frame, snapshot = work / FRAME_FILE, work / SNAPSHOT_FILE
                download_shard(connection, physical, shard_id, frame)
                check_versions(frame, segment_versions(shard))
                size = sum(file.stat().st_size for file in (shard / "segments").rglob("*"))
                check_space(work, source.name, size + (1 << 20), doing="packing it")
                made.hold_indexing_back()
                write_snapshot(frame, shard, snapshot)
                upload_shard(connection, physical, shard_id, snapshot)
            finally:
                shutil.rmtree(work, ignore_errors=True)
        first = next(iter(source.scroll()))
        if not takes_changes(connection, physical, first.id):
            raise StoreRejectedError("the server took the shard, but not a change of it afterwards")

    def manifest(self, source: Collection) -> Manifest:
        """Return the manifest of the collection on the server."""
        return pushed_manifest(source)


class ShardPuller:
    """Downloads the shard of a collection on a server into an embedded store."""

    def move(self, source: Collection, target: Store, version: str, *, on_progress: OnProgress) -> EdgeCollection:
        """Make a hidden version in the embedded store from the server's shard; see `Packer.move`."""
        from pearl_qdrant.store.edge.shard import file_errors
        from pearl_qdrant.store.edge.versions.snapshots import FrameError

        server, embedded = cast("ServerCollection", source), cast("EdgeStore", target)
        status = source.status()
        if not server.is_remote:
            raise CannotPackError("qdrant-client's local mode has no snapshots")
        if not status.is_finalized:
            raise CannotPackError("its graph is not built")
        on_progress(0, status.points)
        Path(embedded.location).mkdir(parents=True, exist_ok=True)
        with file_errors(source.name, "creating it"):
            _remove_stale(Path(embedded.location))
            work = Path(tempfile.mkdtemp(prefix=_WORK_PREFIX, dir=embedded.location))
        try:
            with file_errors(source.name, "creating it"):
                folder = self._download(server, work, status.vectors)
                made = embedded.versions.adopt(folder, source.name, version, "pull")
        except (FrameError, StoreRejectedError) as error:
            raise CannotPackError(str(error)) from error
        finally:
            shutil.rmtree(work, ignore_errors=True)
        on_progress(status.points, status.points)
        return made

    def _download(self, source: ServerCollection, work: Path, n_vectors: int) -> Path:
        """Make a collection's folder from the server's shard, and return it.

        Raises:
            FrameError, StoreRejectedError: If the server's shard is not one for it; the message says why.
        """
        import json

        from pearl_qdrant.store import graph
        from pearl_qdrant.store.edge.versions.snapshots import engine_version, snapshot_versions, unpack_snapshot
        from pearl_qdrant.store.edge.views.content import INDEX_FILE, MANIFEST_FILE, SHARD_FOLDER, IndexState
        from pearl_qdrant.store.server.versions.snapshots import download_shard, only_shard

        connection, physical, snapshot = source.connection, source.physical, work / SNAPSHOT_FILE
        download_shard(connection, physical, only_shard(connection, physical), snapshot)
        theirs, ours = snapshot_versions(snapshot), engine_version()
        if theirs != {ours}:
            raise StoreRejectedError(
                f"the server has segments of version {', '.join(sorted(theirs))}, and the engine here writes {ours}"
            )
        folder = work / "collection"
        folder.mkdir()
        unpack_snapshot(snapshot, folder / SHARD_FOLDER)
        snapshot.unlink()
        state = IndexState(n_vectors, m=graph.M, ef_construct=graph.EF_CONSTRUCT)
        write_atomically(folder / INDEX_FILE, json.dumps(asdict(state)) + "\n")
        manifest = self.manifest(source).model_copy(update={"state": "loading"})
        write_atomically(folder / MANIFEST_FILE, manifest.model_dump_json(indent=2) + "\n")
        return folder

    def manifest(self, source: Collection) -> Manifest:
        """Return the manifest of the embedded collection."""
        return source.manifest.model_copy(update={"has_plain_payloads": True, "checkpoints": ()})
