"""The driver of a load over several workers: scan and cut, build the parts, join them.

    scan and cut    one pass over the input
    build           each part by a worker: read, encode, write, graph (`worker.py`); workers come from a `Runner`
    join            embedded: the segments of the parts become those of one collection (`store/edge/store.py`);
                    on a server the points are there already, and the server builds the graph

The collection appears whole, when all of it is done; on a server it is there from the start, and is marked as loading.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ingest.base.reader import Reader, ScanResult, scan
from ingest.io.report import ReadReport
from ingest.load.pipeline import Loading, finish_load, ingest, is_unchanged, unchanged_result
from ingest.load.request import LoadEvents, LoadRequest, LoadResult
from ingest.spread.worker import (
    CUT_FILES,
    JOINED,
    Job,
    PartBuilder,
    PartResult,
    Plan,
    Work,
    cut_and_scan,
    part_input,
    part_name,
)
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import CollectionExistsError, OptionError, SettingsError, StoreError
from pearl_qdrant.linking.learned.aliases import sync_aliases
from pearl_qdrant.settings import ServerAccess, default_store, is_url
from pearl_qdrant.store.edge.folder import CollectionLock
from pearl_qdrant.store.edge.store import EdgeStore, join_parts
from pearl_qdrant.store.open import location_of
from pearl_qdrant.store.protocol import Placement, Store
from pearl_qdrant.store.schema import LoadedInput, Manifest
from pearl_qdrant.store.system import sync_folder

WORK_PREFIX = ".parts-"  # How work folders are called in a store; they are no collections

NAMES_PER_PART = 2_000_000
"""Names of a part, at most, unless told: its graph takes 2 GB of memory to build. More parts are more graphs, and each
adds to every search."""

LEAST_NAMES = 25_000
"""Names of a part, at least, unless told: smaller ones have no graph, and are indexed when they are joined."""


class Runner(Protocol):
    """Builds parts, so many `workers` at once."""

    workers: int

    def __call__(self, job: Job, parts: Sequence[int], on_names: Callable[[int], None]) -> Iterator[PartResult]:
        """Yield the counts of each part when it is built; `on_names` is called with the names just done."""
        ...

    def close(self) -> None: ...


class RunnerHere:
    """Builds the parts in this process, one after the other: memory is bounded by the largest part."""

    workers = 1

    def __call__(self, job: Job, parts: Sequence[int], on_names: Callable[[int], None]) -> Iterator[PartResult]:
        builder, events = PartBuilder(job), LoadEvents()
        events.names_done = on_names  # type: ignore[method-assign, assignment]  # and nothing else of a part
        for part in parts:
            yield builder.build(part, events)

    def close(self) -> None:
        """Nothing is held."""


def count_parts(names: int, workers: int) -> int:
    """How many parts a base is cut into: a multiple of the workers, unless it is small."""
    rounds = -(-names // (NAMES_PER_PART * workers))
    return max(1, min(CUT_FILES, rounds * workers, names // LEAST_NAMES))


def start_runner(request: LoadRequest) -> Runner:
    """What builds the parts, if the options of a load in parts fit. Raises OptionError if there are too many parts, or
    workers cannot open the store or load the model; if Ray does not answer; SettingsError if an embedded store is given
    a placement.
    """
    parts, store = request.parts, request.store
    if parts is not None and not 1 <= parts <= CUT_FILES:
        raise OptionError("parts", f"A base has from 1 to {CUT_FILES} parts, not {parts}.")
    location = location_of(store)
    if not is_url(location):
        if store is not None and not isinstance(store, (str, os.PathLike, EdgeStore)):
            raise OptionError("store", "A base in parts goes to a folder, or to a server by its URL.")
        if request.placement not in (None, Placement()):
            message = f"The embedded store at {location} has no shards or replicas. Use a Qdrant server as the store."
            raise SettingsError(message, option="store")
    if request.ray is None:
        return RunnerHere()
    if not isinstance(request.model, (str, os.PathLike)):
        raise OptionError("model", "Workers of Ray load the model themselves: give its name or folder, not an encoder.")
    from ingest.spread.ray_runner import RayRunner

    return RayRunner(request.ray)


@contextmanager
def work_folder(given: str | os.PathLike[str] | None, store: Store, name: str) -> Iterator[Work]:
    """The work folder, locked; it is removed where nothing is left in it. Raises StoreError if it cannot be made;
    StoreLockedError if another process does the same.
    """
    location, folder = store.location, f"{WORK_PREFIX}{name}"
    if is_url(location):
        where = hashlib.sha256(location.encode()).hexdigest()[:12]
        work = Work(Path(given or default_store()) / f"{folder}-{where}")
    else:
        work = Work(Path(given or location) / folder, Path(location) / f"{folder}-joined" if given else None)
    path = work.path
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"The work folder {path} cannot be made: {error}. Choose another one."
        raise StoreError(message, option="work") from error
    lock = CollectionLock.acquire(path / ".lock", name)
    try:
        yield work
    finally:
        if work.read_plan() is None:  # the base was not cut
            work.clear()
        lock.release()
        if [file.name for file in path.iterdir()] == [".lock"]:
            (path / ".lock").unlink(missing_ok=True)
            path.rmdir()


@dataclass(frozen=True, slots=True)
class Spread:
    """A load over several workers, with all that does not change while it runs; `encoder` is for what is left when they
    are done, `check` refuses an empty base.
    """

    reader: Reader
    input_name: str
    encoder: Encoder
    store: Store
    manifest: Manifest
    request: LoadRequest
    work: Work
    runner: Runner
    check: Callable[[ScanResult], ScanResult]

    @property
    def name(self) -> str:
        return self.manifest.collection

    @property
    def is_remote(self) -> bool:
        return is_url(self.store.location)

    def run(self) -> LoadResult:
        scanned, plan = self._prepare()
        if plan is None:
            with closing(self.store.open(self.name, read_only=True)) as target:
                return unchanged_result(target, scanned, self.encoder.info)
        start = time.perf_counter()
        before, results = self._build(scanned, plan)
        load_seconds, start = time.perf_counter() - start, time.perf_counter()
        rewritten = (self._complete_server if self.is_remote else self._join)(scanned, plan)
        self.work.clear()
        graph_seconds = time.perf_counter() - start
        with closing(self.store.open(self.name, read_only=True)) as target:
            points, vectors = target.count(), target.status().vectors
        return LoadResult(
            collection=self.name,
            report=scanned.report,
            points=points,
            without_vector=points - vectors,
            load_seconds=load_seconds,
            encode_seconds=sum(one.encode_seconds for one in results),
            graph_seconds=graph_seconds,
            model=self.encoder.info.name,
            device=next((one.device for one in results), self.encoder.info.device),
            distinct_names=scanned.distinct_names,
            added=scanned.names,
            resumed_at=before,
            rewritten=rewritten,
        )

    def _prepare(self) -> tuple[ScanResult, Plan | None]:
        """Scan the base, and cut it unless that was done; None if the collection holds it already."""
        before = self.work.read_plan()
        exists = self.name in self.store.collections()
        scanned = None
        if before is not None or (exists and not self.request.restart):
            scanned = self.check(scan(self.reader, ReadReport(max_errors=self.request.max_errors)))
            if before == (plan := self._plan(scanned, before.parts if before else 1)):
                return scanned, plan
            if exists and not self.request.restart and self._holds(scanned):
                self.work.clear()
                return scanned, None
        self.work.clear()
        cut = cut_and_scan(self.reader, ReadReport(max_errors=self.request.max_errors), self.work.cut)
        scanned = self.check(cut) if scanned is None else cut
        plan = self._plan(scanned, self.request.parts or count_parts(scanned.names, self.runner.workers))
        if self.is_remote:
            if exists:
                self.store.delete(self.name, keep_ledger=True)
            self.store.create(self.manifest, self.request.placement or Placement()).close()
        self.work.write_plan(plan)
        return scanned, plan

    def _plan(self, scanned: ScanResult, parts: int) -> Plan:
        info = self.encoder.info
        return Plan(
            digest=scanned.digest,
            input=self.input_name,
            parts=self.request.parts or parts,
            location=self.store.location,
            collection=self.name,
            kb=self.manifest.kb,
            model=" ".join((info.weights_hash, str(info.dim), info.pooling, repr(info.prefix))),
            quantization=self.manifest.quantization,
        )

    def _holds(self, scanned: ScanResult) -> bool:
        """Whether the collection holds this base, False if it is empty; refuses one that holds something else."""
        with closing(self.store.open(self.name)) as target:
            target.manifest.check_model(self.encoder.info)
            kb = target.manifest.kb
            if kb != self.manifest.kb:
                raise OptionError("kb", f"Collection '{self.name}' holds base '{kb}', not '{self.manifest.kb}'.")
            if is_unchanged(target, scanned):
                self.request.events.unchanged(target.manifest.edited)
                return True
            if self.is_remote and not target.count():  # a driver was killed when it had created it
                return False
            raise OptionError(
                "parts",
                f"Collection '{self.name}' exists and holds something else; a load in parts makes a new collection.",
            )

    def _build(self, scanned: ScanResult, plan: Plan) -> tuple[int, list[PartResult]]:
        """Build what is left of the parts; the entities of those that were built before, and the counts of all."""
        results = [done for part in range(plan.parts) if (done := self.work.read_done(part)) is not None]
        left = sorted({*range(plan.parts)} - {one.part for one in results})
        before = stored = sum(one.entities for one in results)
        if stored:
            self.request.events.resumed(stored)
            self.request.events.entities_stored(stored)
        self.request.events.started(scanned.names)
        self.request.events.names_done(sum(one.names for one in results))
        if left:
            access = ServerAccess.from_environment() if self.is_remote else None
            request = self.request
            model = os.fspath(request.model) if isinstance(request.model, (str, os.PathLike)) else request.model
            loading = model, request.device, request.pooling, request.prefix
            job = Job(str(self.work.path), plan, self.manifest, *loading, access, request.wait_s)
            for one in self.runner(job, left, self.request.events.names_done):
                results.append(one)
                stored += one.entities
                self.request.events.entities_stored(stored)
        return before, results

    def _complete_server(self, scanned: ScanResult, plan: Plan) -> int:
        """Look whether a server has all names, and let it build the graph; the names that were written again."""
        rewritten = 0
        with closing(self.store.open(self.name)) as target:
            if target.count() < scanned.names:
                done = ingest(
                    self.reader,
                    scanned,
                    self.encoder,
                    target,
                    max_errors=self.request.max_errors,
                    loading=Loading(self.input_name, finalize=False, is_part=True),
                )
                rewritten = done.added
            target.finalize(self.request.events.graph_built)
            loaded = LoadedInput(input=self.input_name, digest=scanned.digest)
            finish_load(target, scanned, [loaded], target.count())
            for part in range(plan.parts):
                target.remove_checkpoint(part_input(plan, part))
            sync_aliases(target, self.encoder)
        return rewritten

    def _join(self, scanned: ScanResult, plan: Plan) -> int:
        """Join the parts beside the store, and move the collection into it when it is complete."""
        joined, target = self.work.joined / self.name, Path(self.store.location) / self.name
        is_moved = self.name in self.store.collections() and not joined.exists()
        if not (self.work.read_done(JOINED) and (joined.exists() or is_moved)):
            shutil.rmtree(self.work.joined, ignore_errors=True)
            self._join_in(EdgeStore(self.work.joined), joined, scanned, plan)
            self.work.write_joined()
            is_moved = False
        if not is_moved:  # else a driver was killed just after it had moved it
            self._move(joined, target)
        with closing(self.store.open(self.name)) as collection, collection.editing():
            sync_aliases(collection, self.encoder)
        return 0

    def _move(self, joined: Path, target: Path) -> None:
        if self.name in self.store.collections():
            if not self.request.restart:  # somebody made one meanwhile
                raise CollectionExistsError(self.name)
            self.store.delete(self.name, keep_ledger=True)
        try:
            joined.rename(target)
            sync_folder(target.parent)
        except OSError as error:
            raise StoreError(
                f"Collection '{self.name}' is complete in {joined}, but cannot be moved to {target}: {error}. Correct "
                f"this and run the same command again."
            ) from error

    def _join_in(self, store: EdgeStore, folder: Path, scanned: ScanResult, plan: Plan) -> None:
        with closing(store):
            store.create(self.manifest).close()
            parts = [self.work.parts / part_name(part) for part in range(plan.parts)]
            join_parts(folder, [path for path in parts if path.is_dir()], self.name)
            with closing(store.open(self.name)) as collection, collection.editing():
                points = collection.count()
                if points != scanned.names:
                    raise StoreError(
                        f"The parts hold {points:,} points of {scanned.names:,} names: files of the work folder "
                        f"{self.work.path} were lost or changed. Delete it and run the same command again."
                    )
                if not collection.status().is_finalized:
                    collection.finalize(self.request.events.graph_built)
                loaded = LoadedInput(input=self.input_name, digest=scanned.digest)
                finish_load(collection, scanned, [loaded], points)
