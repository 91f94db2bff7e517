"""A collection that was built in parts to a cluster: each part as a shard of its own, under a key.

create     a shard for each partition, with its copies (`store.server.cluster.nodes`)
upload     to each the segments that only have names of its partition, as a snapshot with their graphs
stream     the names that are in other segments: those that were added or changed since
place      wait until the server has filled all copies, and move shards so that they lie over all nodes
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from pearl_qdrant.errors import OptionError, PearlQdrantError, StoreRejectedError
from pearl_qdrant.lexical import ngrams
from pearl_qdrant.store.open import is_url
from pearl_qdrant.store.partitions.rule import Partitions
from pearl_qdrant.store.protocol import Collection, Placement, Store
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.transfer.packing import CannotPackError, Packer
from pearl_qdrant.transfer.records import OnProgress
from pearl_qdrant.transfer.shards import FRAME_FILE, SNAPSHOT_FILE, check_versions, packer_between, pushed_manifest

if TYPE_CHECKING:
    from pearl_qdrant.store.edge.collection import EdgeCollection
    from pearl_qdrant.store.edge.parts.splitting import SplitShard
    from pearl_qdrant.store.server.collection import ServerCollection
    from pearl_qdrant.store.server.store import ServerStore


def keyed_placement(
    name: str, source: Store, target: Store, placement: Placement | None, *, by_key: bool | None
) -> tuple[Placement | None, str]:
    """Decide whether a collection gets shards with keys.

    Args:
        name: The collection.
        source: The store that has it.
        target: Where it goes.
        placement: Shards and replicas that were asked for.
        by_key: Whether keys are wanted; None: where the target is a cluster, and the collection was built in parts.

    Returns:
        The placement, and if there are no keys though they are wanted or it was built in parts, why: a part of a
        sentence.

    Raises:
        OptionError: If keys are wanted, and it is not known how many.
    """
    given = placement or Placement()
    if by_key is False or given.by_key or (by_key is None and given.shards is not None):
        return placement, ""
    partitions = partitions_of(name, source)
    if by_key is None and partitions is None:
        return placement, ""
    if not is_url(target.location):
        return placement, "the target is no cluster" if by_key else ""
    from pearl_qdrant.store.server.cluster.nodes import find_nodes

    if find_nodes(cast("ServerStore", target).connection) is None:
        return placement, "in one shard, as the server is no cluster"
    shards = given.shards or (partitions.count if partitions else None)
    if shards is None:
        raise OptionError("shards", f"Collection '{name}' was not built in parts: say how many shards get a key each.")
    return replace(given, shards=shards, by_key=True), ""


def packer_for(source: Store, target: Store, placement: Placement | None) -> tuple[Packer | None, str]:
    """Return the fast way between two stores, also to shards with keys, or None with the reason why there is none."""
    if placement is not None and placement.by_key and is_url(target.location) and not is_url(source.location):
        return KeyedShardPusher(placement), ""
    return packer_between(source, target, placement)


def partitions_of(name: str, source: Store) -> Partitions | None:
    """Return how a collection is cut; None if it was not built in parts, or by a rule that is not known."""
    for found in source.glance([name]):
        partitions = found.manifest.partitions if found.manifest else None
        return partitions if partitions and partitions.is_known else None
    return None


@dataclass(frozen=True, slots=True)
class KeyedShardPusher:
    """Uploads the parts of an embedded collection to a cluster, as shards with keys; a `Packer`.

    Attributes:
        placement: How the cluster distributes it.
    """

    placement: Placement

    def move(self, source: Collection, target: Store, version: str, *, on_progress: OnProgress) -> ServerCollection:
        """Make a hidden version on the server from the parts; see `Packer.move`."""
        from pearl_qdrant.store.edge.versions.snapshots import FrameError

        embedded, server = cast("EdgeCollection", source), cast("ServerStore", target)
        status = source.status()
        if self._partitions(source) is None:
            raise CannotPackError(f"it was not built in {self.placement.shards} parts")
        if not status.is_finalized:
            raise CannotPackError("its graph is not built")
        if not source.manifest.has_lexical:
            raise CannotPackError("it has no sparse vectors, which a server's collections have")
        on_progress(0, status.points)
        manifest = self.manifest(source).model_copy(update={"state": "loading"})
        made = server.versions.create(
            manifest, version=version, made_by="push", placement=self.placement, comes_as_snapshot=True
        )
        try:
            self._fill(embedded, made, status.points, on_progress)
        except (FrameError, StoreRejectedError) as error:
            made.close()
            with suppress(PearlQdrantError):
                server.versions.delete(source.name, version)
            raise CannotPackError(str(error)) from error
        return made

    def manifest(self, source: Collection) -> Manifest:
        """Return the manifest of the collection on the server."""
        return pushed_manifest(source)

    def _partitions(self, source: Collection) -> Partitions | None:
        """Return how the collection is cut if that is how the shards are; any collection has one part at least."""
        if self.placement.shards == 1:
            return Partitions(count=1)
        partitions = source.manifest.partitions
        is_it = partitions is not None and partitions.is_known and partitions.count == self.placement.shards
        return partitions if is_it else None

    def _fill(self, source: EdgeCollection, made: ServerCollection, total: int, on_progress: OnProgress) -> None:
        """Bring all names to the shards, and the shards to their places.

        Raises:
            FrameError, StoreRejectedError: If the server is not one for it; the message says why.
        """
        from pearl_qdrant.store.server.cluster.nodes import find_nodes, move_to_places, wait_until_copied

        made.hold_indexing_back()
        split = self._upload(source, made, total, on_progress)
        _stream_others(source, made, split, total, on_progress)
        made.finalize()
        connection, physical, waits = made.connection, made.physical, made.indexing
        wait_until_copied(connection, physical, poll_s=waits.poll_s, stall_s=waits.stall_s)
        nodes = find_nodes(connection)
        if nodes is not None and made.keys is not None:
            info = connection.call(lambda: connection.client.get_collection(physical), collection=physical)
            replicas = info.config.params.replication_factor or 1
            move_to_places(
                connection,
                physical,
                made.keys,
                nodes,
                replicas=replicas,
                poll_s=waits.poll_s,
                stall_s=waits.stall_s,
            )

    def _upload(
        self, source: EdgeCollection, made: ServerCollection, total: int, on_progress: OnProgress
    ) -> SplitShard:
        """Upload the segments of each partition."""
        from pearl_qdrant.store.edge.parts.splitting import split_shard
        from pearl_qdrant.store.edge.shard import file_errors
        from pearl_qdrant.store.server.cluster.nodes import find_shards

        assert made.keys is not None
        with source.flushed_shard() as shard, file_errors(source.name, "packing it"):
            work = Path(tempfile.mkdtemp(prefix=".push-", dir=shard.parent))
            try:
                split = split_shard(shard, made.keys.partitions, work, source.name)
                if split.others and source.manifest.lexical_version != ngrams.VERSION:
                    raise CannotPackError("it was changed since it was built, and has n-grams of an older version")
                shards, done = find_shards(made.connection, made.physical), 0
                for partition, segments in sorted(split.segments.items()):
                    key = made.keys.all[partition]
                    self._upload_one(source, made, shard, segments, work, shards[key].id, key, split.first[partition])
                    done += split.points[partition]
                    on_progress(done, total)
            finally:
                shutil.rmtree(work, ignore_errors=True)
        return split

    def _upload_one(
        self,
        source: EdgeCollection,
        made: ServerCollection,
        shard: Path,
        segments: list[str],
        work: Path,
        shard_id: int,
        key: str,
        point: str,
    ) -> None:
        """Replace the content of an empty shard of the server by some segments; `point` is one in them."""
        from pearl_qdrant.store.edge.shard import check_space
        from pearl_qdrant.store.edge.versions.snapshots import segment_versions, write_snapshot
        from pearl_qdrant.store.server.versions.snapshots import download_shard, takes_changes, upload_shard

        connection, physical = made.connection, made.physical
        frame, snapshot = work / FRAME_FILE, work / SNAPSHOT_FILE
        download_shard(connection, physical, shard_id, frame)
        check_versions(frame, segment_versions(shard))
        files = [file for segment in segments for file in (shard / "segments" / segment).rglob("*")]
        check_space(work, source.name, sum(file.stat().st_size for file in files) + (1 << 20), doing="packing it")
        write_snapshot(frame, shard, snapshot, only=segments)
        upload_shard(connection, physical, shard_id, snapshot)
        frame.unlink()
        snapshot.unlink()
        if not takes_changes(connection, physical, point, key):
            raise StoreRejectedError(f"the server took shard {key}, but not a change of it afterwards")


def _stream_others(
    source: Collection, made: ServerCollection, split: SplitShard, total: int, on_progress: OnProgress
) -> None:
    """Write the names that are in none of the segments that were uploaded."""
    if not split.others:
        return
    done = sum(split.points.values())
    with made.writer() as writer:
        for rows in source.scroll_rows():
            wanted = [i for i, point in enumerate(rows.points) if point.id in split.others]
            if wanted:
                writer.write(
                    [rows.points[i] for i in wanted],
                    rows.vectors[wanted],
                    np.asarray(rows.encodable)[wanted],
                    descriptions=None if rows.descriptions is None else rows.descriptions[wanted],
                )
                done += len(wanted)
                on_progress(done, max(done, total))
