"""Load a base from files into a collection in one call, as `pearl-qdrant ingest` does.

`scan_base` only reads and counts, `read_entities` only reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.base.scan import ScanResult, scan
from ingest.base.type_map import TypeMap
from ingest.formats import FORMATS, ReadOptions, open_reader
from ingest.io.report import ReadReport
from ingest.load.request import LoadKeywords, LoadRequest
from ingest.load.results import LoadEvents, LoadResult
from ingest.load.session import Session
from ingest.spread.driver import Spread, start_runner, work_folder
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.errors import EmptyBaseError, OptionError
from pearl_qdrant.records import Entity
from pearl_qdrant.settings import DEFAULT_MAX_ERRORS, DEFAULT_QUANTIZATION
from pearl_qdrant.store.names import check_name
from pearl_qdrant.store.open import use_store
from pearl_qdrant.store.schema import Manifest

if TYPE_CHECKING:
    from typing_extensions import Unpack

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


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


def load_base(  # long: all arguments of a load are named here
    paths: Paths, collection: str | None = None, request: LoadRequest | None = None, **keywords: Unpack[LoadKeywords]
) -> LoadResult:
    """Read a base, encode the names that the collection lacks, and store them.

    So the same call goes on after an interruption, and does nothing if the collection holds this very base already
    (`LoadResult.is_unchanged`).

    Args:
        paths: A file or folder of the base, or several; ``-`` is standard input.
        collection: The collection, which is created if needed. Default: the first file's name without its endings.
        request: How to load it; the defaults of `LoadRequest` if None.
        keywords: Fields of `LoadRequest`; each replaces that field of `request`:
            store (a store, a folder or a URL), model, device, pooling and prefix (of the encoder),
            kind, options, type_map and max_errors (what is read),
            kb and kb_version (short name and release of the base),
            quantization and placement (of a new collection),
            restart, update, may_update and may_remove (what becomes of an existing one),
            ray, parts and work (a new collection in parts),
            wait_s (for a server that does not answer) and events (progress).

    Raises:
        InputError: If the input cannot be read, or has too many bad rows.
        EmptyBaseError: If no entity is left.
        OptionError: If an option does not fit the input or the collection.
        ModelError: If the model cannot be loaded.
        ModelMismatchError: If the collection was made by another model.
        CollectionNotFoundError: If there is no collection to update.
        StoreError: If the store fails after all retries. What is stored is kept; the same call goes on.
    """
    request = replace(request or LoadRequest(), **keywords)
    name, listed = checked_name(collection, paths), listed_paths(paths)
    if request.update and request.is_limited:
        raise OptionError("limit", "An update compares with the whole of the new release, so it takes no limit.")
    if request.in_parts and request.update is not False:
        raise OptionError("update", "A load in parts makes a new collection, and updates none.")
    types = request.type_map if isinstance(request.type_map, TypeMap) else TypeMap.load(request.type_map)

    def check(scanned: ScanResult) -> ScanResult:
        return _report_scan(scanned, listed, request.events)

    with ExitStack() as held:
        runner = held.enter_context(closing(start_runner(request))) if request.in_parts else None
        reader = held.enter_context(open_reader(listed, request.kind, request.options, type_map=types))
        scanned = None if runner else check(scan(reader, ReadReport(max_errors=request.max_errors)))
        store = held.enter_context(use_store(request.store, wait_s=request.wait_s))
        folder = held.enter_context(work_folder(request.work, store, name)) if runner else None
        encoder = request.model
        if isinstance(encoder, (str, os.PathLike)):
            encoder = load_encoder(
                os.fspath(encoder), device=request.device, pooling=request.pooling, prefix=request.prefix
            )
        request.events.model_loaded(encoder)
        manifest = Manifest.for_model(
            encoder.info,
            collection=name,
            kb=request.kb or name,
            kb_version=request.kb_version,
            quantization=request.quantization or DEFAULT_QUANTIZATION,
            type_map_version=types.version,
        )
        if runner is not None and folder is not None:
            return Spread(reader, " ".join(listed), encoder, store, manifest, request, folder, runner, check).run()
        assert scanned is not None, "a base that is not cut is scanned above"
        return Session(reader, scanned, " ".join(listed), encoder, store, manifest, request).run()


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


def checked_name(collection: str | None, paths: Paths) -> str:
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
