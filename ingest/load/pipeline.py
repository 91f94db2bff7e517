"""The load: read | encode | write, overlapped, bounded, and able to go on after a kill.

Three threads, joined by queues of `QUEUE` windows: one reads entities, one encodes a window of names, one turns
the last window into points and writes it. The time goes into the encoder; the rest hides behind it. Several inputs of
one base can be loaded at once by as many processes into a collection on a server: each has a checkpoint of its own,
and the last one to finish builds the graph.

Each distinct name is encoded once: a scan before the load knows which names come again, and their vectors are
kept until then (`ingest.load.embedding_cache`). After each `CHECKPOINT_EVERY` names the store is flushed, and how far
the input is stored is put into the manifest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ingest.base.reader import Reader
from ingest.base.scan import ScanResult
from ingest.io.report import ReadReport
from ingest.load.embedding_cache import RepeatedNames
from ingest.load.new_names import WINDOW, write_missing
from ingest.load.prefetch import overlap
from pearl_qdrant.encoder.protocol import Encoded, Encoder
from pearl_qdrant.errors import StoreError
from pearl_qdrant.lexical.idf import IdfTable
from pearl_qdrant.records import Entity
from pearl_qdrant.store.points import name_points, names_of
from pearl_qdrant.store.protocol import Collection, Writer
from pearl_qdrant.store.schema import Checkpoint

QUEUE = 2
"""Windows that may wait between two stages."""

CHECKPOINT_EVERY = 65_536
"""Names between two checkpoints; a flush costs a fraction of a second."""

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What a load did.

    Attributes:
        collection: Its name.
        entities, names, distinct_names: Of the input.
        points: Points in the collection afterwards, counted exactly.
        unencodable: Names kept without a dense vector.
        resumed_at: Entities that an earlier, interrupted load had stored already.
        rewritten: Names that had been stored and were gone (deleted since, or lost by a server): written again.
        unfinished: Other inputs whose load is not finished; the graph is left to the last of them.
        skipped: Rows passed over, by reason: bad ones, and those that the options leave out.
        seconds: Reading, encoding and writing together; the graph apart.
        encode_seconds: Within the encoder.
        index_seconds: Building the graph.
        model, device: What encoded.
    """

    collection: str
    entities: int
    names: int
    distinct_names: int
    points: int
    unencodable: int
    resumed_at: int
    rewritten: int
    unfinished: tuple[str, ...]
    skipped: dict[str, int]
    seconds: float
    encode_seconds: float
    index_seconds: float
    model: str
    device: str

    @property
    def names_per_second(self) -> float:
        """Names of this run over `seconds`."""
        return self.names / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """The fields of the command line's contract, and then ours."""
        skipped = dict(self.skipped)
        if self.unencodable:
            skipped["unencodable"] = self.unencodable
        return {
            "collection": self.collection,
            "entities": self.entities,
            "names": self.names,
            "distinct_names": self.distinct_names,
            "points": self.points,
            "skipped": skipped,
            "seconds": round(self.seconds, 3),
            "encode_seconds": round(self.encode_seconds, 3),
            "index_seconds": round(self.index_seconds, 3),
            "names_per_second": round(self.names_per_second, 1),
            "model": self.model,
            "device": self.device,
            "resumed_at": self.resumed_at,
            "rewritten": self.rewritten,
            "unfinished": list(self.unfinished),
        }


@dataclass(slots=True)
class _Window:
    """Some entities on their way, and the vectors of their names once they are known."""

    entities: list[Entity]
    names: list[str]
    encoded: Encoded | None = None


@dataclass(slots=True)
class _Load:
    """The three stages of one load, and what they count."""

    reader: Reader
    scan: ScanResult
    encoder: Encoder
    collection: Collection
    input: str
    report: ReadReport
    progress: Progress
    on_checkpoint: Progress
    skip_entities: int
    encode_seconds: float = 0.0
    unencodable: int = 0
    repeats: RepeatedNames = field(init=False)

    def __post_init__(self) -> None:
        self.repeats = RepeatedNames(self.encoder, self.scan.repeated_name_hashes)

    def read(self) -> Iterator[_Window]:
        """Windows of whole entities, at least `WINDOW` names each but the last."""
        entities = self.reader.read(self.report, scattered=self.scan.scattered)
        for _ in islice(entities, self.skip_entities):
            pass
        window = _Window([], [])
        for entity in entities:
            window.entities.append(entity)
            window.names.extend(entity.names())
            if len(window.names) >= WINDOW:
                yield window
                window = _Window([], [])
        if window.entities:
            yield window

    def encode(self, windows: Iterable[_Window]) -> Iterator[_Window]:
        for window in windows:
            start = time.perf_counter()
            window.encoded = self.repeats.encode(window.names)
            self.encode_seconds += time.perf_counter() - start
            yield window

    def write(self, windows: Iterable[_Window], writer: Writer) -> None:
        """Write each window; flush and note the place now and then."""
        kb, done, since = self.collection.manifest.kb, self.skip_entities, 0
        for window in windows:
            encoded = window.encoded
            if encoded is None:
                raise RuntimeError("a window reached the writer before the encoder")
            points = name_points(kb, names_of(window.entities), encoded)
            writer.write(points, encoded.vectors, encoded.encodable)
            self.unencodable += len(points) - int(encoded.encodable.sum())
            done += len(window.entities)
            since += len(points)
            self.progress(len(points))
            if since >= CHECKPOINT_EVERY:
                writer.flush()
                self._note(done)
                since = 0

    def _note(self, entities: int) -> None:
        checkpoint = Checkpoint(input=self.input, digest=self.scan.digest, entities=entities)
        self.collection.write_checkpoint(checkpoint)
        self.on_checkpoint(entities)


