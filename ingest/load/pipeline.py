"""One load: what a collection has of a base stays, what it lacks is encoded and written, what is gone is deleted.

A first load, one that goes on after a kill, one that mends what a store has lost, and an update to a newer release are
the same pass. An empty collection has nothing to compare. Otherwise the base is compared first by point ids, 8 bytes of
memory a name: what lacks waits in an unnamed temporary file; where only other fields changed, the payload is replaced
and the vector stays. Two of n points share their 8 bytes with probability n^2 / 2^65; then one retired name stays.

Three threads work at once, joined by queues of `QUEUE` windows: one reads names, one encodes a window of them, one
turns the last window into points and writes it. The encoder encodes a name once within a window; across windows,
vectors of names that repeat are kept here. Every `FLUSH_S` seconds the store is flushed, so that a kill loses no more.

On a server, several processes can load several inputs of one base into one collection: each notes that it loads, and
the last one to finish builds the graph.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar, cast

import msgspec
import numpy as np

from ingest.base.reader import Hashes, HashSet, Reader, RowStore, ScanResult
from ingest.io.report import ReadReport
from ingest.load.request import LoadRequest, LoadResult
from pearl_qdrant.encoder.protocol import Encoded, Encoder
from pearl_qdrant.errors import OptionError, StoreError
from pearl_qdrant.lexical.ngrams import IdfTable
from pearl_qdrant.linking.learned.learning import alias_point_ids, sync_aliases
from pearl_qdrant.records import Entity
from pearl_qdrant.store.administration import check_ours
from pearl_qdrant.store.protocol import Collection, Placement, Store, Writer
from pearl_qdrant.store.schema import (
    Checkpoint,
    LoadedInput,
    Manifest,
    NamePoint,
    PredictedType,
    is_same_point,
    name_points,
    plain_points,
)

CAPACITY = 32_768
"""Names kept; 61 MB at 384 dimensions with types. Beyond it, the least recently used are dropped, and encoded again
if they come back."""


class RepeatedNames:
    """An encoder that remembers the vectors of names that repeat, by their sorted hashes."""

    def __init__(self, encoder: Encoder, repeated_name_hashes: Hashes) -> None:
        self._encoder, self._repeated = encoder, HashSet(repeated_name_hashes)
        self._kept: OrderedDict[str, Encoded] = OrderedDict()

    def encode(self, names: Sequence[str]) -> Encoded:
        """As `Encoder.encode`; remembered names are not encoded again."""
        distinct = list(dict.fromkeys(names))
        new = [name for name in distinct if name not in self._kept]
        found, kept = self._encoder.encode(new), [name for name in distinct if name in self._kept]
        place = {name: i for i, name in enumerate((*new, *kept))}
        whole = joined([found, *(self._kept[name] for name in kept)]).take([place[name] for name in names])
        for name in kept:
            self._kept.move_to_end(name)
        self._remember(new, found)
        return whole

    def _remember(self, names: Sequence[str], encoded: Encoded) -> None:
        """Keep the vectors of the names that the scan found more than once."""
        for i, name in enumerate(names if self._repeated else ()):
            if name in self._repeated:
                self._kept[name] = encoded.take([i])
        while len(self._kept) > CAPACITY:
            self._kept.popitem(last=False)


def joined(parts: Sequence[Encoded]) -> Encoded:
    """Rows of all parts, one after the other."""
    types = [one.type_probabilities for one in parts if one.type_probabilities is not None]
    vectors, encodable = (np.concatenate([getattr(one, name) for one in parts]) for name in ("vectors", "encodable"))
    return Encoded(vectors, encodable, np.concatenate(types) if types else None)


T = TypeVar("T")

_END = object()
_POLL_S = 0.02


@dataclass(slots=True)
class _Failure:
    """An exception on its way to the consumer."""

    error: BaseException


class _Consumer:
    """Lives as long as the consumer's side of a generator. Ctrl-C may end that side before it sets `stopped`."""


