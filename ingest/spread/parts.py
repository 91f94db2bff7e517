"""A load in parts: the base is cut, each part is built apart, by a `Runner`, and the parts are joined.

    scan and cut    one pass over the input: all runs of an entity go, by its hash, into one of 256 files of JSON Lines;
                    a part of the base is every n-th file
    build           each part by a worker: read, encode, write, graph, as any base is loaded; so a worker that takes the
                    place of a killed one writes what lacks
    join            embedded: the segments of the parts become those of one collection (`store/edge/store.py`);
                    on a server the points are there already, and the server builds the graph

The collection appears whole, when all of it is done; on a server it is there from the start, and is marked as loading.
All workers share a folder. What is in it is kept until the collection is complete, so that the same command goes on
after any kill:

    WORK/.lock            locked while a driver works
    WORK/plan.json        what is built; written when the cut is complete
    WORK/cut/             the files of the cut base
    WORK/parts/           an embedded store with a collection a part; empty for a server
    WORK/done/PART.json   the counts of a part that is built
    WORK/joined/          an embedded store with the collection that is joined of the parts
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from ingest.base.reader import Reader, ScanResult, entity_from_json, entity_to_json, name_hash, scan
from ingest.base.type_map import TypeMap
from ingest.io.report import ReadReport
from ingest.io.streams import as_input_error
from ingest.load.pipeline import Loading, finish_load, ingest, is_unchanged, plain_result
from ingest.load.request import LoadEvents, LoadRequest, LoadResult
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import CollectionExistsError, InputError, OptionError, StoreError
from pearl_qdrant.linking.learned.learning import sync_aliases
from pearl_qdrant.records import Entity
from pearl_qdrant.settings import ServerAccess, default_store, is_url
from pearl_qdrant.store.edge.folder import CollectionLock, while_locked
from pearl_qdrant.store.edge.store import EdgeStore, join_parts
from pearl_qdrant.store.open import open_store
from pearl_qdrant.store.protocol import Collection, Placement, Store
from pearl_qdrant.store.schema import LoadedInput, Manifest
from pearl_qdrant.store.system import read_at_most, sync_folder, write_atomically

_T = TypeVar("_T")


class Plan(msgspec.Struct, frozen=True):
    """What is built: a command with another plan starts over. `digest` is that of the base, `input` its paths, `model`
    the hash of the weights, width, pooling and prefix.
    """

    digest: str
    input: str
    parts: int
    location: str
    collection: str
    kb: str
    model: str
    quantization: str


class PartResult(msgspec.Struct, frozen=True):
    """The counts of a part that is built, and where the encoder ran."""

    part: int
    entities: int = 0
    names: int = 0
    encode_seconds: float = 0.0
    graph_seconds: float = 0.0
    device: str = ""


JOINED = -1


class Work:
    """A work folder; `joined` may lie elsewhere, on the disk of the store."""

    def __init__(self, path: Path, joined: Path | None = None) -> None:
        self.path = path
        self.cut, self.parts, self.joined = path / "cut", path / "parts", joined or path / "joined"
        self._done = path / "done"

    def read_plan(self) -> Plan | None:
        """The plan; None if the base was not cut completely."""
        return _read(self.path / "plan.json", Plan)

    def write_plan(self, plan: Plan) -> None:
        _write(self.path / "plan.json", plan)

    def read_done(self, part: int) -> PartResult | None:
        """The counts of a part; None if it is not built. `JOINED` stands for the joined collection, wherever it is."""
        return _read(self._done / f"{part:04d}.json", PartResult)

    def write_done(self, result: PartResult) -> None:
        _write(self._done / f"{result.part:04d}.json", result)

    def write_joined(self) -> None:
        self.write_done(PartResult(JOINED))

    def clear(self) -> None:
        """Remove all but the lock; the plan first, so that a kill leaves no plan without its files."""
        (self.path / "plan.json").unlink(missing_ok=True)
        for folder in (self.cut, self.parts, self.joined, self._done):
            shutil.rmtree(folder, ignore_errors=True)


def _write(path: Path, record: msgspec.Struct) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.encode(record).decode())
    except OSError as error:
        message = f"The work folder {path.parent} cannot be written: {error}. Choose another one, or free some space."
        raise StoreError(message, option="work") from error


def _read(path: Path, kind: type[_T]) -> _T | None:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(read_at_most(file, 1 << 20), type=kind)
    except (OSError, ValueError, RecursionError):
        return None


_LOCK_S = 60.0  # How long a worker waits for the lock of a part: the worker before it may be ending


@dataclass(frozen=True, slots=True)
class Job:
    """What every worker knows: the work folder, which all machines see at this path, a model's name (or an encoder for
    workers in this process), and key and certificates of a server, which are never written to a file.
    """

    work: str
    plan: Plan
    manifest: Manifest
    model: str | Encoder
    device: str
    pooling: str | None
    prefix: str | None
    access: ServerAccess | None
    wait_s: float


class PartBuilder:
    """Builds parts, one after the other, with one encoder."""

    def __init__(self, job: Job, *, threads: int | None = None) -> None:
        """Load the encoder, which runs `threads` batches at once; None: one a core. Raises StoreError if this machine
        does not see the work folder; ModelError if the model cannot be loaded, or is another one than the plan's.
        """
        self._job = job
        self._work = Work(Path(job.work))
        if self._work.read_plan() != job.plan:
            raise StoreError(
                f"A worker does not see the work folder {job.work}: choose one on a folder that all machines of the "
                f"cluster share at the same path.",
                option="work",
            )
        model = job.model
        if isinstance(model, str):
            model = load_encoder(model, device=job.device, pooling=job.pooling, prefix=job.prefix, threads=threads)
        job.manifest.check_model(model.info)
        self._encoder = model

    def build(self, part: int, events: LoadEvents | None = None) -> PartResult:
        """Build a part, if it is not built. Raises InputError if its files cannot be read; StoreError on writing."""
        if (done := self._work.read_done(part)) is not None:
            return done
        job = self._job
        with CutReader(self._work.cut, range(part, CUT_FILES, job.plan.parts)) as reader:
            scanned = scan(reader, ReadReport(max_errors=None))
            done = PartResult(part, device=self._encoder.info.device)
            if scanned.names:  # by chance a part of a small base has no entity
                with self._opened(part) as target, target.editing():
                    result = ingest(
                        reader,
                        scanned,
                        self._encoder,
                        target,
                        max_errors=None,
                        loading=Loading(
                            part_input(job.plan, part), finalize=not is_url(job.plan.location), is_part=True
                        ),
                        events=events,
                    )
                    seconds = result.encode_seconds, result.graph_seconds
                    done = PartResult(part, result.entities, result.names, *seconds, result.device)
        self._work.write_done(done)
        return done

    @contextmanager
    def _opened(self, part: int) -> Iterator[Collection]:
        """The collection of a part; on a server the one collection of all parts."""
        job = self._job
        if is_url(job.plan.location):
            server = open_store(job.plan.location, access=job.access, wait_s=job.wait_s)
            with closing(server), closing(server.open(job.plan.collection)) as target:
                yield target
            return
        name = part_name(part)
        with closing(EdgeStore(self._work.parts)) as store:

            def open_part() -> Collection:
                if name in store.collections():  # looked at each time: the worker before may just have made it
                    return store.open(name)
                return store.create(job.manifest.model_copy(update={"collection": name}))

            with closing(while_locked(open_part, _LOCK_S)) as target:
                yield target


def part_name(part: int) -> str:
    """The collection of a part in the embedded store of the work folder."""
    return f"{part:04d}"


def part_input(plan: Plan, part: int) -> str:
    """How a part is called among the inputs of its collection."""
    return f"{plan.input} (part {part + 1} of {plan.parts})"


CUT_FILES = 256  # Files of a cut, and the most parts that a base can have; a part is every n-th of them


def cut_file_of(entity_id: str) -> int:
    """The number of the file of an entity, below `CUT_FILES`: the same everywhere, so that a cut can be resumed."""
    return name_hash(entity_id) % CUT_FILES


class CutReader(Reader):
    """Some files of a cut as a base of their own."""

    def __init__(self, folder: Path, files: range) -> None:
        super().__init__(type_map=TypeMap({}, version=""), limit=None)  # the entities have their types
        self._folder = folder
        self._files = files

    def read_runs(self, report: ReadReport) -> Iterator[Entity]:
        return self.read_rows(report)

    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        for path in (_path(self._folder, number) for number in self._files):
            try:
                with path.open(encoding="ascii") as lines:
                    for line in lines:
                        report.rows += 1
                        yield entity_from_json(line)
            except (OSError, ValueError) as error:
                raise InputError(str(path), None, f"a part of the base cannot be read: {error}") from error


def cut_and_scan(reader: Reader, report: ReadReport, folder: Path) -> ScanResult:
    """Read a base once: count it as `scan` does, and write its files into a folder. Raises InputError."""
    advice = "Free some space, or choose a work folder on a larger disk"
    message = f"parts of the base cannot be written: {{}}. {advice}"
    with as_input_error(str(folder), message, option="work"), ExitStack() as held:
        folder.mkdir(parents=True, exist_ok=True)
        files = [held.enter_context(_path(folder, number).open("w", encoding="ascii")) for number in range(CUT_FILES)]

        def write(run: Entity) -> None:
            files[cut_file_of(run.entity_id)].write(entity_to_json(run) + "\n")

        return scan(reader, report, on_run=write)


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:03d}.jsonl"


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


def count_parts(names: int, workers: int) -> int:
    """How many parts a base is cut into: a multiple of the workers, unless it is small."""
    rounds = -(-names // (NAMES_PER_PART * workers))
    return max(1, min(CUT_FILES, rounds * workers, names // LEAST_NAMES))


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
    """A load over several workers; `encoder` is for what is left when they are done, `check` refuses an empty base."""

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
            return replace(self._result(scanned), unchanged=scanned.names)
        start = time.perf_counter()
        before, results = self._build(scanned, plan)
        load_seconds, start = time.perf_counter() - start, time.perf_counter()
        rewritten = (self._complete_server if self.is_remote else self._join)(scanned, plan)
        self.work.clear()
        graph_seconds = time.perf_counter() - start
        return replace(
            self._result(scanned),
            load_seconds=load_seconds,
            encode_seconds=sum(one.encode_seconds for one in results),
            graph_seconds=graph_seconds,
            device=next((one.device for one in results), self.encoder.info.device),
            added=scanned.names,
            resumed_at=before,
            rewritten=rewritten,
        )

    def _result(self, scanned: ScanResult) -> LoadResult:
        with closing(self.store.open(self.name, read_only=True)) as target:
            return plain_result(target, scanned, self.encoder.info)

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
            message = (
                f"Collection '{self.name}' exists and holds something else; a load in parts makes a new collection."
            )
            raise OptionError("parts", message)

    def _build(self, scanned: ScanResult, plan: Plan) -> tuple[int, list[PartResult]]:
        """Build what is left of the parts; the entities of those that were built before, and the counts of all."""
        results = [done for part in range(plan.parts) if (done := self.work.read_done(part)) is not None]
        left = sorted({*range(plan.parts)} - {one.part for one in results})
        before = stored = sum(one.entities for one in results)
        if stored:
            self.request.events.resumed(stored)
            self.request.events.entities_stored(stored)
        self.request.events.started(scanned.names)
        self.request.events.names_stored(sum(one.names for one in results))
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

    def _finish(self, target: Collection, scanned: ScanResult) -> None:
        loaded = LoadedInput(input=self.input_name, digest=scanned.digest)
        finish_load(target, scanned, [loaded], target.count())

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
            self._finish(target, scanned)
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
                self._finish(collection, scanned)
