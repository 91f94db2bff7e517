"""The load: read, encode and write at the same time, with bounded memory; it resumes after a kill.

Three threads work at once, joined by queues of `QUEUE` windows: one reads entities, one encodes a window of names, one
turns the last window into points and writes it. Almost all time is spent in the encoder. On a server, several
processes can load several inputs of one base into one collection: each has its own checkpoint, and the last one to
finish builds the graph.

Each distinct name is encoded once: a scan before the load finds the names that repeat, and their vectors are kept
(`ingest.load.embedding_cache`). After each `CHECKPOINT_EVERY` names or `CHECKPOINT_S` seconds the store is flushed, and
the manifest notes how much of the input is stored. A window takes about a second in the encoder
(`ingest.load.windows`), so that a load can be stopped within one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice

from ingest.base.reader import Reader
from ingest.base.scan import ScanResult
from ingest.io.report import ReadReport
from ingest.load.embedding_cache import RepeatedNames
from ingest.load.new_names import WINDOW, count_stored, write_missing
from ingest.load.prefetch import overlap
from ingest.load.results import IngestResult
from ingest.load.windows import WindowSize
from pearl_qdrant.encoder.protocol import Encoded, Encoder, FloatArray
from pearl_qdrant.errors import StoreError
from pearl_qdrant.lexical.idf import IdfTable
from pearl_qdrant.records import Entity
from pearl_qdrant.store.points import encode_descriptions, name_points, names_of
from pearl_qdrant.store.protocol import Collection, Writer
from pearl_qdrant.store.schema import Checkpoint, LoadedInput

QUEUE = 2
"""Windows that can wait between two stages."""

CHECKPOINT_EVERY = 65_536
"""Names between two checkpoints, at most; a flush costs a fraction of a second."""

CHECKPOINT_S = 10.0
"""Seconds between two checkpoints, at most, and the window that is being written: what a stopped load loses."""

Progress = Callable[[int], None]


@dataclass(slots=True)
class _Window:
    """Some entities, and the vectors of their names and descriptions once they are encoded."""

    entities: list[Entity]
    names: list[str]
    encoded: Encoded | None = None
    descriptions: FloatArray | None = None


@dataclass(slots=True)
class _Load:
    """The three stages of one load, and their counts."""

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
    is_stopped: bool = False
    repeats: RepeatedNames = field(init=False)
    size: WindowSize = field(init=False)

    def __post_init__(self) -> None:
        self.size = WindowSize(WINDOW)
        self.repeats = RepeatedNames(self.encoder, self.scan.repeated_name_hashes)

    def read(self) -> Iterator[_Window]:
        """Windows of whole entities; each but the last has at least `size.names` names."""
        entities = self.reader.read(self.report, scattered=self.scan.scattered)
        for _ in islice(entities, self.skip_entities):
            if self.is_stopped:
                return
        window = _Window([], [])
        for entity in entities:
            window.entities.append(entity)
            window.names.extend(entity.names())
            if len(window.names) >= self.size.names:
                yield window
                window = _Window([], [])
        if window.entities:
            yield window

    def encode(self, windows: Iterable[_Window]) -> Iterator[_Window]:
        wanted = self.collection.manifest.has_descriptions
        for window in windows:
            start = time.perf_counter()
            window.encoded = self.repeats.encode(window.names)
            window.descriptions = encode_descriptions(names_of(window.entities), self.encoder, wanted=wanted)
            seconds = time.perf_counter() - start
            self.encode_seconds += seconds
            self.size.adapt(len(window.names), seconds)
            yield window

    def write(self, windows: Iterable[_Window], writer: Writer) -> None:
        """Write each window; flush and write a checkpoint now and then."""
        kb, done, since = self.collection.manifest.kb, self.skip_entities, 0
        last = time.perf_counter()
        for window in windows:
            encoded = window.encoded
            if encoded is None:
                raise RuntimeError("a window reached the writer before the encoder")
            points = name_points(kb, names_of(window.entities), encoded)
            writer.write(points, encoded.vectors, encoded.encodable, descriptions=window.descriptions)
            done += len(window.entities)
            since += len(points)
            self.progress(len(points))
            if since >= CHECKPOINT_EVERY or time.perf_counter() - last >= CHECKPOINT_S:
                writer.flush()
                self._write_checkpoint(done)
                since, last = 0, time.perf_counter()

    def _write_checkpoint(self, entities: int) -> None:
        checkpoint = Checkpoint(input=self.input, digest=self.scan.digest, entities=entities)
        self.collection.write_checkpoint(checkpoint)
        self.on_checkpoint(entities)

    def run(self) -> None:
        """Read, encode and write all; the checkpoint then says that this input is done."""
        with (
            self.collection.writer() as writer,
            closing(overlap(self.encode(overlap(self.read(), QUEUE)), QUEUE)) as windows,
        ):
            try:
                self.write(windows, writer)
                writer.flush()
            finally:
                self.is_stopped = True  # before the stages are closed, which waits for them
        self.repeats.forget()
        # The checkpoint stays while others are not done: of several processes that come here at once, at least one
        # sees that all are done, and builds the graph.
        done = Checkpoint(input=self.input, digest=self.scan.digest, entities=self.scan.entities, is_done=True)
        self.collection.write_checkpoint(done)


def ingest(  # long: all arguments of a load are documented here
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
    is_part: bool = False,
) -> IngestResult:
    """Load a scanned base into a collection, and build its graph.

    If the manifest has a checkpoint of an interrupted load of the same input, the load resumes there, or after the
    names that were stored since. While the manifest has an unfinished load of another input, the graph is not built.

    Args:
        reader: The base.
        scan: The scan of the same reader.
        encoder: The model that the manifest names.
        collection: Open, empty or not; writing a name twice changes nothing.
        max_errors: As in `ReadReport`.
        input_name: Identifies this input among those that are loaded into the collection; its paths, for example.
        on_progress: Called with the number of names just written.
        on_checkpoint: Called with the number of entities that are stored durably.
        on_finalize: As in `Collection.finalize`.
        finalize: Whether to build the graph; search is exact without it.
        is_part: Whether the caller completes the load with `finish_load`, when all parts of the base are stored.

    Raises:
        InputError: If the input cannot be read, or has too many bad rows.
        StoreError: If the store fails after all retries, or does not hold what was written.
    """
    resumed_at, is_resumed, is_exact = _start(collection, encoder, scan, input_name)
    if is_resumed:  # names were stored after the checkpoint
        entities = reader.read(ReadReport(max_errors=max_errors), scattered=scan.scattered)
        resumed_at += count_stored(islice(entities, resumed_at, None), collection)
    if resumed_at:
        on_checkpoint(resumed_at)
    start = time.perf_counter()
    report = ReadReport(max_errors=max_errors)
    load = _Load(reader, scan, encoder, collection, input_name, report, on_progress, on_checkpoint, resumed_at)
    load.run()
    load_seconds = time.perf_counter() - start
    on_checkpoint(scan.entities)
    checkpoints = collection.read_manifest().checkpoints
    unfinished = tuple(one.input for one in checkpoints if not one.is_done)
    is_exact = is_exact and len(checkpoints) == 1
    points, rewritten = write_lost(reader, scan, encoder, collection, max_errors=max_errors, is_exact=is_exact)
    graph_seconds = 0.0
    if not unfinished:
        graph_seconds = _finalize(collection, on_finalize) if finalize else 0.0
        if not is_part:
            finish_load(collection, scan, checkpoints, points)
    return IngestResult(
        collection=collection.name,
        report=scan.report,
        points=points,
        without_vector=points - collection.status().vectors,
        load_seconds=load_seconds,
        encode_seconds=load.encode_seconds,
        graph_seconds=graph_seconds,
        model=encoder.info.name,
        device=encoder.info.device,
        distinct_names=scan.distinct_names,
        resumed_at=resumed_at,
        rewritten=rewritten,
        unfinished=unfinished,
    )


def _start(collection: Collection, encoder: Encoder, scan: ScanResult, input_name: str) -> tuple[int, bool, bool]:
    """Mark the collection as loading.

    Returns:
        Entities that are already stored, by the checkpoint, or all of a release that was loaded before; whether there
        was a checkpoint, of a load that did not finish; and whether the collection must hold exactly the names of this
        input afterwards: nothing else was ever loaded, or it was complete.
    """
    before = collection.read_manifest()
    before.check_model(encoder.info)
    known = next((one for one in before.checkpoints if (one.input, one.digest) == (input_name, scan.digest)), None)
    resumed_at = known.entities if known else 0
    is_alone = not before.names and all(one.input == input_name for one in before.checkpoints)
    is_exact = is_alone and (known is not None or not collection.count())
    is_whole = before.state == "ready" and not before.checkpoints
    if is_whole and any(one.digest == scan.digest for one in before.loaded):
        resumed_at, is_exact = scan.entities, True  # the same release: what the store has lost since is looked for
    collection.write_manifest(before.model_copy(update={"state": "loading"}))
    collection.write_checkpoint(Checkpoint(input=input_name, digest=scan.digest, entities=resumed_at))
    return resumed_at, known is not None, is_exact


def write_lost(
    reader: Reader,
    scan: ScanResult,
    encoder: Encoder,
    collection: Collection,
    *,
    max_errors: int | None,
    is_exact: bool,
) -> tuple[int, int]:
    """Write the names that have disappeared since they were stored; returns all points, and the names written."""
    points = collection.count()
    # Too many points are no error, unless the collection must hold just these names: some were added by hand.
    if points >= scan.names and not (is_exact and points != scan.names):
        return points, 0
    entities = reader.read(ReadReport(max_errors=max_errors), scattered=scan.scattered)
    rewritten = write_missing(entities, collection, encoder)
    return _check_count(collection, scan), rewritten


def _finalize(collection: Collection, on_finalize: Callable[[int, int], None] | None) -> float:
    """Build the graph; returns the seconds."""
    start = time.perf_counter()
    collection.finalize(on_finalize)
    return time.perf_counter() - start


def finish_load(collection: Collection, scan: ScanResult, checkpoints: Sequence[Checkpoint], points: int) -> None:
    """Write the inputs, the counts and the IDF table to the manifest, and remove the checkpoints.

    In a folder that is one write. On a server the checkpoints go last: a load that dies before is repeated from them.
    """
    counts = {"entities": scan.entities if points == scan.names else collection.count_entities(), "names": points}
    idf = IdfTable.from_names(point.name for point in collection.scroll()).to_text()
    before = collection.read_manifest()
    new = {one.input: LoadedInput(input=one.input, digest=one.digest) for one in checkpoints}
    loaded = (*(one for one in before.loaded if one.input not in new), *new.values())
    others = tuple(one for one in before.checkpoints if one.input not in new)
    changed = {"state": "ready", "ngram_rarity": idf, "loaded": loaded, "checkpoints": others, **counts}
    # Entities that were added by hand are still there.
    changed["edited"] = before.edited and points != scan.names
    collection.write_manifest(before.model_copy(update=changed))
    for one in checkpoints:
        collection.remove_checkpoint(one.input)


def _check_count(collection: Collection, scan: ScanResult) -> int:
    """The exact number of points, after all missing names were written.

    Raises:
        StoreError: If names are still missing.
    """
    points = collection.count()
    if points < scan.names:
        raise StoreError(
            f"Collection '{collection.name}' holds {points:,} points after a load of {scan.names:,} names, although "
            f"the missing ones were written again: the store loses points, or the input changed while it was read. Run "
            f"the same command again; if that changes nothing, load into an empty collection.",
            option="restart",
        )
    return points
