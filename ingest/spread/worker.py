"""What a worker does: one part of a base, from its buckets to a finished embedded collection, or to a server.

Nothing here knows Ray. A part is loaded as any base is (`ingest.load.pipeline`), so that a worker that takes the place
of a killed one writes what lacks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ingest.base.scan import scan
from ingest.io.report import ReadReport
from ingest.load.events import LoadEvents
from ingest.load.pipeline import ingest
from ingest.load.results import LoadResult
from ingest.spread.cutting import BucketReader, buckets_of
from ingest.spread.work import PartResult, Plan, Work
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import StoreError, StoreLockedError
from pearl_qdrant.settings import ServerAccess, is_url
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.open import open_store
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import Manifest

_LOCK_S = 60.0
"""How long a worker waits for the lock of a part: the worker before it may be ending."""

_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Job:
    """What every worker knows.

    Attributes:
        work: The work folder, which all machines see at this path.
        plan: As it is in the work folder.
        manifest: Of the whole collection.
        model: Name or folder of the model, or an encoder for workers in this process.
        device, pooling, prefix: As in `load_encoder`.
        access: Key and certificates of a server; never written to a file.
        wait_s: How long to wait for a server that does not answer.
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
        """Load the encoder.

        Args:
            job: What to build.
            threads: Batches that the encoder runs at once; None: one a core.

        Raises:
            StoreError: If this machine does not see the work folder.
            ModelError: If the model cannot be loaded.
            ModelMismatchError: If it is another model than that of the plan.
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
        """Build a part; one that is built already is left as it is.

        Raises:
            InputError: If its buckets cannot be read.
            StoreError: If it cannot be written.
        """
        done = self._work.read_done(part)
        if done is not None:
            return done
        job = self._job
        with BucketReader(self._work.cut, buckets_of(part, job.plan.parts)) as reader:
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
                        input_name=part_input(job.plan, part),
                        finalize=not is_url(job.plan.location),
                        is_part=True,
                        events=events,
                    )
        return self._finish(part, result)

    def _finish(self, part: int, result: LoadResult | None) -> PartResult:
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
        """Open or create the collection of a part."""
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
