"""Load a base from files into a collection in one call, as `pearl-qdrant ingest` does.

    from pearl_qdrant import load_base

    result = load_base("umls.tsv", "umls")
    print(result.points)

`scan_base` only reads and counts; `update_base` updates a collection to a newer release.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ingest.base.reader import Reader
from ingest.base.scan import ScanResult, scan
from ingest.base.type_map import TypeMap
from ingest.formats import FORMATS, ReadOptions, open_reader
from ingest.io.report import ReadReport
from ingest.load.events import LoadEvents
from ingest.load.results import IngestResult, UpdateResult
from ingest.load.session import MayUpdate, Session
from ingest.load.update import MayRemove
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import EmptyBaseError, OptionError
from pearl_qdrant.settings import (
    DEFAULT_DEVICE,
    DEFAULT_MAX_ERRORS,
    DEFAULT_MODEL,
    DEFAULT_WAIT_S,
)
from pearl_qdrant.store.names import check_name
from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.store.protocol import Placement
from pearl_qdrant.store.schema import Quantization

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True)
class Reading:
    """How a base is read; the fields are arguments of `load_base`."""

    paths: Paths
    kind: str
    options: ReadOptions | None
    type_map: TypeMap | str | os.PathLike[str] | None
    max_errors: int | None


@dataclass(frozen=True, slots=True)
class Encoding:
    """What encodes its names; the fields are arguments of `load_base`."""

    model: Encoder | str | os.PathLike[str]
    device: str
    pooling: str | None
    prefix: str | None
    embed_descriptions: bool


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
    with open_base(paths, kind, options, type_map_of(type_map)) as reader:
        return _scan(reader, paths, max_errors, events or LoadEvents())


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
    embed_descriptions: bool = False,
    placement: Placement | None = None,
    restart: bool = False,
    wait_s: float = DEFAULT_WAIT_S,
    events: LoadEvents | None = None,
) -> IngestResult:
    """Read a base, encode every name and store it. After an interruption, the same call resumes the load.

    If the collection holds this very base already, nothing is encoded or written (`IngestResult.unchanged`).

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
        embed_descriptions: Whether a new collection also keeps a vector of each entity's description (its canonical
            name and description, as one text), which tells namesakes apart in a context. A collection that was made
            with them keeps them whatever is given here.
        placement: Shards and replicas of a new collection on a server.
        restart: Delete an existing collection first, its calibration included. What it learned stays
            (`EntityLinker.learn`).
        wait_s: How long to wait for a server that does not answer, in seconds.
        events: Receives progress.

    Raises:
        InputError: If the input cannot be read, or has too many bad rows.
        EmptyBaseError: If no entity is left.
        OptionError: If an option does not fit the input or the collection.
        ModelError: If the model cannot be loaded.
        ModelMismatchError: If the collection was made by another model.
        StoreError: If the store fails after all retries. What is stored is kept; the same call resumes.
    """
    name, events = checked_name(collection, paths, store), events or LoadEvents()
    reading = Reading(paths, kind, options, type_map, max_errors)
    encoding = Encoding(model, device, pooling, prefix, embed_descriptions)
    with _session(reading, encoding, name, store, kb, kb_version, wait_s, events) as session:
        return session.load(quantization=quantization, placement=placement, restart=restart)


def update_base(  # long: all arguments of an update are documented here
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
    embed_descriptions: bool = False,
    may_remove: MayRemove = lambda removed, total: True,
    wait_s: float = DEFAULT_WAIT_S,
    events: LoadEvents | None = None,
) -> UpdateResult:
    """Update a collection to a newer release of its base: only what changed is encoded and written.

    Args:
        paths: The whole of the new release.
        collection: As in `load_base`; it must exist.
        may_remove: Called with the number of names that the new release lacks and that of all names, before any is
            deleted; False keeps them.
        embed_descriptions: Requires that the collection was made with it, which alone decides.
        store, model, device, pooling, prefix, kind, options, type_map, max_errors, kb, kb_version, wait_s, events: As
            in `load_base`.

    Raises:
        CollectionNotFoundError: If there is no such collection.
        InputError, EmptyBaseError, OptionError, ModelError, ModelMismatchError, StoreError: As `load_base`.
    """
    name, events = checked_name(collection, paths, store), events or LoadEvents()
    _refuse_limit(options)
    reading = Reading(paths, kind, options, type_map, max_errors)
    encoding = Encoding(model, device, pooling, prefix, embed_descriptions)
    with _session(reading, encoding, name, store, kb, kb_version, wait_s, events) as session:
        return session.update(may_remove)


def load_or_update_base(
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
    embed_descriptions: bool = False,
    placement: Placement | None = None,
    may_update: MayUpdate = lambda: True,
    may_remove: MayRemove = lambda removed, total: True,
    wait_s: float = DEFAULT_WAIT_S,
    events: LoadEvents | None = None,
) -> IngestResult | UpdateResult:
    """Update a collection if the base is a newer release of what it holds (`session.MOSTLY`); else load the base.

    All other arguments are those of `load_base` and `update_base`. With `options.limit` the base is loaded.

    Args:
        may_update: Called before such an update, with no argument; False loads the base beside what is stored.

    Raises:
        InputError, EmptyBaseError, OptionError, ModelError, ModelMismatchError, StoreError: As `load_base`.
    """
    name, events = checked_name(collection, paths, store), events or LoadEvents()
    reading = Reading(paths, kind, options, type_map, max_errors)
    encoding = Encoding(model, device, pooling, prefix, embed_descriptions)
    with _session(reading, encoding, name, store, kb, kb_version, wait_s, events) as session:
        is_part = options is not None and options.limit is not None
        if not is_part and session.is_newer_release() and may_update():
            events.newer_release()
            return session.update(may_remove)
        return session.load(quantization=quantization, placement=placement)


def collection_name(path: str | os.PathLike[str]) -> str:
    """The name of a collection from that of a file: `data/umls-2024AB.tsv.gz` gives `umls-2024AB`.

    Raises:
        OptionError: For standard input, which has no name.
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


