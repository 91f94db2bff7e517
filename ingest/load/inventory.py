"""What a collection has of a base: looked up by point ids, 8 bytes of memory a name.

Names that it lacks wait in an unnamed temporary file. Where only other fields changed (types, description, canonical
name), the payload is replaced and the vector stays. Two of n points share their 8 bytes with probability n^2 / 2^61
(0.000004 % for ten million); then one retired name stays.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import BinaryIO, cast

import msgspec
import numpy as np

from pearl_qdrant.errors import InputError
from pearl_qdrant.linking.learned.aliases import alias_point_ids
from pearl_qdrant.records import Entity
from pearl_qdrant.store.points import is_same_point, plain_points
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint

BATCH = 1000
"""Points looked up, replaced or deleted at a time."""


class Named(msgspec.Struct, array_like=True):
    """An entity, and those of its names that are to be written."""

    entity: Entity
    names: list[str]


class Inventory:
    """A base compared with a collection. Used as a context manager, which ends the temporary file.

    Attributes:
        entities: Entities that are stored as they are.
        added, changed, unchanged: Names that are lacking, had another payload, or are stored.
        to_write: Names in the temporary file.
    """

    def __init__(self, collection: Collection) -> None:
        self.entities = self.added = self.changed = self.unchanged = self.to_write = 0
        self._collection = collection
        self._seen = array("Q")
        self._file = cast("BinaryIO", tempfile.TemporaryFile(prefix="pearl-qdrant-"))  # noqa: SIM115

    def __enter__(self) -> Inventory:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()

    def compare(self, entities: Iterator[Entity], on_progress: Callable[[int], None]) -> None:
        """Look all entities up; `on_progress` is called with the number of names that are stored. Raises InputError if
        the entities cannot be read, or the temporary file cannot be written; StoreError if the store fails after all
        retries.
        """
        while batch := list(islice(entities, BATCH)):
            points = plain_points(self._collection.manifest.kb, batch)
            self._seen.extend(_short(point.id) for point in points)
            known = stored_points(self._collection, [point.id for point in points])
            n_before, changed, row = self.unchanged, list[NamePoint](), iter(points)
            for entity in batch:
                self._compare_one(
                    entity, [(point, known.get(point.id)) for point in islice(row, 1 + len(entity.aliases))], changed
                )
            for start in range(0, len(changed), BATCH):
                self._collection.replace_payloads(changed[start : start + BATCH])
            self.changed += len(changed)
            on_progress(self.unchanged - n_before + len(changed))

    def _compare_one(
        self, entity: Entity, points: Sequence[tuple[NamePoint, NamePoint | None]], changed: list[NamePoint]
    ) -> None:
        lacking, n_before = [], len(changed)
        for point, stored in points:
            if stored is None:
                self.added += 1
                lacking.append(point.name)
            elif not is_same_point(now := _with_types_of(point, stored), stored):
                changed.append(now)
            else:
                self.unchanged += 1
        self.entities += not lacking and len(changed) == n_before
        self.to_write += len(lacking)
        if lacking:
            with _as_input_error():
                self._file.write(msgspec.msgpack.encode(Named(entity, lacking)).hex().encode() + b"\n")

    def lacking(self) -> Iterator[Named]:
        """What is to be written, in the order of the base."""
        decode = msgspec.msgpack.Decoder(Named).decode
        with _as_input_error():
            self._file.seek(0)
            for line in self._file:
                yield decode(bytes.fromhex(line.decode()))

    def find_retired(self) -> list[str]:
        """Ids of the points that the base lacks, without those of learned names."""
        seen, missing = np.sort(np.frombuffer(self._seen, dtype=np.uint64)), list[str]()
        padded = np.append(seen, np.uint64(0))
        points = self._collection.scroll()
        while ids := [point.id for point in islice(points, BATCH)]:
            short = np.fromiter(map(_short, ids), dtype=np.uint64, count=len(ids))
            at = np.searchsorted(seen, short)
            is_seen = (padded[at] == short) & (at < len(seen))
            missing += [ids[i] for i in np.flatnonzero(~is_seen).tolist()]
        of_learned = alias_point_ids(self._collection) if missing else frozenset[str]()
        return [one for one in missing if one not in of_learned]


def stored_points(collection: Collection, ids: Sequence[str]) -> dict[str, NamePoint]:
    """The points that the collection has, of these ids."""
    known: dict[str, NamePoint] = {}
    for start in range(0, len(ids), BATCH):
        known.update(collection.get(ids[start : start + BATCH]))
    return known


def _with_types_of(point: NamePoint, stored: NamePoint) -> NamePoint:
    """A point with the stored predictions of the type head, which depend on the name alone."""
    return replace(
        point,
        phrase_type=stored.phrase_type,
        lexical_class=stored.lexical_class,
        predicted_type=stored.predicted_type,
        type_probability=stored.type_probability,
    )


def _short(point_id: str) -> int:
    """60 random bits of a UUID5, and its version."""
    return int(point_id[:8] + point_id[9:13] + point_id[14:18], 16)


@contextmanager
def _as_input_error() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"new names cannot be written: {error.strerror or error}. Point TMPDIR to a larger disk"
        raise InputError("temporary file", None, message) from error
