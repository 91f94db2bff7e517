"""The streamed way: points with their vectors, read from one collection and written to another. No name is encoded."""

from __future__ import annotations

import numpy as np

from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.transfer.inventory import Inventory
from pearl_qdrant.transfer.records import OnProgress
from pearl_qdrant.transfer.sample import NameSample


def stream_names(
    source: Collection, target: Collection, *, sample: NameSample, on_progress: OnProgress
) -> tuple[int, int]:
    """Write the names that a collection lacks, with their vectors, delete what it should not have, build its graph.

    Several requests are in flight to a server, and it builds its graph once, at the end. What an earlier call brought
    is not sent again.

    Args:
        source: Open for reading.
        target: Hidden from others, and of the same model; empty, or filled in part by a call that ended early.
        sample: Takes some of the names, to be compared afterwards.
        on_progress: See `OnProgress`.

    Returns:
        Names read, and names sent.
    """
    total, done, sent = source.count(), 0, 0
    known = Inventory.of(target)
    on_progress(0, total)
    with target.writer() as writer:
        for rows in source.scroll_rows():
            if not rows.points:
                continue
            lacking = np.array([not known.has(point) for point in rows.points])
            if lacking.any():
                left = rows if lacking.all() else rows.where(lacking)
                writer.write(left.points, left.vectors, left.encodable, descriptions=left.descriptions)
                sent += len(left.points)
            sample.take(rows)
            done += len(rows.points)
            on_progress(done, max(done, total))
    target.delete_points(known.retired())
    target.finalize()
    return done, sent


def streamed_manifest(source: Collection, target: Manifest) -> Manifest:
    """Return the manifest of a collection whose names were streamed: that of the source, in the target's layout."""
    changed: dict[str, object] = {
        "collection": target.collection,
        "has_plain_payloads": target.has_plain_payloads,
        "checkpoints": (),
    }
    return source.manifest.model_copy(update=changed)
