"""Update a collection to a newer release: only what changed is encoded and written, and retired names are deleted.

Three passes, none of which holds the base in memory:

1. Each name of the new release is looked up by its point id. New names are put into a temporary file. Where only other
   fields changed (types, description, canonical name), the payload is replaced and the vector stays. A
   canonical name with another description is written again, if the collection keeps vectors of descriptions.
2. The new names are encoded and written.
3. All points are compared with the new release, and those that it lacks are deleted. For each point of the new release
   8 bytes are kept. Two of n points share them with probability n^2 / 2^61 (0.000004 % for ten million); then one
   retired name stays.

It can be killed at any moment and run again: what is done is found unchanged.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np

from ingest.base.reader import Reader
from ingest.base.scan import ScanResult
from ingest.io.report import ReadReport
from ingest.load.new_names import BATCH, NewNames, stored_points, with_types_of
from ingest.load.pipeline import Progress
from ingest.load.results import UpdateResult
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import StoreError
from pearl_qdrant.lexical.idf import IdfTable
from pearl_qdrant.linking.learned.aliases import alias_point_ids
from pearl_qdrant.records import Entity
from pearl_qdrant.store.points import description_text, is_same_point, plain_points
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import LoadedInput, NamePoint

MayRemove = Callable[[int, int], bool]
"""Called with the number of names that would be deleted and that of all names; returns whether to delete them."""


def update(  # long: all arguments of an update are documented here
    reader: Reader,
    scan: ScanResult,
    encoder: Encoder,
    collection: Collection,
    *,
    kb_version: str | None = None,
    max_errors: int | None = None,
    input_name: str = "input",
    on_progress: Progress = lambda names: None,
    may_remove: MayRemove = lambda removed, total: True,
    on_finalize: Callable[[int, int], None] | None = None,
) -> UpdateResult:
    """Update a collection to a newer release of its base.

    Nothing is deleted if rows of the new release could not be read: their names are unknown.

    Args:
        reader: The whole of the new release.
        scan: The scan of the same reader.
        encoder: The model that the manifest names.
        collection: Open.
        kb_version: The new release, for the manifest; None keeps the old value.
        max_errors: As in `ReadReport`.
        input_name: As in `pipeline.ingest`.
        on_progress: Called with the number of names just compared.
        may_remove: Decides whether retired names are deleted.
        on_finalize: As in `Collection.finalize`.

    Raises:
        InputError: If the input cannot be read, or has too many bad rows.
        StoreError: If the store fails after all retries, or does not hold what was written.
    """
    _start(collection, encoder)
    start = time.perf_counter()
    report = ReadReport(max_errors=max_errors)
    with NewNames() as new:
        comparison = _Comparison(collection, new)
        comparison.add_all(reader.read(report, scattered=scan.scattered), on_progress)
        encode_seconds = new.write_to(collection, encoder)
    learned, removed, kept = _remove_retired(collection, comparison.seen, report, may_remove)
    load_seconds = time.perf_counter() - start
    points = _check_count(collection, scan.names + kept + learned)
    loaded = () if kept else (LoadedInput(input=input_name, digest=scan.digest),)
    graph_seconds = _finish(collection, scan, points, kb_version, loaded, on_finalize)
    return UpdateResult(
        collection=collection.name,
        report=scan.report,
        points=points,
        without_vector=points - collection.status().vectors,
        load_seconds=load_seconds,
        encode_seconds=encode_seconds,
        graph_seconds=graph_seconds,
        model=encoder.info.name,
        device=encoder.info.device,
        added=comparison.added,
        changed=comparison.changed,
        unchanged=comparison.unchanged,
        removed=removed,
        kept=kept,
    )


def _start(collection: Collection, encoder: Encoder) -> None:
    """Mark the collection as loading. Checkpoints of interrupted loads are void: only the new release counts."""
    manifest = collection.read_manifest()
    manifest.check_model(encoder.info)
    for checkpoint in manifest.checkpoints:
        collection.remove_checkpoint(checkpoint.input)
    collection.write_manifest(collection.read_manifest().model_copy(update={"state": "loading"}))


def _remove_retired(
    collection: Collection, seen: array[int], report: ReadReport, may_remove: MayRemove
) -> tuple[int, int, int]:
    """Delete the points that the new release lacks, if that is allowed.

    Returns:
        How many of them are learned names, which stay; were deleted; and were kept.
    """
    missing = _find_retired(collection, seen)
    of_learned = alias_point_ids(collection) if missing else frozenset[str]()
    retired = [one for one in missing if one not in of_learned]
    learned = len(missing) - len(retired)
    if retired and (report.n_skipped or not may_remove(len(retired), collection.count())):
        return learned, 0, len(retired)
    for part in range(0, len(retired), BATCH):
        collection.delete_points(set(retired[part : part + BATCH]))
    return learned, len(retired), 0


def _check_count(collection: Collection, expected: int) -> int:
    """The exact number of points.

    Raises:
        StoreError: If it is not the expected one.
    """
    points = collection.count()
    if points != expected:
        raise StoreError(
            f"Collection '{collection.name}' holds {points:,} points after an update to {expected:,} names. Run the "
            f"same command again: it writes what is missing and duplicates nothing."
        )
    return points


def _finish(
    collection: Collection,
    scan: ScanResult,
    points: int,
    kb_version: str | None,
    loaded: tuple[LoadedInput, ...],
    on_finalize: Callable[[int, int], None] | None,
) -> float:
    """Build the graph, and write input, counts and IDF table to the manifest; returns the seconds of the graph."""
    start = time.perf_counter()
    collection.finalize(on_finalize)
    graph_seconds = time.perf_counter() - start
    n_entities = scan.entities if points == scan.names else collection.count_entities()
    idf = IdfTable.from_names(point.name for point in collection.scroll()).to_text()
    done = {"state": "ready", "ngram_rarity": idf, "entities": n_entities, "names": points, "loaded": loaded}
    done["edited"] = False
    if kb_version is not None:
        done["kb_version"] = kb_version
    collection.write_manifest(collection.manifest.model_copy(update=done))
    return graph_seconds


class _Comparison:
    """Compares the new release with the stored points: the first pass."""

    def __init__(self, collection: Collection, new: NewNames) -> None:
        self.seen = array("Q")
        self.added = 0
        self.changed = 0
        self.unchanged = 0
        self._collection = collection
        self._new = new
        self._has_descriptions = collection.manifest.has_descriptions

    def add_all(self, entities: Iterator[Entity], on_progress: Progress) -> None:
        """Compare all entities, in batches."""
        while batch := list(islice(entities, BATCH)):
            on_progress(self.add(batch))

    def add(self, entities: Sequence[Entity]) -> int:
        """Compare entities with the stored points; returns the number of their names."""
        points = plain_points(self._collection.manifest.kb, entities)
        ids = [point.id for point in points]
        self.seen.extend(map(_short, ids))
        known = stored_points(self._collection, ids)
        changed = []
        row = 0
        for entity in entities:
            missing, redescribed = [], []
            for name in entity.names():
                point, stored = points[row], known.get(ids[row])
                row += 1
                if stored is None:
                    missing.append(name)
                elif self._has_descriptions and _described(point) != _described(stored):
                    redescribed.append(name)
                elif not is_same_point(now := with_types_of(point, stored), stored):
                    changed.append(now)
                else:
                    self.unchanged += 1
            if missing or redescribed:
                self._new.add(entity, [*missing, *redescribed])
            self.added += len(missing)
            self.changed += len(redescribed)
        for start in range(0, len(changed), BATCH):
            self._collection.replace_payloads(changed[start : start + BATCH])
        self.changed += len(changed)
        return len(points)


def _described(point: NamePoint) -> str | None:
    """The text whose vector a point has, if its collection keeps vectors of descriptions."""
    return description_text(point) if point.is_canonical else None


def _find_retired(collection: Collection, seen: array[int]) -> list[str]:
    """Ids of the points that were not seen in the new release."""
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
