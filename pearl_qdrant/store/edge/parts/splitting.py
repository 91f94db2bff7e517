"""Which segments of a shard belong to which partition, for a collection that was joined of parts (`joining.py`).

A segment of a part has points of one partition alone. Points that were added or changed since are in segments of their
own, together with those of other partitions, and so are points of segments that were merged. All points are looked at,
as only they say it: some 10 us each.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qdrant_edge import EdgeShard, ScrollRequest

from pearl_qdrant.errors import ManifestError
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.views.placing import make_log, place, shard_files
from pearl_qdrant.store.partitions.rule import Partitions

_SEGMENTS = "segments"
_CONFIG = "edge_config.json"
_ENTITY = "entity_id"
_PAGE_POINTS = 10_000


@dataclass(slots=True)
class SplitShard:
    """The segments of a shard by partition.

    Attributes:
        segments: For each partition that has some, the names of the segments that only have points of it.
        points: For each of these partitions the number of points in them.
        first: For each of these partitions the id of a point in them.
        others: Ids of the points in segments with points of several partitions.
    """

    segments: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    points: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    first: dict[int, str] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)


def split_shard(shard: Path, partitions: Partitions, work: Path, collection: str) -> SplitShard:
    """Find the partition of each segment.

    Args:
        shard: Folder of the shard; all of it is on the disk, and nobody changes it meanwhile.
        partitions: How the collection is cut.
        work: An empty folder beside it; it is empty again afterwards.
        collection: Name of the collection, for errors.

    Raises:
        ManifestError: If a point has no entity.
        StoreError: If a segment cannot be read.
        OSError: If a file cannot be linked or copied.
    """
    by_segment: dict[str, list[str]] = defaultdict(list)
    for name in shard_files(shard):
        folder, _, rest = name.partition("/")
        if folder == _SEGMENTS and "/" in rest:
            by_segment[rest.partition("/")[0]].append(name)
    split = SplitShard()
    for segment, names in sorted(by_segment.items()):
        alone = work / segment
        try:
            place(shard, [*names, _CONFIG], alone)
            make_log(alone)
            points = dict(_points(alone, collection))
        finally:
            shutil.rmtree(alone, ignore_errors=True)
        found = {partitions.partition_of(entity_id) for entity_id in points.values()}
        if len(found) > 1:
            split.others.update(points)
        for partition in found if len(found) == 1 else ():
            split.segments[partition].append(segment)
            split.points[partition] += len(points)
            split.first.setdefault(partition, next(iter(points)))
    return split


def _points(shard: Path, collection: str) -> Iterator[tuple[str, str]]:
    """The id and the entity of each point of a shard."""
    with edge_shard.edge_errors(collection, "packing it"):
        opened = EdgeShard.load(str(shard))
    try:
        offset = None
        while True:
            request = ScrollRequest(offset=offset, limit=_PAGE_POINTS, with_payload=[_ENTITY], with_vector=False)
            with edge_shard.edge_errors(collection, "packing it"):
                records, offset = opened.scroll(request)
            for record in records:
                yield str(record.id), _entity(record.payload, collection)
            if offset is None:
                return
    finally:
        opened.close()


def _entity(payload: dict[str, Any] | None, collection: str) -> str:
    entity_id = (payload or {}).get(_ENTITY)
    if not isinstance(entity_id, str):
        raise ManifestError(collection, "a point has no entity in its payload")
    return entity_id
