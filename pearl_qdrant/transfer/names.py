"""Names of one collection brought to another: what lacks is found by point ids and digests, and a sample is checked.

Both collections are walked in the order of their ids. What the target lacks or has in another state is written, and
what the source has no longer is deleted. So a call that was killed is simply repeated, and a later pass finds only what
changed since. It takes 24 bytes of memory a name.
"""

from __future__ import annotations

import uuid
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from hashlib import blake2b

import msgspec
import numpy as np

from pearl_qdrant.encoder.protocol import Encoded, Encoder, FloatArray
from pearl_qdrant.errors import StoreError
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NO_TYPE, NamePoint, NameRows, is_same_point, predicted_types

WINDOW = 4096  # names encoded together: little padding when sorted by length, 0.3 to 1.5 s between two reports
BULK_NAMES = 2000  # more missing names than these are loaded, fewer are written like an edit
FLUSH_EVERY = 65_536  # names between two flushes: what a killed pass loses at most, with the window being encoded
SAMPLE = 100  # names that are compared: enough to find a wrong layout, model or index; 0.1 s
_ID_BYTES = 16
_DIGITS = 12  # of a popularity: a store may change the last ones (`store.schema.is_same_point`)
_SCORE_TOLERANCE = 1e-3  # of a cosine; vectors lose some digits as JSON, and graphs are built anew
_AGREEING = 0.95  # share of searches that must agree: in two graphs, a few of the nearest names differ

OnProgress = Callable[[int, int], None]  # called with (names moved, all names)


def no_progress(done: int, total: int) -> None:
    """Report nothing."""


class Inventory:
    """The points of a collection in the order of their ids, with digests of what does not depend on the model."""

    def __init__(self) -> None:
        self._ids, self._digests = bytearray(), array("Q")
        self._at, self._retired = 0, set[bytes]()

    def __len__(self) -> int:
        return len(self._digests)

    @classmethod
    def of(cls, collection: Collection) -> Inventory:
        inventory = cls()
        for point in collection.scroll():
            inventory.add(point)
        return inventory

    def add(self, point: NamePoint) -> None:
        self._ids += uuid.UUID(point.id).bytes
        self._digests.append(digest_of(point))

    def has(self, point: NamePoint) -> bool:
        """Whether a point of another collection is here in the same state. They are asked in the order of their ids."""
        wanted = uuid.UUID(point.id).bytes
        while self._at < len(self) and self._id(self._at) < wanted:
            self._retired.add(self._id(self._at))
            self._at += 1
        is_there = self._at < len(self) and self._id(self._at) == wanted
        self._at += is_there
        return is_there and self._digests[self._at - 1] == digest_of(point)

    def retired(self) -> set[str]:
        """The ids here that the other collection has not, once it was asked for all of its points."""
        rest = {self._id(i) for i in range(self._at, len(self))}
        return {str(uuid.UUID(bytes=one)) for one in self._retired | rest}

    def _id(self, i: int) -> bytes:
        return bytes(self._ids[i * _ID_BYTES : (i + 1) * _ID_BYTES])


def digest_of(point: NamePoint) -> int:
    """Digest of what does not depend on the model: all but the predicted types."""
    popularity = None if point.popularity is None else float(f"{point.popularity:.{_DIGITS}g}")
    plain = msgspec.structs.replace(point, **NO_TYPE._asdict(), popularity=popularity)
    return int.from_bytes(blake2b(_encode(plain), digest_size=8).digest(), "big")


_encode = msgspec.msgpack.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class Pass:
    """What `catch_up` did: names of the source, names written and deleted, and what the target has if it encoded."""

    names: int
    written: int
    deleted: int
    inventory: Inventory


