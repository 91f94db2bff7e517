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

from ingest.base.format import ReadOptions
from ingest.base.reader import ScanResult, scan
from ingest.base.type_map import TypeMap
from ingest.formats import FORMATS, open_reader
from ingest.io.report import ReadReport
from ingest.load.cluster import RayCluster
from ingest.load.pipeline import Load
from ingest.load.request import LoadEvents, LoadKeywords, LoadRequest, LoadResult
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.errors import EmptyBaseError, OptionError, StoreError
from pearl_qdrant.records import Entity
from pearl_qdrant.settings import DEFAULT_MAX_ERRORS
from pearl_qdrant.store.administration import CollectionSummary, summarize_collections
from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.store.schema import Manifest, check_name

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
    """Read and count a base; needs neither model nor store. Arguments as in `load_base`. Raises InputError if the input
    cannot be read, or has too many bad rows; EmptyBaseError if no entity is left; OptionError if an option belongs to
    another format, or its value makes no sense.
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
        keywords: Fields of `LoadRequest`, which says what they mean; each replaces that field of `request`.

    Raises:
        InputError: If the input cannot be read, or has too many bad rows.
        EmptyBaseError: If no entity is left.
        OptionError: If an option does not fit the input or the collection.
        ModelError: If the model cannot be loaded.
        ModelMismatchError: If the collection was made by another model.
        CollectionNotFoundError: If there is no collection to update.
        StoreError: If the store fails after all retries. What is stored is kept; the same call goes on.
    """
    request, listed = replace(request or LoadRequest(), **keywords), listed_paths(paths)
    if not listed:
        raise OptionError("paths", "No file is given: name at least one.")
    name = collection or collection_name(listed[0])
    check_name(name)  # before anything is read
    if request.update and request.is_limited:
        raise OptionError("limit", "An update compares with the whole of the new release, so it takes no limit.")
    types = request.type_map if isinstance(request.type_map, TypeMap) else TypeMap.load(request.type_map)

    with ExitStack() as held:
        cluster = None if request.ray is None else held.enter_context(closing(RayCluster(request)))
        reader = held.enter_context(open_reader(listed, request.kind, request.options, type_map=types))
        scanned = _report_scan(scan(reader, ReadReport(max_errors=request.max_errors)), listed, request.events)
        store = held.enter_context(use_store(request.store, wait_s=request.wait_s))
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
            quantization=request.quantization or store.quantization,
            type_map_version=types.version,
        )
        write = None if cluster is None else cluster.write
        return Load(reader, scanned, " ".join(listed), encoder, store, manifest, request, write).run()


def read_entities(
    paths: Paths, *, kind: str = "auto", options: ReadOptions | None = None, max_errors: int | None = DEFAULT_MAX_ERRORS
) -> Iterator[Entity]:
    """Read the entities of a base, each once. Raises InputError if a file cannot be read; and as `open_reader`."""
    with open_reader(listed_paths(paths), kind, options) as reader:
        yield from reader.read(ReadReport(max_errors=max_errors))


def collection_name(path: str | os.PathLike[str]) -> str:
    """The name of a file without its endings: `umls-2024AB` of `umls-2024AB.tsv.gz`. Raises OptionError for ``-``."""
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


def _report_scan(scanned: ScanResult, paths: Sequence[str], events: LoadEvents) -> ScanResult:
    """Report what was counted, and return it. Raises EmptyBaseError; TooManyErrorsError as `ReadReport.check_share`."""
    events.scanned(scanned)
    if not scanned.names:
        raise EmptyBaseError(list(paths), scanned.report.skip_counts)
    scanned.report.check_share()
    return scanned


SAMPLE_BASE = Path(__file__).with_name("sample_base.tsv")
VERSION = "sample"  # Release that a collection of it names; tells it from another one of that name


def load_sample(collection: str = "demo", *, store: StoreLike = None) -> CollectionSummary:
    """Load the sample base, 1,227 well-known entities, or go on with a load of it; returns what the collection holds
    now. Raises StoreError if the store fails, or the collection is another one that cannot be used.
    """
    here = _find(collection, store)
    if here is not None and here.problem is not None and here.state != "no_graph" and here.kb_version != VERSION:
        raise StoreError(
            f"{here.problem.rstrip('.')}. Delete it with: pearl-qdrant collections delete {collection}. Or load the "
            "sample base under another name, or elsewhere: pearl-qdrant demo --store FOLDER"
        )
    if here is None or here.state == "unfinished":
        load_base(SAMPLE_BASE, collection, kb_version=VERSION, store=store)
        here = _find(collection, store)
        assert here is not None
    return here


def _find(collection: str, store: StoreLike) -> CollectionSummary | None:
    return next((one for one in summarize_collections(store) if one.name == collection), None)