def ingest(
    reader: Reader,
    scan: ScanResult,
    encoder: Encoder,
    collection: Collection,
    *,
    max_errors: int | None,
    input_name: str = "input",
    on_progress: Progress = lambda names: None,
    on_checkpoint: Progress = lambda entities: None,
    on_finalize: Callable[[int, int], None] | None = None,
    finalize: bool = True,
) -> IngestResult:
    """Load a scanned base into a collection, and build its graph.

    If the collection's manifest tells of an interrupted load of the same input, it goes on where that one stopped.
    While it tells of an unfinished load of another input, the graph is not built.

    Args:
        reader: The base.
        scan: Of the same reader.
        encoder: The model that the manifest names.
        collection: Open, empty or not; writing a name twice changes nothing.
        max_errors: As in `ReadReport`.
        input_name: What tells this input from others that are loaded into the collection, as its paths do.
        on_progress: Called with the number of names just written.
        on_checkpoint: Called with the number of entities that are stored for good, once some are.
        on_finalize: As in `Collection.finalize`.
        finalize: Whether to build the graph; search is exact without.

    Raises:
        InputError: If the input cannot be read, or has too many bad rows.
        StoreError: If the store fails for good, or does not hold what was written.
    """
    before = collection.read_manifest()
    before.check_model(encoder.info)
    known = next((one for one in before.checkpoints if (one.input, one.digest) == (input_name, scan.digest)), None)
    resumed_at = known.entities if known else 0
    # If nothing else was ever loaded into it, it must hold just these names afterwards.
    is_alone = not before.names and all(one.input == input_name for one in before.checkpoints)
    is_exact = is_alone and (known is not None or not collection.count())
    collection.write_manifest(before.model_copy(update={"state": "loading"}))
    collection.write_checkpoint(Checkpoint(input=input_name, digest=scan.digest, entities=resumed_at))

    if resumed_at:
        on_checkpoint(resumed_at)
    start = time.perf_counter()
    report = ReadReport(max_errors=max_errors)
    load = _Load(reader, scan, encoder, collection, input_name, report, on_progress, on_checkpoint, resumed_at)
    with collection.writer() as writer, closing(overlap(load.encode(overlap(load.read(), QUEUE)), QUEUE)) as windows:
        load.write(windows, writer)
        writer.flush()
    seconds = time.perf_counter() - start
    load.repeats.forget()

    done = Checkpoint(input=input_name, digest=scan.digest, entities=scan.entities, is_done=True)
    collection.write_checkpoint(done)
    on_checkpoint(scan.entities)
    # It stays while others are not done: of several processes that come here at once, one sees that all are.
    checkpoints = collection.read_manifest().checkpoints
    unfinished = tuple(one.input for one in checkpoints if not one.is_done)
    points = collection.count()
    rewritten = 0
    if points < scan.names or (is_exact and len(checkpoints) == 1 and points != scan.names):
        # Edited since, or lost by a server. Too many points are no error: they were added by hand.
        entities = reader.read(ReadReport(max_errors=max_errors), scattered=scan.scattered)
        rewritten = write_missing(entities, collection, encoder)
        points = _check_count(collection, scan)
    index_seconds = 0.0
    if not unfinished:
        if finalize:
            start = time.perf_counter()
            collection.finalize(on_finalize)
            index_seconds = time.perf_counter() - start
        for one in checkpoints:
            collection.remove_checkpoint(one.input)
        counts = {"entities": scan.entities if points == scan.names else collection.count_entities(), "names": points}
        idf = IdfTable.from_names(point.name for point in collection.scroll()).to_text()
        changed = {"state": "ready", "ngram_rarity": idf, **counts}
        collection.write_manifest(collection.read_manifest().model_copy(update=changed))
    return IngestResult(
        collection=collection.name,
        entities=scan.entities,
        names=scan.names,
        distinct_names=scan.distinct_names,
        points=points,
        unencodable=load.unencodable,
        resumed_at=resumed_at,
        rewritten=rewritten,
        unfinished=unfinished,
        skipped=load.report.passed_over,
        seconds=seconds,
        encode_seconds=load.encode_seconds,
        index_seconds=index_seconds,
        model=encoder.info.name,
        device=encoder.info.device,
    )


def _check_count(collection: Collection, scan: ScanResult) -> int:
    """The exact number of points, after all that was missing has been written."""
    points = collection.count()
    if points < scan.names:
        raise StoreError(
            f"Collection '{collection.name}' holds {points:,} points after a load of {scan.names:,} names, although "
            f"what was missing was written again: the store loses points, or the input changed while it was read. Run "
            f"the same command again; if that changes nothing, load into an empty collection with --restart."
        )
    return points
