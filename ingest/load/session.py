"""A base that is read and counted, with its encoder and its store: load it, or update a collection to it.

`ingest.load_base` opens a `Session`, so that the base is scanned once whatever is decided then.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from ingest.base.reader import Reader
from ingest.base.scan import ScanResult
from ingest.io.report import ReadReport
from ingest.load.inventory import stored_points
from ingest.load.pipeline import Loading, ingest
from ingest.load.request import LoadRequest
from ingest.load.results import LoadResult
from pearl_qdrant.encoder.protocol import Encoder, ModelInfo
from pearl_qdrant.errors import OptionError
from pearl_qdrant.linking.learned.aliases import sync_aliases
from pearl_qdrant.store.points import plain_points
from pearl_qdrant.store.protocol import Collection, Placement, Store
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.store.verify import check_ours

SAMPLE = 1000
"""Rows of a base, from its start, that are looked up to see whether it is a newer release of what is stored."""

MOSTLY = 0.5
"""The share of the sampled names that are stored, and the least size relative to what is stored, of a newer release.
Two releases of one base share nearly all names, two parts of one base nearly none; a correction of a few rows is far
smaller than what it corrects."""


@dataclass(frozen=True, slots=True)
class Session:
    """A base and where it goes.

    Attributes:
        reader: The base.
        scanned: Its counts.
        input_name: Its paths.
        encoder: Encodes its names.
        store: Open.
        manifest: Of the collection, if it is new.
        request: How to load it.
    """

    reader: Reader
    scanned: ScanResult
    input_name: str
    encoder: Encoder
    store: Store
    manifest: Manifest
    request: LoadRequest

    @property
    def name(self) -> str:
        """The collection."""
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
            return unchanged_result(target, self.scanned, self.encoder.info, is_update=is_update)
        self.request.events.started(self.scanned.names)
        result = ingest(
            self.reader,
            self.scanned,
            self.encoder,
            target,
            max_errors=self.request.max_errors,
            loading=Loading(self.input_name, is_update, self.manifest.kb_version),
            may_remove=self.request.may_remove,
            events=self.request.events,
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
        """Refuse options of a new collection for one that exists."""
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


def unchanged_result(
    target: Collection, scanned: ScanResult, info: ModelInfo, *, is_update: bool = False
) -> LoadResult:
    """The counts of an input that a collection held already."""
    status = target.status()
    return LoadResult(
        collection=target.name,
        report=scanned.report,
        points=status.points,
        without_vector=status.points - status.vectors,
        model=info.name,
        device=info.device,
        distinct_names=scanned.distinct_names,
        is_update=is_update,
        unchanged=scanned.names,
    )


def is_unchanged(target: Collection, scanned: ScanResult) -> bool:
    """Whether a base was loaded into a collection as it is now, and no point has disappeared since.

    The digest covers the entities as they are read, so an option that changes what is read changes it. Deletions by
    hand change the count in the manifest too; points that a store has lost do not, and are written again by a load.
    """
    manifest = target.read_manifest()
    return (
        manifest.state == "ready"
        and not manifest.checkpoints
        and any(one.digest == scanned.digest for one in manifest.loaded)
        and target.count() == manifest.names
    )


def _is_equal(target: Collection, scanned: ScanResult) -> bool:
    """Whether a collection holds just this base: nothing else was loaded, and nothing edited by hand."""
    manifest = target.read_manifest()
    is_alone = len(manifest.loaded) == 1 and not manifest.edited and manifest.names == scanned.names
    return is_alone and is_unchanged(target, scanned)