def overlap(items: Iterable[T], ahead: int) -> Generator[T, None, None]:
    """The same items, produced in another thread, at most `ahead` of the consumer, where errors are raised, too. If the
    consumer stops early, the producer stops at its next item, and this function waits for it.
    """
    # Not `queue.Queue`: Ctrl-C between its lines leaves its lock taken, and the producer waits forever.
    handed: queue.SimpleQueue[object] = queue.SimpleQueue()
    stopped = threading.Event()
    consumer = _Consumer()
    alive = weakref.ref(consumer)

    def offer(item: object) -> bool:
        """Returns whether the consumer wants more."""
        while handed.qsize() >= ahead:
            if stopped.wait(_POLL_S) or alive() is None:
                return False
        handed.put(item)
        return not stopped.is_set()

    def produce() -> None:
        iterator = iter(items)
        try:
            for item in iterator:
                if not offer(item):
                    return
            offer(_END)
        except BaseException as error:  # noqa: BLE001 - it is raised again in the consumer
            offer(_Failure(error))
        finally:
            # An unfinished generator closes its files and threads here, in its own thread.
            getattr(iterator, "close", lambda: None)()

    thread = threading.Thread(target=produce, name="overlap", daemon=True)
    thread.start()
    try:
        while (item := handed.get()) is not _END:
            if isinstance(item, _Failure):
                raise item.error
            yield cast(T, item)
    finally:
        stopped.set()
        if threading.current_thread() is not thread:  # garbage of an error may be collected in the producer itself
            thread.join()


QUEUE = 2  # Windows that can wait between two stages
WINDOW = 4096  # Names encoded together: enough to sort by length with little padding, and one or two seconds' work
FLUSH_S = 10.0  # Seconds between two flushes, which take a fraction of a second


@dataclass(frozen=True, slots=True)
class Named:
    """An entity, and those of its names that are to be written."""

    entity: Entity
    names: list[str]


Window = list[Named]
Written = tuple[int, int, float]
"""Entities and names of a window that is written, and the seconds that it was encoded."""

WriteWindows = Callable[[Manifest, Hashes, Iterable[Window]], Generator[Written, None, None]]
"""Writes windows elsewhere, durably: to the collection with this manifest, with the sorted hashes of repeated names."""


def names_of(window: Window) -> list[str]:
    """The names of a window, in its order."""
    return [name for one in window for name in one.names]


def write_window(writer: Writer, kb: str, window: Window, encoded: Encoded) -> int:
    """Write the names of a window, encoded in its order; returns how many they are."""
    points = name_points(kb, ((one.entity, name) for one in window for name in one.names), encoded)
    writer.write(points, encoded.vectors, encoded.encodable)
    return len(points)


def _windows(named: Iterable[Named]) -> Iterator[Window]:
    """Whole entities; each window but the last has at least `WINDOW` names."""
    window, n_names = Window(), 0
    for one in named:
        window.append(one)
        n_names += len(one.names)
        if n_names >= WINDOW:
            yield window
            window, n_names = Window(), 0
    if window:
        yield window


SAMPLE = 1000
"""Rows of a base, from its start, that are looked up to see whether it is a newer release of what is stored."""

MOSTLY = 0.5
"""The share of the sampled names that are stored, and the least size relative to what is stored, of a newer release.
Two releases of one base share nearly all names, two parts of one base nearly none; a correction of a few rows is far
smaller than what it corrects."""


