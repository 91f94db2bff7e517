"""A worker of a load in parts, the folder that all workers share, and the cut of a base.

    WORK/.lock            locked while a driver works
    WORK/plan.json        what is built; written when the cut is complete
    WORK/cut/             the files of the cut base
    WORK/parts/           an embedded store with a collection a part; empty for a server
    WORK/done/PART.json   the counts of a part that is built
    WORK/joined/          an embedded store with the collection that is joined of the parts

Everything is kept until the collection is complete, so that the same command goes on after any kill. A part is loaded
as any base is (`ingest.load.pipeline`), so that a worker that takes the place of a killed one writes what lacks.

A base is cut by the hash of the entity while it is scanned: all runs of an entity go into one of 256 files of JSON
Lines, in their order. A part of the base is every n-th file.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import msgspec

from ingest.base.merge import entity_from_json, entity_to_json
from ingest.base.reader import Reader, ScanResult, scan
from ingest.base.type_map import TypeMap
from ingest.io.report import ReadReport
from ingest.load.pipeline import Loading, ingest
from ingest.load.request import LoadEvents
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import InputError, StoreError, StoreLockedError
from pearl_qdrant.records import Entity
from pearl_qdrant.settings import ServerAccess, is_url
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.open import open_store
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.store.system import read_at_most, write_atomically

_MAX_BYTES = 1 << 20

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
        raise StoreError(
            f"The work folder {path.parent} cannot be written: {error}. Choose another one, or free some space.",
            option="work",
        ) from error


def _read(path: Path, kind: type[_T]) -> _T | None:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(read_at_most(file, _MAX_BYTES), type=kind)
    except (OSError, ValueError, RecursionError):
        return None


_LOCK_S = 60.0  # How long a worker waits for the lock of a part: the worker before it may be ending

_POLL_S = 0.5


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
        does not see the work folder; ModelError if the model cannot be loaded; ModelMismatchError if it is another
        model than that of the plan.
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
        """Build a part; one that is built already is left as it is. Raises InputError if its files cannot be read;
        StoreError if it cannot be written.
        """
        done = self._work.read_done(part)
        if done is not None:
            return done
        job = self._job
        with CutReader(self._work.cut, range(part, CUT_FILES, job.plan.parts)) as reader:
            scanned = scan(reader, ReadReport(max_errors=None))
            result = None
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
        done = PartResult(part, device=self._encoder.info.device)
        if result is not None:
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
        with closing(EdgeStore(self._work.parts)) as store, closing(self._open_part(store, part)) as target:
            yield target

    def _open_part(self, store: EdgeStore, part: int) -> Collection:
        name = part_name(part)
        deadline = time.monotonic() + _LOCK_S
        while True:
            try:
                if name in store.collections():
                    return store.open(name)
                return store.create(self._job.manifest.model_copy(update={"collection": name}))
            except StoreLockedError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_POLL_S)


def part_name(part: int) -> str:
    """The collection of a part in the embedded store of the work folder."""
    return f"{part:04d}"


def part_input(plan: Plan, part: int) -> str:
    """How a part is called among the inputs of its collection."""
    return f"{plan.input} (part {part + 1} of {plan.parts})"


_ADVICE = "Free some space, or choose a work folder on a larger disk"


CUT_FILES = 256  # Files of a cut, and the most parts that a base can have; a part is every n-th of them


def cut_file_of(entity_id: str) -> int:
    """The number of the file of an entity, below `CUT_FILES`: the same everywhere, so that a cut can be resumed."""
    # Text from JSON can have lone surrogates, which plain UTF-8 refuses; they are checked elsewhere.
    digest = blake2b(entity_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") % CUT_FILES


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


class Cutter(CutReader):
    """A reader that writes what it yields into the files of a cut; raises InputError, too, if that fails."""

    def __init__(self, reader: Reader, folder: Path) -> None:
        super().__init__(folder, range(CUT_FILES))
        self._reader = reader

    def read_runs(self, report: ReadReport) -> Iterator[Entity]:
        with ExitStack() as held:
            with self._as_input_error():
                self._folder.mkdir(parents=True, exist_ok=True)
                paths = [_path(self._folder, number) for number in self._files]
                files = [held.enter_context(path.open("w", encoding="ascii")) for path in paths]
            for run in self._reader.read_runs(report):
                with self._as_input_error():
                    files[cut_file_of(run.entity_id)].write(entity_to_json(run) + "\n")
                yield run
            with self._as_input_error():
                for file in files:
                    file.close()

    @contextmanager
    def _as_input_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            message = f"parts of the base cannot be written: {error.strerror or error}. {_ADVICE}"
            raise InputError(str(self._folder), None, message, option="work") from error


def cut_and_scan(reader: Reader, report: ReadReport, folder: Path) -> ScanResult:
    """Read a base once: count it as `scan` does, and write its files into a folder. Raises InputError."""
    with Cutter(reader, folder) as cutter:
        return scan(reader, report, cutter=cutter)


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:03d}.jsonl"