def type_map_of(given: TypeMap | str | os.PathLike[str] | None) -> TypeMap:
    """The table of types that an argument names."""
    return given if isinstance(given, TypeMap) else TypeMap.load(given)


def open_base(paths: Paths, kind: str, options: ReadOptions | None, types: TypeMap) -> Reader:
    """A reader of the base; raises as `open_reader`."""
    return open_reader(listed_paths(paths), kind, options, type_map=types)


def _scan(reader: Reader, paths: Paths, max_errors: int | None, events: LoadEvents) -> ScanResult:
    return report_scan(scan(reader, ReadReport(max_errors=max_errors)), paths, events)


def report_scan(scanned: ScanResult, paths: Paths, events: LoadEvents) -> ScanResult:
    """Report what was counted, and return it.

    Raises:
        EmptyBaseError: If no entity is left.
        TooManyErrorsError: If too large a share of the rows is bad (`ReadReport.check_share`).
    """
    events.scanned(scanned)
    if not scanned.names:
        raise EmptyBaseError(listed_paths(paths), scanned.report.skip_counts)
    scanned.report.check_share()
    return scanned


@contextmanager
def _session(
    reading: Reading,
    encoding: Encoding,
    name: str,
    store: StoreLike,
    kb: str | None,
    kb_version: str | None,
    wait_s: float,
    events: LoadEvents,
) -> Iterator[Session]:
    """Read and count a base, load the model, and open the store, in this order."""
    types = type_map_of(reading.type_map)
    with open_base(reading.paths, reading.kind, reading.options, types) as reader:
        scanned = _scan(reader, reading.paths, reading.max_errors, events)
        encoder = load_model(encoding, events)
        with use_store(store, wait_s=wait_s) as opened:
            yield Session(
                reader,
                scanned,
                " ".join(listed_paths(reading.paths)),
                encoder,
                opened,
                name,
                encoding.embed_descriptions,
                kb,
                kb_version,
                types.version,
                reading.max_errors,
                events,
            )


def load_model(encoding: Encoding, events: LoadEvents) -> Encoder:
    """The encoder that arguments name."""
    model = encoding.model
    if isinstance(model, (str, os.PathLike)):
        model = load_encoder(os.fspath(model), device=encoding.device, pooling=encoding.pooling, prefix=encoding.prefix)
    events.model_loaded(model)
    return model


def _refuse_limit(options: ReadOptions | None) -> None:
    if options is not None and options.limit is not None:
        raise OptionError("limit", "An update compares with the whole of the new release, so it takes no limit.")