@dataclass(slots=True)
class Load:
    """A base that is read and counted, and where it goes: `run` brings the collection to it.

    `input_name` identifies the base among those that are loaded into the collection; `manifest` is that of the
    collection, if it is new; `elsewhere` encodes and writes in other processes than this one.
    """

    reader: Reader
    scan: ScanResult
    input_name: str
    encoder: Encoder
    store: Store
    manifest: Manifest
    request: LoadRequest
    elsewhere: WriteWindows | None = None
    is_update: bool = False
    target: Collection = field(init=False)
    n_stored: int = 0  # entities
    encode_seconds: float = 0.0

    def run(self) -> LoadResult:
        """Load the base, or update the collection to it, or do nothing if it holds it already; see `LoadRequest`."""
        request, name = self.request, self.manifest.collection
        exists, is_update = name in self.store.collections(), request.update
        if is_update is None and exists and not request.is_limited and not request.restart and self._is_newer_release():
            is_update = request.may_update()
            if is_update:
                request.events.newer_release()
        self.is_update = bool(is_update)
        if exists and request.restart and not is_update:
            check_ours(self.store, name)
            self.store.delete(name, keep_ledger=True)
            exists = False
        if is_update or exists:
            self.target = self.store.open(name)
        else:
            self.target = self.store.create(self.manifest, request.placement or Placement())
        with closing(self.target):
            if exists and not is_update:
                self._check_new()
            with self.target.editing():
                self._check_fits()
                if not self._is_loaded():
                    request.events.started(self.scan.names)
                    result = self._bring()
                    sync_aliases(self.target, self.encoder)
                    return result
                manifest, version = self.target.manifest, self.manifest.kb_version
                if version is not None:
                    self.target.write_manifest(manifest.model_copy(update={"kb_version": version}))
                request.events.unchanged(manifest.edited)
                return replace(self._result(), unchanged=self.scan.names)

    def _is_newer_release(self) -> bool:
        """Whether the base is a newer release of the one input that the collection holds; see `MOSTLY`."""
        with closing(self.store.open(self.manifest.collection)) as target:
            manifest = target.read_manifest()
            if manifest.checkpoints or len(manifest.loaded) > 1 or self.request.kb not in (None, manifest.kb):
                return False
            is_loaded = any(one.digest == self.scan.digest for one in manifest.loaded)
            if is_loaded or self.scan.names < MOSTLY * target.count():
                return False
            entities = self.reader.read(ReadReport(max_errors=None), scattered=self.scan.scattered)
            ids = [point.id for point in plain_points(manifest.kb, islice(entities, SAMPLE))]
            return len(target.get(ids)) >= MOSTLY * len(ids)

    def _check_new(self) -> None:
        """Refuse what is chosen when a collection is created, for one that exists."""
        name, kept, wanted = self.target.name, self.target.manifest.quantization, self.request.quantization
        if wanted not in (None, kept):
            raise OptionError("quantization", f"Collection '{name}' keeps its vectors as {kept}, not {wanted}.")
        if self.request.placement not in (None, Placement()):
            raise OptionError(
                "placement", f"Collection '{name}' exists: shards and replicas are chosen when it is created."
            )

    def _check_fits(self) -> None:
        """Check that the collection has this model and base, and write the version of the type map."""
        manifest, kb = self.target.manifest, self.request.kb
        manifest.check_model(self.encoder.info)
        if kb not in (None, manifest.kb):
            raise OptionError("kb", f"Collection '{self.target.name}' holds base '{manifest.kb}', not '{kb}'.")
        self.target.write_manifest(manifest.model_copy(update={"type_map_version": self.manifest.type_map_version}))

    def _is_loaded(self) -> bool:
        """Whether the base was loaded into the collection as it is now, and no point has disappeared since; for an
        update also, whether nothing else was loaded, and nothing edited by hand.

        The digest covers the entities as they are read, so an option that changes what is read changes it. Deletions by
        hand change the count in the manifest too; points that a store has lost do not, and are written again by a load.
        """
        manifest = self.target.read_manifest()
        if self.is_update and (len(manifest.loaded) != 1 or manifest.edited or manifest.names != self.scan.names):
            return False
        return (
            manifest.state == "ready"
            and not manifest.checkpoints
            and any(one.digest == self.scan.digest for one in manifest.loaded)
            and self.target.count() == manifest.names
        )

    def _result(self) -> LoadResult:
        """What all loads have: the counts of the input, and of what the collection holds now."""
        points, info = self.target.count(), self.encoder.info
        return LoadResult(
            collection=self.target.name,
            report=self.scan.report,
            points=points,
            without_vector=points - self.target.status().vectors,
            model=info.name,
            device=info.device,
            distinct_names=self.scan.distinct_names,
            is_update=self.is_update,
        )

    def _bring(self) -> LoadResult:  # long: the steps of a load are all here
        """Bring the collection to the base, and build its graph; writing a name twice changes nothing.

        While the manifest has an unfinished load of another input, the graph is not built. An update deletes nothing if
        rows of the new release could not be read, or `may_remove` refuses. Raises InputError if the input cannot be
        read, or has too many bad rows; StoreError if the store fails after all retries, or does not hold what was
        written.
        """
        events, scan, start, is_update = self.request.events, self.scan, time.perf_counter(), self.is_update
        before = self._begin()
        inventory = self._write_lacking(before)
        if self.target.count() < scan.names:  # a store lost some of them meanwhile
            inventory.added += self._write_lacking(before).added
            self._check_count()
        n_removed, n_kept = self._remove_retired(inventory) if is_update else (0, 0)
        self._note(scan.entities, is_done=True)
        load_seconds, start = time.perf_counter() - start, time.perf_counter()
        checkpoints = self.target.read_manifest().checkpoints
        unfinished = tuple(one.input for one in checkpoints if not one.is_done)
        if not unfinished:
            self.target.finalize(events.graph_built)
        graph_seconds = time.perf_counter() - start
        if not unfinished:
            inputs = [LoadedInput(input=one.input, digest=one.digest) for one in checkpoints]
            if is_update and not n_kept:
                inputs = [LoadedInput(input=self.input_name, digest=scan.digest)]
            self._finish(inputs)
        return replace(
            self._result(),
            load_seconds=load_seconds,
            encode_seconds=self.encode_seconds,
            graph_seconds=graph_seconds,
            added=inventory.added,
            changed=inventory.changed,
            unchanged=inventory.unchanged,
            removed=n_removed,
            kept=n_kept,
            resumed_at=inventory.entities,
            rewritten=inventory.added if not is_update and _was_whole(before, scan) else 0,
            unfinished=unfinished,
        )

    def _begin(self) -> Manifest:
        """Mark the collection as loading; the manifest before. What was begun before an update is void."""
        before = self.target.read_manifest()
        if self.is_update:
            for checkpoint in before.checkpoints:
                self.target.remove_checkpoint(checkpoint.input)
        self.target.write_manifest(self.target.read_manifest().model_copy(update={"state": "loading"}))
        if not self.is_update:
            self.target.write_checkpoint(Checkpoint(input=self.input_name, digest=self.scan.digest, entities=0))
        return before

    def _note(self, n_stored: int, *, is_done: bool = False) -> None:
        """Note how much of the base is stored durably."""
        if not self.is_update:
            digest = self.scan.digest
            noted = Checkpoint(input=self.input_name, digest=digest, entities=n_stored, is_done=is_done)
            self.target.write_checkpoint(noted)
        self.request.events.entities_stored(n_stored)

    def _write_lacking(self, before: Manifest) -> Inventory:
        """Write the names that the collection lacks."""
        report, events = ReadReport(max_errors=self.request.max_errors), self.request.events
        entities = self.reader.read(report, scattered=self.scan.scattered)
        with RowStore() as store:
            inventory = Inventory(self.target, store)
            if not self.is_update and not self.target.count():
                inventory.added = self.scan.names
                self._write(Named(entity, list(entity.names())) for entity in entities)
                return inventory
            inventory.compare(entities, events.names_stored)
            if inventory.entities and before.state == "loading":
                events.resumed(inventory.entities)
            self.n_stored = inventory.entities
            if inventory.added:
                self._write(store.rows())
            return inventory

    def _write(self, named: Iterable[Named]) -> None:
        """Encode and write names, in three threads, or elsewhere; the store is flushed at the end."""
        last, windows, repeated = time.perf_counter(), _windows(named), self.scan.repeated_name_hashes
        repeats = RepeatedNames(self.encoder, repeated)
        with self.target.writer() as writer:
            if self.elsewhere is None:
                writing = self._write_here(writer, repeats, windows)
            else:
                writing = self.elsewhere(self.target.manifest, repeated, windows)
            with closing(writing) as written:
                for n_entities, n_names, seconds in written:
                    self.n_stored += n_entities
                    self.encode_seconds += seconds
                    self.request.events.names_done(n_names)
                    if time.perf_counter() - last >= FLUSH_S:
                        writer.flush()
                        self._note(self.n_stored)
                        last = time.perf_counter()
            writer.flush()

    def _write_here(
        self, writer: Writer, repeats: RepeatedNames, windows: Iterable[Window]
    ) -> Generator[Written, None, None]:
        def encoded(windows: Iterable[Window]) -> Iterator[tuple[Window, Encoded, float]]:
            for window in windows:
                start = time.perf_counter()
                found = repeats.encode(names_of(window))
                yield window, found, time.perf_counter() - start

        kb = self.target.manifest.kb
        with closing(overlap(encoded(overlap(windows, QUEUE)), QUEUE)) as rows:
            for window, found, seconds in rows:
                yield len(window), write_window(writer, kb, window, found), seconds

    def _remove_retired(self, inventory: Inventory) -> tuple[int, int]:
        """Delete the points that the base lacks, if that is allowed; how many were deleted, and how many are kept."""
        retired = inventory.find_retired()
        is_cut = bool(self.scan.report.n_skipped)
        if retired and (is_cut or not self.request.may_remove(len(retired), self.target.count())):
            return 0, len(retired)
        self.target.delete_points(retired)
        return len(retired), 0

    def _finish(self, inputs: Sequence[LoadedInput]) -> None:
        """Write the inputs, the counts and the IDF table to the manifest, and remove their checkpoints.

        In a folder that is one write. On a server the checkpoints go last: a load that dies before is repeated.
        """
        target, scan, is_update = self.target, self.scan, self.is_update
        points = target.count()
        idf = IdfTable.from_names(point.name for point in target.scroll()).to_text()
        before, names = target.read_manifest(), {one.input for one in inputs}
        others = () if is_update else tuple(one for one in before.loaded if one.input not in names)
        changed = {
            "state": "ready",
            "ngram_rarity": idf,
            "loaded": (*others, *inputs),
            "checkpoints": tuple(one for one in before.checkpoints if one.input not in names),
            "entities": scan.entities if points == scan.names else target.count_entities(),
            "names": points,
            "edited": not is_update and before.edited and points != scan.names,  # what was added by hand is there
            "kb_version": self.request.kb_version or before.kb_version,
        }
        target.write_manifest(before.model_copy(update=changed))
        for name in names:
            target.remove_checkpoint(name)

    def _check_count(self) -> None:
        """Refuse a store that holds fewer points than it should, after all missing names were written."""
        if (points := self.target.count()) < self.scan.names:
            raise StoreError(
                f"Collection '{self.target.name}' holds {points:,} points after a load of {self.scan.names:,} names, "
                f"although the missing ones were written again: the store loses points, or the input changed while it "
                f"was read. Run the same command again; if that changes nothing, load into an empty collection.",
                option="restart",
            )


