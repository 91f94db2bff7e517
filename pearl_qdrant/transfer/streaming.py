"""The streamed way: points with their vectors, read from one collection and written to another. No name is encoded."""

from __future__ import annotations

from collections.abc import Iterator

from pearl_qdrant.lexical.idf import IdfTable
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.store.versions.rows import NameRows
from pearl_qdrant.transfer.records import OnProgress
from pearl_qdrant.transfer.sample import NameSample


def stream_names(source: Collection, target: Collection, *, sample: NameSample, on_progress: OnProgress) -> int:
    """Write all names of a collection to an empty one, with their vectors, and build its graph.

    Args:
        source: Open for reading.
        target: Empty, and hidden from others.
        sample: Takes some of the names, to be compared afterwards.
        on_progress: See `OnProgress`.

    Returns:
        Names read.
    """
    total, done = source.count(), 0
    on_progress(0, total)
    with target.writer() as writer:
        for rows in source.scroll_rows():
            if not rows.points:
                continue
            writer.write(rows.points, rows.vectors, rows.encodable, descriptions=rows.descriptions)
            sample.take(rows)
            done += len(rows.points)
            on_progress(done, max(done, total))
    target.finalize()
    return done


def streamed_manifest(source: Collection, target: Manifest) -> Manifest:
    """Return the manifest of a collection whose names were streamed: that of the source, in the target's layout.

    Sparse vectors are made again of the names. If the source has an older version of them, the table of rarities is
    counted again, too.
    """
    before = source.manifest
    changed: dict[str, object] = {
        "collection": target.collection,
        "lexical_version": target.lexical_version,
        "has_plain_payloads": target.has_plain_payloads,
        "checkpoints": (),
    }
    if before.lexical_version != target.lexical_version:
        changed["ngram_rarity"] = IdfTable.from_names(_names(source.scroll_rows())).to_text()
    return before.model_copy(update=changed)


def _names(pages: Iterator[NameRows]) -> Iterator[str]:
    return (point.name for rows in pages for point in rows.points)
