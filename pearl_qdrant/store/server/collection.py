"""One open collection on a Qdrant server: its points, its graph, which is held back during a load, and its ledger."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from qdrant_client import models

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.errors import (
    CollectionMovedError,
    CollectionNotFoundError,
    ManifestError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreRejectedError,
    StoreUnavailableError,
)
from pearl_qdrant.store.protocol import Collection, PointFilter
from pearl_qdrant.store.schema import (
    DENSE,
    INDEXED_FIELDS,
    LEXICAL,
    Checkpoint,
    Manifest,
    NamePoint,
    NameRows,
    pack_rows,
)
from pearl_qdrant.store.search import CollectionStatus, SearchEngine, share_indexed
from pearl_qdrant.store.server.connection import Connection
from pearl_qdrant.store.server.errors import ExactRefusedError, IndexMissingError
from pearl_qdrant.store.server.ledger import ServerLedger
from pearl_qdrant.store.server.queries import Limits, Row, at_most, of_base, retrieve, run_queries, scroll, to_filter
from pearl_qdrant.store.server.sizes import Learned, Sizes
from pearl_qdrant.store.server.upload import ServerWriter, Uploader, check_points
from pearl_qdrant.store.server.versions import (
    MANIFEST_KEY,
    checkpoint_key,
    confirm_write,
    find_current,
    parse_manifest,
    split_name,
)

_PAGE_POINTS = 512  # points in one scroll request
_ROWS = 256  # points in one page with vectors: 1.5 MB
LOOK_S = 2.0  # the server is asked once in this time what is behind the name
_COUNTED = 10_000  # points in one scroll request that only counts
_CONDITION_BYTES = 1 << 15  # of values in one condition: proxies may take requests of 100 kB
_BATCH_MENTIONS = 32  # mentions in one request: enough to hide a round trip, few enough for several requests in flight
_MAX_VALUES = 512  # values in one condition of a filter
_PACKING_S = 3600.0  # how long a server may take to pack a shard

LOAD_KEY = "pearl_qdrant_load"
"""Key in the collection's metadata while a load has indexing switched off; its value is the setting to restore."""

_NO_INDEXING = 0  # this `indexing_threshold` switches the building of graphs off
_DEFAULT_THRESHOLD_KB = 10_000  # Qdrant's own (since 1.15; 20,000 before), for a collection that reports none
POLL_S = 0.5  # between two looks at the graph that a server builds
STALL_S = 1800.0  # without a change of it, until `finalize` gives up
_FINISHED_POLLS = 2  # polls in a row with a built graph: at the first one the optimizer may not have started

_log = logging.getLogger(__name__)

T = TypeVar("T")


