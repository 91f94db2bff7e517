"""Names of one version brought to another one, encoded with another model; also while writers change the first.

A pass compares both versions by point id and by what does not depend on the model. It encodes what the second one lacks
or has in another state, and deletes what the first one has no longer. So a pass that was killed is simply repeated, and
a later pass finds only what changed since (`inventory.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np

from pearl_qdrant.encoder.protocol import Encoded, Encoder
from pearl_qdrant.store.points import predicted_types
from pearl_qdrant.store.protocol import Collection, Writer
from pearl_qdrant.store.schema import NamePoint
from pearl_qdrant.transfer.inventory import Inventory
from pearl_qdrant.transfer.moving import OnProgress

WINDOW = 4096
"""Names encoded together: enough to sort by length with little padding, and 0.3 to 1.5 s between two reports."""

BULK_NAMES = 2000
"""More missing names than these are loaded, fewer are written like an edit."""

FLUSH_EVERY = 65_536
"""Names between two flushes: what a killed pass loses at most, with the window that was being encoded."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What a pass did.

    Attributes:
        names: Names of the source.
        encoded: Names that were encoded and written.
        deleted: Names that were deleted from the target.
        inventory: What the target has afterwards.
    """

    names: int
    encoded: int
    deleted: int
    inventory: Inventory

    @property
    def changes(self) -> int:
        """Names that were written or deleted."""
        return self.encoded + self.deleted


def catch_up(
    source: Collection,
    target: Collection,
    encoder: Callable[[], Encoder],
    *,
    known: Inventory | None = None,
    on_progress: OnProgress,
) -> Pass:
    """Do one pass.

    Args:
        source: Open for reading.
        target: A hidden version, open for writing.
        encoder: Returns the encoder of the target; called only if there is something to encode.
        known: What the target has, from the pass before; None: it is read.
        on_progress: See `OnProgress`.

    Raises:
        StoreError: If one of the two fails.
        ModelError: If the encoder cannot be loaded.
    """
    known, has = Inventory.of(target) if known is None else known, Inventory()
    total = source.count()
    is_bulk = total - len(known) > BULK_NAMES
    done, encoded, since = 0, 0, 0
    with target.writer() if is_bulk else nullcontext() as writer:
        for n_read, window in _windows(known.lacks(point, has) for point in source.scroll()):
            if window:
                _write(window, target, encoder(), writer)
                encoded += len(window)
                since += len(window)
            if writer is not None and since >= FLUSH_EVERY:
                writer.flush()
                since = 0
            done += n_read
            on_progress(done, max(done, total))
    retired = known.retired()
    target.delete_points(retired)
    return Pass(done, encoded, len(retired), has)


def _windows(points: Iterator[NamePoint | None]) -> Iterator[tuple[int, list[NamePoint]]]:
    """Windows of points to write, each with the number of points read for it."""
    n_read, window = 0, []
    for point in points:
        n_read += 1
        if point is not None:
            window.append(point)
        if len(window) == WINDOW or n_read == 16 * WINDOW:
            yield n_read, window
            n_read, window = 0, []
    yield n_read, window


def _write(points: Sequence[NamePoint], target: Collection, encoder: Encoder, writer: Writer | None) -> None:
    distinct = list(dict.fromkeys(point.name for point in points))
    rows = {name: row for row, name in enumerate(distinct)}
    encoded = encoder.encode(distinct).take([rows[point.name] for point in points])
    write = target.upsert if writer is None else writer.write
    write(retyped(points, encoded), encoded.vectors, np.asarray(encoded.encodable))


def retyped(points: Sequence[NamePoint], encoded: Encoded) -> list[NamePoint]:
    """Return points with the types that another model predicts.

    Args:
        points: n points.
        encoded: n rows; without type probabilities, and for a name without a vector, no type is predicted.
    """
    kinds = predicted_types(encoded)
    return [replace(point, **kind._asdict()) for point, kind in zip(points, kinds, strict=True)]
