"""Write the names that a collection lacks: look them up by point id, collect them in a temporary file, encode them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import BinaryIO, cast

import msgspec

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import InputError
from pearl_qdrant.records import Entity
from pearl_qdrant.store.points import encode_descriptions, is_same_point, name_points, plain_points
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint

BATCH = 1000
"""Points looked up, replaced or deleted at a time."""

WINDOW = 8192
"""Names encoded together: enough to sort by length with little padding, few enough to hold several windows."""


class _New(msgspec.Struct, array_like=True):
    """An entity, and its new names."""

    entity: Entity
    names: list[str]


class NewNames:
    """Names to encode, in an unnamed temporary file."""

    def __init__(self) -> None:
        self.count = 0
        self._file = cast("BinaryIO", tempfile.TemporaryFile(prefix="pearl-qdrant-"))  # noqa: SIM115

    def __enter__(self) -> NewNames:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()

    def add(self, entity: Entity, names: list[str]) -> None:
        """Add some names of an entity.

        Raises:
            InputError: If the temporary file cannot be written.
        """
        with _as_input_error():
            self._file.write(msgspec.msgpack.encode(_New(entity, names)).hex().encode() + b"\n")
        self.count += len(names)

    def write_to(self, collection: Collection, encoder: Encoder) -> float:
        """Encode and write all names; returns the seconds in the encoder.

        Raises:
            StoreError: If the store fails after all retries.
        """
        encode_seconds, manifest = 0.0, collection.manifest
        if not self.count:
            return encode_seconds
        with collection.writer() as writer:
            for window in _windows(self._read()):
                pairs = [(one.entity, name) for one in window for name in one.names]
                start = time.perf_counter()
                encoded = encoder.encode([name for _, name in pairs])
                descriptions = encode_descriptions(pairs, encoder, wanted=manifest.has_descriptions)
                encode_seconds += time.perf_counter() - start
                points = name_points(manifest.kb, pairs, encoded)
                writer.write(points, encoded.vectors, encoded.encodable, descriptions=descriptions)
            writer.flush()
        return encode_seconds

    def _read(self) -> Iterator[_New]:
        decode = msgspec.msgpack.Decoder(_New).decode
        with _as_input_error():
            self._file.seek(0)
            for line in self._file:
                yield decode(bytes.fromhex(line.decode()))


def stored_points(collection: Collection, ids: Sequence[str]) -> dict[str, NamePoint]:
    """The points that the collection has, of these ids."""
    known: dict[str, NamePoint] = {}
    for start in range(0, len(ids), BATCH):
        known.update(collection.get(ids[start : start + BATCH]))
    return known


def with_types_of(point: NamePoint, stored: NamePoint) -> NamePoint:
    """A point with the stored predictions of the type head, which depend on the name alone."""
    return replace(
        point,
        phrase_type=stored.phrase_type,
        lexical_class=stored.lexical_class,
        predicted_type=stored.predicted_type,
        type_probability=stored.type_probability,
    )


def count_stored(entities: Iterable[Entity], collection: Collection) -> int:
    """How many of these entities are stored as they are, up to the first that is not: a load writes in their order."""
    iterator, n_stored = iter(entities), 0
    while batch := list(islice(iterator, BATCH)):
        known = stored_points(collection, [point.id for point in plain_points(collection.manifest.kb, batch)])
        for entity in batch:
            for point in plain_points(collection.manifest.kb, [entity]):
                stored = known.get(point.id)
                if stored is None or not is_same_point(with_types_of(point, stored), stored):
                    return n_stored
            n_stored += 1
    return n_stored


def write_missing(entities: Iterable[Entity], collection: Collection, encoder: Encoder) -> int:
    """Write the names of entities that the collection lacks; returns their number.

    Raises:
        InputError: If the entities cannot be read, or the temporary file cannot be written.
        StoreError: If the store fails after all retries.
    """
    iterator = iter(entities)
    with NewNames() as new:
        while batch := list(islice(iterator, BATCH)):
            ids = [point.id for point in plain_points(collection.manifest.kb, batch)]
            known, row = stored_points(collection, ids), 0
            for entity in batch:
                names = list(entity.names())
                missing = [name for i, name in enumerate(names, row) if ids[i] not in known]
                row += len(names)
                if missing:
                    new.add(entity, missing)
        new.write_to(collection, encoder)
        return new.count


def _windows(new: Iterable[_New]) -> Iterator[list[_New]]:
    """Lists of at least `WINDOW` names; the last may have fewer."""
    window: list[_New] = []
    n_names = 0
    for one in new:
        window.append(one)
        n_names += len(one.names)
        if n_names >= WINDOW:
            yield window
            window, n_names = [], 0
    if window:
        yield window


@contextmanager
def _as_input_error() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = (
            f"new names cannot be written to a temporary file: {error.strerror or error}. Point TMPDIR to a larger disk"
        )
        raise InputError("temporary file", None, message) from error