class ServerCollection(Collection):
    """One open collection on a server; see `protocol.Collection`. Many threads may search at the same time."""

    is_remote = True

    def __init__(
        self,
        connection: Connection,
        name: str,
        manifest: Manifest,
        *,
        limits: Limits,
        physical: str,
        is_hidden: bool = False,
    ) -> None:
        """Use a version of a collection, by the server's own name of it, which no alias leads elsewhere; one that is
        hidden is being built, and no other process writes it.
        """
        self._connection = connection
        self._client = connection.client
        self.name = name
        self._physical = physical
        self._is_hidden = is_hidden
        self._seen_at = time.monotonic()
        self._is_outdated = self._is_moved = self._is_other = self._has_foreign = False
        self._manifest = manifest
        self._learned = Learned()
        self._keep_to(limits)
        self._closed = False

    def __repr__(self) -> str:
        return f"ServerCollection({self._connection.location!r}, {self.name!r})"

    @property
    def manifest(self) -> Manifest:
        return self._manifest

    @property
    def is_outdated(self) -> bool:
        with suppress(StoreError):
            self._look()
        return self._is_outdated

    @property
    def is_moved(self) -> bool:
        self._look()
        return self._is_moved

    def _look(self) -> None:
        """Look, once in a while, what is behind the name. Nothing in the answer of a search says which model made it:
        the vectors of two models may have one size. StoreUnavailableError if the server does not answer.
        """
        if self._is_hidden or self._is_other or time.monotonic() - self._seen_at < LOOK_S:
            return
        self._seen_at = time.monotonic()
        try:
            _, info, physical = find_current(self._connection, self.name)
        except StoreUnavailableError:
            raise
        except StoreError:  # a search may still be allowed, or says it
            return
        is_same = False
        with suppress(ManifestError):
            is_same = self._manifest.is_of(parse_manifest(info.config.metadata, self.name))
        is_here = physical == self._physical
        self._is_outdated = not (is_here and is_same)
        self._is_other = is_here and not is_same  # made again with another model
        # A newer version of the same collection may wait: the one that is open here stays as it is.
        self._is_moved = self._is_other or split_name(physical)[0] != split_name(self._physical)[0]

    def _confirm(self) -> None:
        if not self._is_hidden:
            confirm_write(self._connection, self.name, self._physical)

    def read_manifest(self) -> Manifest:
        info = self._info()
        self._manifest = parse_manifest(info.config.metadata, self.name)
        self._keep_to(Limits.of(info))
        return self._manifest

    def write_manifest(self, manifest: Manifest) -> None:
        self._merge_metadata({MANIFEST_KEY: manifest.model_dump(mode="json", exclude={"checkpoints"})})
        self._confirm()
        self._manifest = manifest

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        self._merge_metadata({checkpoint_key(checkpoint.input): checkpoint.model_dump(mode="json")})

    def remove_checkpoint(self, input_name: str) -> None:
        self._merge_metadata({checkpoint_key(input_name): None})

    def _merge_metadata(self, metadata: dict[str, object]) -> None:
        self._call(lambda: self._client.update_collection(self._physical, metadata=metadata))

    def _info(self) -> models.CollectionInfo:
        info: models.CollectionInfo = self._call(lambda: self._client.get_collection(self._physical))
        return info

    def _ledger(self) -> ServerLedger:
        self._check_open()
        return ServerLedger(self._connection, self.name, self._physical, self._learned)

    def read_ledger(self) -> Iterator[bytes]:
        return self._ledger().read_lines()

    def append_ledger(self, lines: Sequence[bytes]) -> None:
        self._ledger().append_lines(lines)

    def writer(self) -> ServerWriter:
        self.ensure_payload_indexes()
        info = self._info()
        if LOAD_KEY not in (info.config.metadata or {}):  # else a load that died has switched indexing off
            threshold = info.config.optimizer_config.indexing_threshold or _DEFAULT_THRESHOLD_KB
            self._set_threshold(_NO_INDEXING, {LOAD_KEY: {"indexing_threshold": threshold}})
        return ServerWriter(self._uploader(), dim=self._manifest.dim, confirm=self._confirm)

    def _uploader(self) -> Uploader:
        self._check_open()
        return Uploader(self._connection, self._physical, self._limits, self._learned)

    def upsert(self, points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray) -> None:
        uploader = self._uploader()
        for batch in uploader.batches(check_points(points, vectors, encodable, dim=self._manifest.dim)):
            uploader.send(batch)
        self._confirm()

    def replace_payloads(self, points: Sequence[NamePoint]) -> None:
        self._uploader().replace_payloads(points)
        self._confirm()

    def count_entities(self) -> int:
        canonical = models.FieldCondition(key="is_canonical", match=models.MatchValue(value=True))
        return self._count_filtered(models.Filter(must=[canonical]))

    def ensure_payload_indexes(self) -> None:
        """Create missing payload indexes. Besides the fields of the schema `is_canonical` is indexed, since strict mode
        otherwise refuses to count by it, and `kb`, for users who query the server directly.
        """
        schema = self._info().payload_schema
        for field in (*INDEXED_FIELDS, "kb", "is_canonical"):
            if field not in schema:
                kind = models.PayloadSchemaType.BOOL if field == "is_canonical" else models.PayloadSchemaType.KEYWORD
                create = partial(self._client.create_payload_index, self._physical, field, field_schema=kind, wait=True)
                self._call(create)

    def _set_threshold(self, threshold_kb: int, metadata: dict[str, object]) -> None:
        """Set the threshold and merge the metadata, in one request; None removes a key."""
        config = models.OptimizersConfigDiff(indexing_threshold=threshold_kb)
        self._call(lambda: self._client.update_collection(self._physical, optimizers_config=config, metadata=metadata))

    def finalize(self, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Switch indexing on and wait until the server has built the graph. StoreError if nothing changes for
        `STALL_S`, or the server reports that its optimizer failed.
        """
        self.ensure_payload_indexes()
        mark = (self._info().config.metadata or {}).get(LOAD_KEY)
        if mark is not None:
            threshold = mark.get("indexing_threshold") if isinstance(mark, dict) else None
            self._set_threshold(int(threshold or _DEFAULT_THRESHOLD_KB), {LOAD_KEY: None})
        # Counted once: an exact count takes a server time that its graph needs.
        n_vectors, n_sparse = self._count_vectors(DENSE), self._count_vectors(LEXICAL)
        n_finished, last_change, last_state = 0, time.monotonic(), None
        while True:
            info = self._info()
            self._raise_failure(info)
            indexed = share_indexed(info.indexed_vectors_count or 0, n_vectors, n_sparse)
            if on_progress is not None:
                on_progress(indexed, n_vectors)
            n_finished = n_finished + 1 if is_built(info, n_vectors=n_vectors) else 0
            if n_finished >= _FINISHED_POLLS:
                return
            progress = None
            with suppress(StoreRejectedError):  # a server that is too old to report it
                progress = self._call(partial(self._client.get_optimizations, self._physical))
            state = (indexed, info.status, info.segments_count, str(progress))
            if state != last_state:
                last_state, last_change = state, time.monotonic()
            elif time.monotonic() - last_change > STALL_S:
                raise StoreError(
                    f"The graph of collection '{self._physical}' at {self._connection.location} has not grown for "
                    f"{STALL_S:.0f} s ({indexed:,} of {n_vectors:,} vectors indexed). Search still "
                    f"works. See the server's log, then continue with: pearl-qdrant collections finalize "
                    f"{self._physical}"
                )
            time.sleep(POLL_S)

    def _raise_failure(self, info: models.CollectionInfo) -> None:
        """Raise the error of the server's optimizer, if there is one."""
        error = getattr(info.optimizer_status, "error", None)
        if error is None and info.status != models.CollectionStatus.RED:
            return
        name, error = self._physical, self._connection.redact(error) if error else None
        message = (
            f"Qdrant at {self._connection.location} cannot index collection '{name}': {error or 'its status is red'}."
        )
        if error and "no space left" in error.lower():
            raise StoreFullError(f"{message} Free some space, then run: pearl-qdrant collections finalize {name}")
        raise StoreRejectedError(f"{message} See the server's log, then run: pearl-qdrant collections finalize {name}")

    def status(self) -> CollectionStatus:
        info = self._info()
        n_vectors, points = self._count_vectors(DENSE), self._count(None)
        return CollectionStatus(
            points=points,
            vectors=n_vectors,
            indexed_vectors=share_indexed(info.indexed_vectors_count or 0, n_vectors, self._count_vectors(LEXICAL)),
            segments=info.segments_count,
            is_finalized=is_built(info, n_vectors=n_vectors),
            payload_indexes=tuple(sorted(info.payload_schema)),
            foreign_points=max(0, self._count_filtered(None) - points),
        )

    def download_shard(self, target: Path) -> None:
        """Let the server make a snapshot of the only shard, download it, compare its checksum, and delete it there.

        StoreRejectedError, a part of a sentence, if there are more shards, the server refuses, or what arrived is not
        what it made.
        """
        connection, physical = self._connection, self._physical
        if self.status().foreign_points:
            raise StoreRejectedError("points of another program are among its names")
        placed = self._call(partial(self._client.collection_cluster_info, physical))
        n_shards = len(placed.local_shards) + len(placed.remote_shards)
        if n_shards != 1 or placed.remote_shards:
            raise StoreRejectedError(
                f"the server keeps it in {n_shards} shards or replicas, not in one on the node asked"
            )
        path = f"/collections/{quote(physical, safe='')}/shards/{placed.local_shards[0].shard_id}/snapshots"
        made = self._call(partial(connection.request, "POST", path, timeout_s=_PACKING_S))
        try:
            result = made.json()["result"]
            name, wanted = str(result["name"]), result.get("checksum")
        except (ValueError, LookupError, TypeError) as error:
            raise StoreRejectedError("the server names no snapshot") from error
        one = f"{path}/{quote(name, safe='')}"
        try:
            found = self._call(partial(_download, connection, one, target))
            if wanted != found:
                raise StoreRejectedError(f"its snapshot has the SHA-256 {found}, and the server says {wanted}")
        finally:
            with suppress(StoreError):
                self._call(partial(connection.request, "DELETE", one, timeout_s=_PACKING_S))

    def close(self) -> None:
        self._closed = True

    def _keep_to(self, limits: Limits) -> None:
        self._limits = limits
        self._page_size = at_most(_PAGE_POINTS, limits.query)
        self._max_values = at_most(_MAX_VALUES, limits.values)

    def _check_open(self) -> None:
        self._connection.guard.check()
        if self._closed:
            raise StoreClosedError(f"Collection '{self.name}' was closed. Open it again.")

    @property
    def most_points(self) -> int | None:
        return self._limits.query

    def _search(self, search: Callable[[], T]) -> T:
        """Search, and once more without the points of another program where one of these was found."""
        self._look()
        if self._is_other:
            raise CollectionMovedError(self.name)
        try:
            return search()
        except ManifestError:
            if self._has_foreign:
                raise
            self._note_foreign()
        except CollectionNotFoundError:
            self._seen_at = -LOOK_S  # an alias may lead elsewhere by now
            raise
        return search()

    def _note_foreign(self) -> None:
        if not self._has_foreign:
            self._has_foreign = True
            _log.warning("Collection '%s' has points that another program wrote: they are left out", self.name)

    def _engine(self, point_filter: PointFilter, n_wanted: int) -> SearchEngine:
        self._limits.check_query(n_wanted, self.name)
        return SearchEngine(
            run=partial(
                run_queries,
                self._connection,
                self._physical,
                query_filter=to_filter(point_filter),
                limits=self._limits,
                learned=self._learned,
                only_kb=self._manifest.kb if self._has_foreign else None,
            ),
            read=partial(NamePoint.from_json, collection=self.name),
            dim=self._manifest.dim,
            max_points=self._limits.query,
            max_ids=self._limits.ids,
            batch_mentions=_BATCH_MENTIONS,
            map_batches=map if self._limits.reads or self._learned.is_rated else self._connection.map,
            is_remote=True,
        )

    def _scroll(self, point_filter: PointFilter | None, page: int) -> Iterator[NamePoint]:
        self._check_open()
        for rows in scroll(self._connection, self._physical, page=page, query_filter=to_filter(point_filter)):
            yield from (point for _, point in self._ours(rows))

    def scroll_rows(self) -> Iterator[NameRows]:
        self._check_open()
        page = at_most(_ROWS, self._limits.query)
        for rows in scroll(self._connection, self._physical, page=page, with_vectors=True):
            ours = list(self._ours(rows))
            vectors = ((row.vector or {}).get(DENSE) for row, _ in ours)
            yield pack_rows([point for _, point in ours], vectors, dim=self._manifest.dim)

    def _retrieve(self, ids: list[str]) -> dict[str, NamePoint]:
        self._check_open()
        rows = retrieve(self._connection, self._physical, ids)
        return {str(row.id): point for row, point in self._ours(rows)}

    def _ours(self, rows: Iterable[Row]) -> Iterator[tuple[Row, NamePoint]]:
        """The points that are read, without those of another program."""
        for row in rows:
            try:
                yield row, NamePoint.from_json(row.payload, self.name)
            except ManifestError:
                self._note_foreign()

    def _retrieve_vectors(self, ids: list[str]) -> dict[str, list[float]]:
        self._check_open()
        rows = retrieve(self._connection, self._physical, ids, dim=self._manifest.dim)
        return {str(row.id): row.vector[DENSE] for row in rows if row.vector and DENSE in row.vector}

    def _count(self, point_filter: PointFilter | None) -> int:
        if point_filter is not None:
            return self._count_filtered(to_filter(point_filter))
        with suppress(IndexMissingError):
            return self._count_filtered(models.Filter(must=[of_base(self._manifest.kb)]))
        return self._count_filtered(None)

    def _count_filtered(self, count_filter: models.Filter | None) -> int:
        """Count points exactly; one by one where strict mode allows no exact count."""
        if self._limits.allows_exact is None:
            count = partial(self._client.count, self._physical, count_filter=count_filter, exact=True)
            try:
                return int(self._call(count).count)
            except ExactRefusedError:
                self._limits = replace(self._limits, allows_exact=False)
        page = at_most(_COUNTED, self._limits.query)
        pages = scroll(self._connection, self._physical, page=page, query_filter=count_filter, with_payload=False)
        return sum(map(len, pages))

    def _count_vectors(self, vector: str) -> int:
        return self._count_filtered(models.Filter(must=[models.HasVectorCondition(has_vector=vector)]))

    def _count_values(self, field: str, limit: int) -> dict[str, int]:
        n_values = at_most(limit, self._limits.query)
        is_exact = self._limits.allows_exact is None
        facet = partial(self._client.facet, self._physical, field, limit=n_values)
        try:
            answer = self._call(partial(facet, exact=is_exact))
        except ExactRefusedError:
            answer = self._call(partial(facet, exact=False))
        return {str(hit.value): hit.count for hit in answer.hits if hit.count}

    def _delete_matching(self, point_filter: PointFilter) -> int:
        selector = to_filter(point_filter)
        assert selector is not None  # there is at least one condition
        # Counted first: if the answer of a delete is lost and it is sent again, there is nothing left to count.
        n_points = self._count_filtered(selector)
        if n_points:
            self._call(partial(self._client.delete, self._physical, selector, wait=True))
        self._confirm()
        return n_points

    def _delete_ids(self, ids: list[str]) -> None:
        self._call(partial(self._client.delete, self._physical, [*ids], wait=True))
        self._confirm()

    def _cut(self, values: Sequence[str]) -> list[tuple[str, ...]]:
        """Cut values into parts of few bytes, too."""
        sizes = Sizes(self._max_values, _CONDITION_BYTES)
        return [
            tuple(small) for part in super()._cut(values) for small in (sizes.cut(part, _n_bytes) if part else [part])
        ]

    def _call(self, request: Callable[[], Any]) -> Any:
        self._check_open()
        return self._connection.call(request, collection=self.name)


def _n_bytes(text: str) -> int:
    return len(text.encode("utf-8"))


def is_built(info: models.CollectionInfo, *, n_vectors: int) -> bool:
    """Whether the server has nothing left to index.

    Segments below the threshold never get a graph and are searched exactly: such a collection is finished too. But if
    the average segment is above it and nothing is indexed, the optimizer has not started, even if the status is green.
    """
    if LOAD_KEY in (info.config.metadata or {}):
        return False
    threshold_kb = info.config.optimizer_config.indexing_threshold or _DEFAULT_THRESHOLD_KB
    segment_kb = n_vectors * _vector_bytes(info) / 1024 / max(info.segments_count, 1)
    not_started = segment_kb > threshold_kb and not info.indexed_vectors_count
    return info.status == models.CollectionStatus.GREEN and not not_started


def _vector_bytes(info: models.CollectionInfo) -> int:
    """The bytes of a dense vector as the server stores it."""
    vectors = info.config.params.vectors
    dense = vectors.get(DENSE) if isinstance(vectors, dict) else vectors
    if dense is None:
        return 0
    return dense.size * (2 if dense.datatype == models.Datatype.FLOAT16 else 4)


def _download(connection: Connection, path: str, target: Path) -> str:
    """Download a file; returns its SHA-256 in hexadecimal digits."""
    digest = sha256()
    with connection.stream("GET", path, timeout_s=_PACKING_S) as response, target.open("wb") as file:
        for chunk in response.iter_bytes(1 << 20):
            file.write(chunk)
            digest.update(chunk)
    return digest.hexdigest()
