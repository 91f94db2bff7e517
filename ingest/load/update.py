"""A newer release over an older one: only what has changed is encoded and written, and what was retired goes.

Three passes, none of which holds the base in memory:

1. Each name of the new release is looked up by its point id. What is new is put away in a temporary file; where only
   the rest has changed (types, description, canonical name) the payload is replaced, and the vector stays.
2. The new names are encoded and written.
3. All points are gone through, and those that the new release has no more are deleted. Of a point that was seen 8
   bytes are kept; two of n share them with probability n^2 / 2^61 (0.000004 % for ten million), and then one retired
   name stays.

It can be killed at any moment and run again: what is done is found unchanged.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from ingest.base.reader import Reader
from ingest.base.scan import ScanResult
from ingest.io.report import ReadReport
from ingest.load.new_names import BATCH, NewNames, stored_points
from ingest.load.pipeline import Progress
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import StoreError
from pearl_qdrant.lexical.idf import IdfTable
from pearl_qdrant.records import Entity
from pearl_qdrant.store.points import plain_points
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """What an update did, in names (points).

    Attributes:
        collection: Its name.
        entities, names: Of the new release.
        points: Points in the collection afterwards, counted exactly.
        added: Names that were encoded and written.
        changed: Names whose payload was replaced.
        unchanged: Names that were left as they were.
        removed: Names that the new release has no more.
        kept: Names that it has no more either, kept because rows could not be read or the caller said so.
        skipped: Rows passed over, by reason.
        seconds, encode_seconds, index_seconds: As in `pipeline.IngestResult`.
        model, device: What encoded.
    """

    collection: str
    entities: int
    names: int
    points: int
    added: int
    changed: int
    unchanged: int
    removed: int
    kept: int
    skipped: dict[str, int]
    seconds: float
    encode_seconds: float
    index_seconds: float
    model: str
    device: str


MayRemove = Callable[[int, int], bool]
"""Asked with the names that would go and the names that there are, before any of them goes."""


def update(
    reader: Reader,
    scan: ScanResult,
    encoder: Encoder,
    collection: Collection,
    *,
    kb_version: str | None = None,
    max_errors: int | None = None,
    on_progress: Progress = lambda names: None,
    may_remove: MayRemove = lambda removed, total: True,
    on_finalize: Callable[[int, int], None] | None = None,
) -> UpdateResult:
    """Bring a collection to what a newer release of its base says.

    Nothing is removed while rows of the new release could not be read: what stands in them is not known.

    Args:
        reader: The whole of the new release.
        scan: Of the same reader.
        encoder: The model that the manifest names.
        collection: Open.
        kb_version: The new release, for the manifest; None leaves the old one there.
        max_errors: As in `ReadReport`.
        on_progress: Called with the number of names just compared.
        may_remove: Whether retired names may go.
        on_finalize: As in `Collection.finalize`.

    Raises:
        InputError: If the input cannot be read, or has too many bad rows.
        StoreError: If the store fails for good, or does not hold what was written.
    """
    manifest = collection.read_manifest()
    manifest.check_model(encoder.info)
    # What an interrupted ingest left is made good: the new release is all that counts.
    for checkpoint in manifest.checkpoints:
        collection.remove_checkpoint(checkpoint.input)
    collection.write_manifest(collection.read_manifest().model_copy(update={"state": "loading"}))
    start = time.perf_counter()
    with NewNames() as new:
        comparison = _Comparison(collection, new)
        report = ReadReport(max_errors=max_errors)
        entities = reader.read(report, scattered=scan.scattered)
        while batch := list(islice(entities, BATCH)):
            on_progress(comparison.add(batch))
        encode_seconds = new.write_to(collection, encoder)
    retired = _find_retired(collection, comparison.seen)
    kept = len(retired) if retired and (report.n_skipped or not may_remove(len(retired), collection.count())) else 0
    if not kept:
        for part in range(0, len(retired), BATCH):
            collection.delete_points(set(retired[part : part + BATCH]))
    seconds = time.perf_counter() - start

    points = collection.count()
    if points != scan.names + kept:
        raise StoreError(
            f"Collection '{collection.name}' holds {points:,} points after an update to {scan.names + kept:,} names. "
            f"Run the same command again: it writes what is missing and doubles nothing."
        )
    indexing = time.perf_counter()
    collection.finalize(on_finalize)
    index_seconds = time.perf_counter() - indexing
    n_entities = collection.count_entities() if kept else scan.entities
    idf = IdfTable.from_names(point.name for point in collection.scroll()).to_text()
    done = {"state": "ready", "ngram_rarity": idf, "entities": n_entities, "names": points}
    if kb_version is not None:
        done["kb_version"] = kb_version
    collection.write_manifest(collection.manifest.model_copy(update=done))
    return UpdateResult(
        collection=collection.name,
        entities=scan.entities,
        names=scan.names,
        points=points,
        added=new.count,
        changed=comparison.changed,
        unchanged=comparison.unchanged,
        removed=len(retired) - kept,
        kept=kept,
        skipped=report.passed_over,
        seconds=seconds,
        encode_seconds=encode_seconds,
        index_seconds=index_seconds,
        model=encoder.info.name,
        device=encoder.info.device,
    )


class _Comparison:
    """The first pass."""

    def __init__(self, collection: Collection, new: NewNames) -> None:
        self.seen = array("Q")
        self.changed = 0
        self.unchanged = 0
        self._collection = collection
        self._new = new

    def add(self, entities: Sequence[Entity]) -> int:
        """Compare some entities with what is stored; returns the number of their names."""
        points = plain_points(self._collection.manifest.kb, entities)
        ids = [point.id for point in points]
        self.seen.extend(map(_short, ids))
        known = stored_points(self._collection, ids)
        changed = []
        row = 0
        for entity in entities:
            missing = []
            for name in entity.names():
                point, stored = points[row], known.get(ids[row])
                row += 1
                if stored is None:
                    missing.append(name)
                elif (now := _with_types_of(point, stored)) != stored:
                    changed.append(now)
                else:
                    self.unchanged += 1
            if missing:
                self._new.add(entity, missing)
        for start in range(0, len(changed), BATCH):
            self._collection.replace_payloads(changed[start : start + BATCH])
        self.changed += len(changed)
        return len(points)


def _with_types_of(point: NamePoint, stored: NamePoint) -> NamePoint:
    """A point with what the type head once said of its name: that depends on the name alone."""
    return replace(
        point,
        phrase_type=stored.phrase_type,
        lexical_class=stored.lexical_class,
        predicted_type=stored.predicted_type,
        type_probability=stored.type_probability,
    )


def _find_retired(collection: Collection, seen: array[int]) -> list[str]:
    """Ids of the points that were not seen."""
    hashes = np.sort(np.frombuffer(seen, dtype=np.uint64)) if len(seen) else np.empty(0, np.uint64)
    retired: list[str] = []
    points = collection.scroll()
    while ids := [point.id for point in islice(points, BATCH)]:
        short = np.fromiter(map(_short, ids), dtype=np.uint64, count=len(ids))
        at = np.minimum(np.searchsorted(hashes, short), max(0, len(hashes) - 1))
        is_seen = hashes[at] == short if len(hashes) else np.zeros(len(ids), np.bool_)
        retired += [ids[i] for i in np.flatnonzero(~is_seen).tolist()]
    return retired


def _short(point_id: str) -> int:
    """60 random bits of a UUID5, and its version."""
    return int(point_id[:8] + point_id[9:13] + point_id[14:18], 16)
