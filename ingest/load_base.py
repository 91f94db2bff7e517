"""Load a base from files into a collection in one call, as `pearl-qdrant ingest` does.

`scan_base` only reads and counts, `read_entities` only reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.base.format import ReadOptions
from ingest.base.reader import Reader, ScanResult, scan
from ingest.base.type_map import TypeMap
from ingest.formats import FORMATS, open_reader
from ingest.io.report import ReadReport
from ingest.load.cluster import RayCluster
from ingest.load.pipeline import WriteWindows, ingest, is_unchanged, plain_result, stored_points
from ingest.load.request import LoadEvents, LoadKeywords, LoadRequest, LoadResult
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import EmptyBaseError, OptionError, StoreError
from pearl_qdrant.linking.learned.learning import sync_aliases
from pearl_qdrant.records import Entity
from pearl_qdrant.settings import DEFAULT_MAX_ERRORS
from pearl_qdrant.store.administration import CollectionSummary, check_ours, summarize_collections
from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.store.protocol import Collection, Placement, Store
from pearl_qdrant.store.schema import Manifest, check_name, plain_points

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
        return Session(reader, scanned, " ".join(listed), encoder, store, manifest, request, write).run()


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


SAMPLE = 1000
"""Rows of a base, from its start, that are looked up to see whether it is a newer release of what is stored."""

MOSTLY = 0.5
"""The share of the sampled names that are stored, and the least size relative to what is stored, of a newer release.
Two releases of one base share nearly all names, two parts of one base nearly none; a correction of a few rows is far
smaller than what it corrects."""


@dataclass(frozen=True, slots=True)
class Session:
    """A base that is read and counted, and where it goes; `manifest` is that of the collection, if it is new; `write`
    writes elsewhere than in this process.
    """

    reader: Reader
    scanned: ScanResult
    input_name: str
    encoder: Encoder
    store: Store
    manifest: Manifest
    request: LoadRequest
    write: WriteWindows | None = None

    @property
    def name(self) -> str:
        return self.manifest.collection

    def run(self) -> LoadResult:
        """Load the base, or update the collection to it, or do nothing if it holds it already; see `LoadRequest`."""
        request, is_update = self.request, self.request.update
        if is_update is None and not request.is_limited and not request.restart and self.is_newer_release():
            is_update = request.may_update()
            if is_update:
                request.events.newer_release()
        exists = self.name in self.store.collections()
        if exists and request.restart and not is_update:
            check_ours(self.store, self.name)
            self.store.delete(self.name, keep_ledger=True)
            exists = False
        if is_update or exists:
            target = self.store.open(self.name)
        else:
            target = self.store.create(self.manifest, request.placement or Placement())
        with closing(target):
            if exists and not is_update:
                self._check_new(target)
            with target.editing():
                return self._bring(target, is_update=bool(is_update))

    def _bring(self, target: Collection, *, is_update: bool) -> LoadResult:
        """Write what lacks, unless the collection holds this input already."""
        self._prepare(target)
        if _is_equal(target, self.scanned) if is_update else is_unchanged(target, self.scanned):
            if (version := self.manifest.kb_version) is not None:
                target.write_manifest(target.manifest.model_copy(update={"kb_version": version}))
            self.request.events.unchanged(target.manifest.edited)
            result = plain_result(target, self.scanned, self.encoder.info)
            return replace(result, is_update=is_update, unchanged=self.scanned.names)
        self.request.events.started(self.scanned.names)
        result = ingest(
            self.reader,
            self.scanned,
            self.encoder,
            target,
            self.request,
            input_name=self.input_name,
            is_update=is_update,
            write=self.write,
        )
        sync_aliases(target, self.encoder)
        return result

    def is_newer_release(self) -> bool:
        """Whether the base is a newer release of the one input that the collection holds; see `MOSTLY`."""
        if self.name not in self.store.collections():
            return False
        with closing(self.store.open(self.name)) as target:
            manifest = target.read_manifest()
            if manifest.checkpoints or len(manifest.loaded) > 1 or self.request.kb not in (None, manifest.kb):
                return False
            is_loaded = any(one.digest == self.scanned.digest for one in manifest.loaded)
            if is_loaded or self.scanned.names < MOSTLY * target.count():
                return False
            entities = self.reader.read(ReadReport(max_errors=None), scattered=self.scanned.scattered)
            ids = [point.id for point in plain_points(manifest.kb, islice(entities, SAMPLE))]
            return len(stored_points(target, ids)) >= MOSTLY * len(ids)

    def _check_new(self, target: Collection) -> None:
        kept, wanted = target.manifest.quantization, self.request.quantization
        if wanted not in (None, kept):
            raise OptionError("quantization", f"Collection '{self.name}' keeps its vectors as {kept}, not {wanted}.")
        if self.request.placement not in (None, Placement()):
            raise OptionError(
                "placement", f"Collection '{self.name}' exists: shards and replicas are chosen when it is created."
            )

    def _prepare(self, target: Collection) -> None:
        """Check that an existing collection fits, and write the version of the type map."""
        manifest = target.manifest
        manifest.check_model(self.encoder.info)
        if self.request.kb is not None and self.request.kb != manifest.kb:
            raise OptionError("kb", f"Collection '{target.name}' holds base '{manifest.kb}', not '{self.request.kb}'.")
        target.write_manifest(manifest.model_copy(update={"type_map_version": self.manifest.type_map_version}))


def _is_equal(target: Collection, scanned: ScanResult) -> bool:
    """Whether a collection holds just this base: nothing else was loaded, and nothing edited by hand."""
    manifest = target.read_manifest()
    is_alone = len(manifest.loaded) == 1 and not manifest.edited and manifest.names == scanned.names
    return is_alone and is_unchanged(target, scanned)


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