def catch_up(
    source: Collection,
    target: Collection,
    encoder: Callable[[], Encoder] | None = None,
    *,
    known: Inventory | None = None,
    on_progress: OnProgress,
) -> Pass:
    """Write the names that a hidden version lacks, and delete what it should not have.

    `encoder` returns its encoder, and is called only if there is something to encode; None: names come with the vectors
    of the source. `known` is what the target has, from the pass before; None: it is read.
    """
    known, has = Inventory.of(target) if known is None else known, Inventory()
    total, done, written, since = source.count(), 0, 0, 0
    on_progress(0, total)
    found = _stored(source, known) if encoder is None else _encoded(source, known, has, encoder)
    with target.writer() if encoder is None or total - len(known) > BULK_NAMES else nullcontext() as writer:
        for n_read, rows in found:
            if rows is not None:
                (target.upsert if writer is None else writer.write)(rows.points, rows.vectors, rows.encodable)
                written += len(rows.points)
                since += len(rows.points)
            if writer is not None and since >= FLUSH_EVERY:
                writer.flush()
                since = 0
            done += n_read
            on_progress(done, max(done, total))
    retired = known.retired()
    target.delete_points(retired)
    return Pass(done, written, len(retired), has)


def _stored(source: Collection, known: Inventory) -> Iterator[tuple[int, NameRows | None]]:
    """Pages of what an inventory lacks, with the vectors of the source, each with the number of points read for it."""
    for rows in source.scroll_rows():
        lacking = np.array([not known.has(point) for point in rows.points], dtype=np.bool_)
        yield len(rows.points), rows.where(lacking) if lacking.any() else None


def _encoded(
    source: Collection, known: Inventory, has: Inventory, encoder: Callable[[], Encoder]
) -> Iterator[tuple[int, NameRows | None]]:
    """The same in windows, encoded; `has` gets all that was read."""
    n_read, window = 0, list[NamePoint]()

    def encoded() -> tuple[int, NameRows | None]:
        if not window:
            return n_read, None
        distinct = list(dict.fromkeys(point.name for point in window))
        at = {name: row for row, name in enumerate(distinct)}
        found = encoder().encode(distinct).take([at[point.name] for point in window])
        return n_read, NameRows(retyped(window, found), found.vectors, np.asarray(found.encodable))

    for point in source.scroll():
        n_read += 1
        has.add(point)
        if not known.has(point):
            window.append(point)
        if len(window) == WINDOW or n_read == 16 * WINDOW:
            yield encoded()
            n_read, window = 0, []
    yield encoded()


def retyped(points: Sequence[NamePoint], encoded: Encoded) -> list[NamePoint]:
    """Return n points with the types that another model predicts: none without probabilities or a vector."""
    kinds = predicted_types(encoded)
    return [msgspec.structs.replace(point, **kind._asdict()) for point, kind in zip(points, kinds, strict=True)]


def first_rows(collection: Collection, n: int) -> NameRows:
    """The first names with their vectors, `n` at most: their order is that of ids, which are hashes, so they are a
    random sample.
    """
    pages, n_read = list[NameRows](), 0
    for rows in collection.scroll_rows():
        pages.append(rows)
        n_read += len(rows.points)
        if n_read >= n:
            break
    points = [point for rows in pages for point in rows.points]
    vectors, encodable = (np.concatenate([getattr(rows, name) for rows in pages]) for name in ("vectors", "encodable"))
    return NameRows(points[:n], vectors[:n], encodable[:n])


def compare_sample(source: Collection, target: Collection) -> int:
    """Compare some points and answers; their number. StoreError if a point differs, or more than a few answers."""
    sample = first_rows(source, SAMPLE)
    stored = target.get([point.id for point in sample.points])
    for point in sample.points:
        found = stored.get(point.id)
        if found is None or not is_same_point(found, point):
            there = "is missing" if found is None else "differs"
            raise _not_moved(source, f"the name '{point.name}' of entity {point.entity_id} {there} in the target")
    vectors: FloatArray = sample.vectors[sample.encodable]
    if len(vectors):
        ours, theirs = source.search(vectors, limit=1), target.search(vectors, limit=1)
        agreeing = sum(
            bool(a) and bool(b) and abs((a[0].score or 0) - (b[0].score or 0)) < _SCORE_TOLERANCE
            for a, b in zip(ours, theirs, strict=True)
        )
        if agreeing < _AGREEING * len(vectors):
            searches = f"{agreeing} of {len(vectors)} sample searches"
            raise _not_moved(source, f"only {searches} have the same answer in the target")
    return len(sample.points)


def _not_moved(source: Collection, why: str) -> StoreError:
    return StoreError(
        f"Collection '{source.name}' was not moved: {why}. Nothing was changed there. Run the same command again; if "
        f"that does not help, please report it."
    )