def _was_whole(before: Manifest, scan: ScanResult) -> bool:
    """Whether all names of a base were stored once: what lacks was lost, or deleted."""
    digests = [one.digest for one in before.loaded] if before.state == "ready" else []
    return scan.digest in (*digests, *(one.digest for one in before.checkpoints if one.is_done))


BATCH = 1000  # Entities looked up, and points replaced, at a time


class Inventory:
    """A base compared with a collection; what lacks goes into `store`, as `Named`. Counts entities that are stored as
    they are, and names that are lacking, had another payload, or are stored.
    """

    def __init__(self, collection: Collection, store: RowStore) -> None:
        self.entities = self.added = self.changed = self.unchanged = 0
        self._collection, self._store, self._seen = collection, store, HashSet()

    def compare(self, entities: Iterator[Entity], on_progress: Callable[[int], None]) -> None:
        """Look all entities up; `on_progress` is called with the number of names that are stored. Raises InputError if
        the entities cannot be read, or the temporary file cannot be written; StoreError if the store fails after all
        retries.
        """
        while batch := list(islice(entities, BATCH)):
            points = plain_points(self._collection.manifest.kb, batch)
            for point in points:
                self._seen.add(point.id)
            known = self._collection.get([point.id for point in points])
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
        lacking, n_before = list[str](), len(changed)
        for point, stored in points:
            if stored is None:
                self.added += 1
                lacking.append(point.name)
                continue
            predicted = {name: getattr(stored, name) for name in PredictedType._fields}  # they depend on the name alone
            now = msgspec.structs.replace(point, **predicted)
            if is_same_point(now, stored):
                self.unchanged += 1
            else:
                changed.append(now)
        self.entities += not lacking and len(changed) == n_before
        if lacking:
            self._store.add([(entity.entity_id, Named(entity, lacking))])

    def find_retired(self) -> set[str]:
        """Ids of the points that the base lacks, without those of learned names."""
        missing = {point.id for point in self._collection.scroll() if point.id not in self._seen}
        return missing - alias_point_ids(self._collection) if missing else missing
