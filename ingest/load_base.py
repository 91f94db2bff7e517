"""Load a base from files into a collection in one call, as `pearl-qdrant ingest` does.

`scan_base` only reads and counts, `read_entities` only reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from ingest.base.scan import ScanResult, scan
from ingest.base.type_map import TypeMap
from ingest.formats import FORMATS, ReadOptions, open_reader
from ingest.io.report import ReadReport
from ingest.load.events import LoadEvents
from ingest.load.pipeline import MayRemove
from ingest.load.results import LoadResult
from ingest.load.session import Session
from ingest.spread.driver import Spread, check_parts, work_folder
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import EmptyBaseError, OptionError
from pearl_qdrant.records import Entity
from pearl_qdrant.settings import (
    DEFAULT_DEVICE,
    DEFAULT_MAX_ERRORS,
    DEFAULT_MODEL,
    DEFAULT_QUANTIZATION,
    DEFAULT_WAIT_S,
)
from pearl_qdrant.store.names import check_name
from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.store.protocol import Placement
from pearl_qdrant.store.schema import Manifest, Quantization

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


MayUpdate = Callable[[], bool]
"""Called where a base is a newer release of what is stored; returns whether to update the collection to it."""

_COMPRESSED = ("gz", "bz2", "xz", "zst", "zip")
_ENDINGS = re.compile(rf"\.({'|'.join((*_COMPRESSED, *(e for one in FORMATS for e in one.endings)))})$", re.IGNORECASE)


def scan_base(
    paths: Paths,
    *,
    kind: str = "auto",
    options: ReadOptions | None = None,
    type_map: TypeMap | str | os.PathLike[str] | None = None,
    max_errors: int | None = DEFAULT_MAX_ERRORS,
    events: LoadEvents | None = None,
) -> ScanResult:
    """Read and count a base; needs neither model nor store. Arguments as in `load_base`.

    Raises:
        InputError: If the input cannot be read, or has too many bad rows.
        EmptyBaseError: If no entity is left.
        OptionError: If an option belongs to another format, or its value makes no sense.
    """
    types, listed = type_map if isinstance(type_map, TypeMap) else TypeMap.load(type_map), listed_paths(paths)
    with open_reader(listed, kind, options, type_map=types) as reader:
        return _report_scan(scan(reader, ReadReport(max_errors=max_errors)), listed, events or LoadEvents())


def load_base(  # long: all arguments of a load are documented here
    paths: Paths,
    collection: str | None = None,
    *,
    store: StoreLike = None,
    model: Encoder | str | os.PathLike[str] = DEFAULT_MODEL,
    device: str = DEFAULT_DEVICE,
    pooling: str | None = None,
    prefix: str | None = None,
    kind: str = "auto",
    options: ReadOptions | None = None,
    type_map: TypeMap | str | os.PathLike[str] | None = None,
    max_errors: int | None = DEFAULT_MAX_ERRORS,
    kb: str | None = None,
    kb_version: str | None = None,
    quantization: Quantization | None = None,
    placement: Placement | None = None,
    restart: bool = False,
    update: bool | None = False,
    may_update: MayUpdate = lambda: True,
    may_remove: MayRemove = lambda removed, total: True,
    ray: str | None = None,
    partitions: int | None = None,
    work: str | os.PathLike[str] | None = None,
    wait_s: float = DEFAULT_WAIT_S,
    events: LoadEvents | None = None,
) -> LoadResult:
    """Read a base, encode the names that the collection lacks, and store them.

    So the same call goes on after an interruption, and does nothing if the collection holds this very base already
    (`LoadResult.is_unchanged`).

    Args:
        paths: A file or folder of the base, or several; ``-`` is standard input.
        collection: The collection, which is created if needed. Default: the first file's name without its endings.
        store: A store, a folder or a URL; by default PEARL_QDRANT_STORE, else QDRANT_URL, else the user's data folder.
            Key and certificates of a server come from the environment (`ServerAccess.from_environment`).
        model: An encoder, a shipped name, a folder or a hub id.
        device: auto, cpu, cuda or cuda:N.
        pooling, prefix: For a plain encoder, as in `load_encoder`.
        kind: One of `formats.FORMAT_NAMES`, or "auto".
        options: What to read.
        type_map: From native types to coarse ones: a table, or a file with rows to add to the shipped one.
        max_errors: Bad rows to skip before giving up; None: any number. With the default, more than 1 % of the rows are
            too many, too.
        kb: Short name of the base, part of every point's id. Default: the collection's name.
        kb_version: Release of the base, for the manifest.
        quantization: How a new collection keeps vectors for finding candidates.
        placement: Shards and replicas of a new collection on a server.
        restart: Delete an existing collection first, its calibration included. What it learned stays
            (`EntityLinker.learn`).
        update: True makes an existing collection equal to the base, the whole of a newer release of what it holds: it
            loses the names that the base lacks. False adds the base. None updates if the base shows to be a newer
            release (`session.MOSTLY`) and no `options.limit` is given.
        may_update: Called before an update that None decided for, with no argument; False adds the base instead.
        may_remove: Called with the number of names that the new release lacks and that of all names, before any is
            deleted; False keeps them.
        ray: Build a new collection in parts, each apart with its graph, by the workers of a Ray cluster: "auto" starts
            one on this machine, HOST:PORT is one that runs. They load the model by its name.
        partitions: Parts, from 1 to 256; without `ray`, this process builds one after the other. Default: as many as
            keep a part under two million names, and all workers busy.
        work: Folder for parts until all of them are built; all machines of a cluster see it at the same path. Default:
            in the folder of the store, for a server in the user's data folder.
        wait_s: How long to wait for a server that does not answer, in seconds.
        events: Receives progress.

    Raises:
        InputError: If the input cannot be read, or has too many bad rows.
        EmptyBaseError: If no entity is left.
        OptionError: If an option does not fit the input or the collection.
        ModelError: If the model cannot be loaded.
        ModelMismatchError: If the collection was made by another model.
        CollectionNotFoundError: If there is no collection to update.
        StoreError: If the store fails after all retries. What is stored is kept; the same call goes on.
    """
    name, events = checked_name(collection, paths, store), events or LoadEvents()
    is_limited = options is not None and options.limit is not None
    if update and is_limited:
        raise OptionError("limit", "An update compares with the whole of the new release, so it takes no limit.")
    in_parts, listed = ray is not None or partitions is not None, listed_paths(paths)
    if in_parts and update is not False:
        raise OptionError("update", "A load in parts makes a new collection, and updates none.")
    types = type_map if isinstance(type_map, TypeMap) else TypeMap.load(type_map)

    def check(scanned: ScanResult) -> ScanResult:
        return _report_scan(scanned, listed, events)

    with ExitStack() as held:
        runner = (
            held.enter_context(closing(check_parts(partitions, ray, model, store, placement))) if in_parts else None
        )
        reader = held.enter_context(open_reader(listed, kind, options, type_map=types))
        scanned = None if runner else check(scan(reader, ReadReport(max_errors=max_errors)))
        opened = held.enter_context(use_store(store, wait_s=wait_s))
        folder = held.enter_context(work_folder(work, opened, name)) if runner else None
        loaded = model
        if isinstance(loaded, (str, os.PathLike)):
            loaded = load_encoder(os.fspath(loaded), device=device, pooling=pooling, prefix=prefix)
        events.model_loaded(loaded)
        manifest = Manifest.for_model(
            loaded.info,
            collection=name,
            kb=kb or name,
            kb_version=kb_version,
            quantization=quantization or DEFAULT_QUANTIZATION,
            type_map_version=types.version,
        )
        input_name, placement = " ".join(listed), placement or Placement()
        if runner is not None and folder is not None:
            return Spread(
                reader=reader,
                input_name=input_name,
                encoder=loaded,
                model=os.fspath(model) if isinstance(model, (str, os.PathLike)) else model,
                device=device,
                pooling=pooling,
                prefix=prefix,
                store=opened,
                manifest=manifest,
                placement=placement,
                partitions=partitions,
                restart=restart,
                max_errors=max_errors,
                wait_s=wait_s,
                events=events,
                work=folder,
                runner=runner,
                check=check,
            ).run()
        assert scanned is not None, "a base that is not cut is scanned above"
        session = Session(reader, scanned, input_name, loaded, opened, manifest, kb, max_errors, events)
        if update is None and not is_limited and not restart and session.is_newer_release() and may_update():
            events.newer_release()
            update = True
        if update:
            return session.update(may_remove)
        return session.load(quantization=quantization, placement=placement, restart=restart)


def read_entities(
    paths: Paths, *, kind: str = "auto", options: ReadOptions | None = None, max_errors: int | None = DEFAULT_MAX_ERRORS
) -> Iterator[Entity]:
    """Read the entities of a base, each once; needs no collection of it. Arguments as of `load_base`.

    Raises:
        InputError: If a file cannot be read.
        OptionError: If an option belongs to another format.
    """
    with open_reader(listed_paths(paths), kind, options) as reader:
        yield from reader.read(ReadReport(max_errors=max_errors))


def collection_name(path: str | os.PathLike[str]) -> str:
    """The name of a collection from that of a file: `data/umls-2024AB.tsv.gz` gives `umls-2024AB`. Raises OptionError
    for standard input, which has no name.
    """
    if os.fspath(path) == "-":
        raise OptionError("collection", "Standard input has no name from which the collection could get one.")
    name = Path(path).name
    if name.upper() == "META":  # the folder of UMLS: the release has a better name
        name = Path(path).resolve().parent.name
    while (shorter := _ENDINGS.sub("", name)) != name:
        name = shorter
    return re.sub(r"[^\w.-]+", "-", name).strip(".-") or "base"


def listed_paths(paths: Paths) -> list[str]:
    """One or several paths as a list of strings."""
    many = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    return [os.fspath(path) for path in many]


def checked_name(collection: str | None, paths: Paths, store: StoreLike) -> str:
    """The collection's name. One that the store would refuse is refused before anything is read."""
    listed = listed_paths(paths)
    if not listed:
        raise OptionError("paths", "No file is given: name at least one.")
    name = collection or collection_name(listed[0])
    check_name(name)
    return name


def _report_scan(scanned: ScanResult, paths: Sequence[str], events: LoadEvents) -> ScanResult:
    """Report what was counted, and return it. Raises EmptyBaseError if no entity is left; TooManyErrorsError if too
    large a share of the rows is bad (`ReadReport.check_share`).
    """
    events.scanned(scanned)
    if not scanned.names:
        raise EmptyBaseError(list(paths), scanned.report.skip_counts)
    scanned.report.check_share()
    return scanned
