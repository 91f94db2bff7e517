"""One open collection on a Qdrant server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec
from pydantic import ValidationError
from qdrant_client import models

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.errors import ManifestError, StoreClosedError, StoreError
from pearl_qdrant.store.graph import CollectionStatus, share_indexed
from pearl_qdrant.store.points import NameRows, pack_rows
from pearl_qdrant.store.protocol import Collection, PointFilter
from pearl_qdrant.store.schema import DENSE, LEXICAL, Checkpoint, Manifest, NamePoint
from pearl_qdrant.store.search import SearchEngine
from pearl_qdrant.store.server import indexing as server_indexing
from pearl_qdrant.store.server.connection import Connection
from pearl_qdrant.store.server.current import confirm_write, find_current, physical_name
from pearl_qdrant.store.server.indexing import Indexing
from pearl_qdrant.store.server.ledger import ServerLedger
from pearl_qdrant.store.server.queries import Limits, at_most, retrieve, run_queries, scroll, to_filter
from pearl_qdrant.store.server.upload import ServerWriter, Uploader, check_points
from pearl_qdrant.store.versions import PLAIN

MANIFEST_KEY = "pearl_qdrant"
"""Key of the manifest in the collection's metadata; other keys there are never changed."""

CHECKPOINT_PREFIX = "pearl_qdrant_checkpoint_"
"""Each input that is being loaded has its own key, so that processes do not overwrite each other's checkpoints."""

_PAGE_POINTS = 512  # points in one scroll request
_ROWS = 256  # points in one page with vectors: 1.5 MB
_LOOK_S = 1.0
_BATCH_MENTIONS = 32  # mentions in one request: enough to hide a round trip, few enough for several requests in flight
_MAX_VALUES = 512  # values in one condition of a filter


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
        indexing: Indexing,
        version: str = PLAIN,
        is_hidden: bool = False,
    ) -> None:
        """Use a version of a collection; one that is hidden is being built, and no other process writes it."""
        self._connection = connection
        self._client = connection.client
        self.name = name
        self._version = version
        self._physical = physical_name(name, version)
        self._is_hidden = is_hidden
        self._seen_at = time.monotonic()
        self._is_outdated = False
        self._manifest = manifest
        self._keep_to(limits)
        self._indexing = indexing
        self._closed = False

    def __repr__(self) -> str:
        return f"ServerCollection({self._connection.location!r}, {self.name!r})"

    @property
    def manifest(self) -> Manifest:
        """The manifest as read on opening, or as last written here."""
        return self._manifest

    @property
    def connection(self) -> Connection:
        """The connection of its requests."""
        return self._connection

    @property
    def physical(self) -> str:
        """The server's own name of this version."""
        return self._physical

    @property
    def version(self) -> str:
        """Which version it is of those behind its name; the empty text is the collection that a load makes."""
        return self._version

    @property
    def is_outdated(self) -> bool:
        """Whether another version is current by now. The server is asked once in `_LOOK_S` seconds at most."""
        if not self._is_hidden and not self._is_outdated and time.monotonic() - self._seen_at > _LOOK_S:
            self._seen_at = time.monotonic()
            with suppress(StoreError):
                self._is_outdated = find_current(self._connection, self.name)[0] != self._version
        return self._is_outdated

    def _confirm(self) -> None:
        """Return when what was written counts; see `confirm_write`."""
        if not self._is_hidden:
            confirm_write(self._connection, self.name, self._version)

    def read_manifest(self) -> Manifest:
        """Read the manifest as it is on the server now."""
        info = self._info()
        self._manifest = parse_manifest(info.config.metadata, self.name)
        self._keep_to(Limits.of(info))
        return self._manifest

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest in one request; other metadata stays, checkpoints included."""
        self._merge_metadata({MANIFEST_KEY: manifest.model_dump(mode="json", exclude={"checkpoints"})})
        self._confirm()
        self._manifest = manifest

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Record how much of an input is stored."""
        self._merge_metadata({_checkpoint_key(checkpoint.input): checkpoint.model_dump(mode="json")})

    def remove_checkpoint(self, input_name: str) -> None:
        """Remove the checkpoint of an input: its load is complete."""
        self._merge_metadata({_checkpoint_key(input_name): None})

    def _merge_metadata(self, metadata: dict[str, object]) -> None:
        self._call(lambda: self._client.update_collection(self._physical, metadata=metadata))

    def _info(self) -> models.CollectionInfo:
        info: models.CollectionInfo = self._call(lambda: self._client.get_collection(self._physical))
        return info

    def read_ledger(self) -> Iterator[bytes]:
        """Yield the lines of the ledger of learned names; see `protocol.Collection.read_ledger`."""
        self._check_open()
        return ServerLedger(self._connection, self.name, self._physical).read_lines()

    def append_ledger(self, lines: Sequence[bytes]) -> None:
        """Append lines to the ledger of learned names; see `protocol.Collection.append_ledger`."""
        self._check_open()
        ServerLedger(self._connection, self.name, self._physical).append_lines(lines)

    def writer(self) -> ServerWriter:
        """Start a bulk load: make missing payload indexes, and hold back the graph until `finalize`."""
        self._check_open()
        server_indexing.ensure_payload_indexes(self._connection, self._physical)
        server_indexing.begin_load(self._connection, self._physical)
        dim = self._manifest.dim
        return ServerWriter(self._connection, self._physical, self._limits, dim=dim, confirm=self._confirm)

    def upsert(self, points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray) -> None:
        """Write a few points; search finds them when this returns."""
        self._check_open()
        uploader = Uploader(self._connection, self._physical, self._limits)
        for batch in uploader.batches(check_points(points, vectors, encodable, dim=self._manifest.dim)):
            uploader.send(batch)
        self._confirm()

    def replace_payloads(self, points: Sequence[NamePoint]) -> None:
        """Replace everything but the vectors of stored points."""
        self._check_open()
        Uploader(self._connection, self._physical, self._limits).replace_payloads(points)
        self._confirm()

    def count_entities(self) -> int:
        """Return the exact number of points that carry a canonical name."""
        canonical = models.FieldCondition(key="is_canonical", match=models.MatchValue(value=True))
        return self._count_filtered(models.Filter(must=[canonical]))

    def finalize(self, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Switch indexing on and wait until the server has built the graph; raises as `wait_until_built`."""
        self._check_open()
        server_indexing.ensure_payload_indexes(self._connection, self._physical)
        server_indexing.end_load(self._connection, self._physical)
        server_indexing.wait_until_built(
            self._connection,
            self._physical,
            self._indexing,
            n_vectors=self._count_vectors(DENSE),
            n_sparse=self._count_vectors(LEXICAL),
            dim=self._manifest.dim,
            on_progress=on_progress,
        )

    def status(self) -> CollectionStatus:
        """Return counts, segments and indexes."""
        info = self._info()
        n_vectors = self._count_vectors(DENSE)
        return CollectionStatus(
            points=self._count(None),
            vectors=n_vectors,
            indexed_vectors=share_indexed(info.indexed_vectors_count or 0, n_vectors, self._count_vectors(LEXICAL)),
            segments=info.segments_count,
            is_finalized=server_indexing.is_built(info, n_vectors=n_vectors, dim=self._manifest.dim),
            payload_indexes=tuple(sorted(info.payload_schema)),
        )

    def close(self) -> None:
        """Refuse further use; no resource is held."""
        self._closed = True

    def _keep_to(self, limits: Limits) -> None:
        """Keep to limits of strict mode."""
        self._limits = limits
        self._page_size = at_most(_PAGE_POINTS, limits.query)
        self._max_values = at_most(_MAX_VALUES, limits.values)

    def _check_open(self) -> None:
        self._connection.guard.check()
        if self._closed:
            raise StoreClosedError(f"Collection '{self.name}' was closed. Open it again.")

    def _engine(self, point_filter: PointFilter, n_wanted: int) -> SearchEngine:
        self._limits.check_query(n_wanted, self.name)
        return SearchEngine(
            run=partial(
                run_queries,
                self._connection,
                self._physical,
                query_filter=to_filter(point_filter),
                limits=self._limits,
            ),
            read=self._read,
            dim=self._manifest.dim,
            max_points=self._limits.query,
            max_ids=self._limits.ids,
            batch_mentions=_BATCH_MENTIONS,
            map_batches=self._connection.map,
            is_remote=True,
        )

    def _scroll(self, point_filter: PointFilter | None, page: int) -> Iterator[NamePoint]:
        self._check_open()
        for rows in scroll(self._connection, self._physical, page=page, query_filter=to_filter(point_filter)):
            yield from (self._read(row.payload) for row in rows)

    def scroll_rows(self) -> Iterator[NameRows]:
        """Yield all points with their vectors; see `protocol.Collection.scroll_rows`."""
        self._check_open()
        page = at_most(_ROWS, self._limits.query)
        for rows in scroll(self._connection, self._physical, page=page, with_vectors=True):
            points, vectors = [self._read(row.payload) for row in rows], ((row.vector or {}).get(DENSE) for row in rows)
            yield pack_rows(points, vectors, dim=self._manifest.dim)

    def _retrieve(self, ids: list[str]) -> dict[str, NamePoint]:
        self._check_open()
        rows = retrieve(self._connection, self._physical, ids)
        return {str(row.id): self._read(row.payload) for row in rows}

    def _retrieve_vectors(self, ids: list[str]) -> dict[str, list[float]]:
        self._check_open()
        rows = retrieve(self._connection, self._physical, ids, dim=self._manifest.dim)
        return {str(row.id): row.vector[DENSE] for row in rows if row.vector and DENSE in row.vector}

    def _count(self, point_filter: PointFilter | None) -> int:
        return self._count_filtered(to_filter(point_filter))

    def _count_filtered(self, count_filter: models.Filter | None) -> int:
        answer = self._call(lambda: self._client.count(self._physical, count_filter=count_filter, exact=True))
        return int(answer.count)

    def _count_vectors(self, vector: str) -> int:
        """Count the points that have this vector, exactly."""
        return self._count_filtered(models.Filter(must=[models.HasVectorCondition(has_vector=vector)]))

    def _count_values(self, field: str, limit: int) -> dict[str, int]:
        n_values = at_most(limit, self._limits.query)
        answer = self._call(partial(self._client.facet, self._physical, field, limit=n_values, exact=True))
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

    def _read(self, payload: msgspec.Raw) -> NamePoint:
        return NamePoint.from_json(payload, self.name)

    def _call(self, request: Callable[[], Any]) -> Any:
        """Send a request; retried and with our errors, see `Connection.call`."""
        self._check_open()
        return self._connection.call(request, collection=self.name)


def _checkpoint_key(input_name: str) -> str:
    return CHECKPOINT_PREFIX + sha256(input_name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def parse_manifest(metadata: Mapping[str, Any] | None, name: str) -> Manifest:
    """Read the manifest and the checkpoints of a collection from its metadata; ManifestError if they are not there."""
    metadata = metadata or {}
    checkpoints = [value for key, value in metadata.items() if key.startswith(CHECKPOINT_PREFIX) and value]
    manifest = Manifest.parse(metadata.get(MANIFEST_KEY), name)
    try:
        parsed = tuple(map(Checkpoint.model_validate, checkpoints))
    except ValidationError as error:
        raise ManifestError(name, f"a checkpoint is unreadable: {error.errors()[0]['msg']}") from error
    return manifest.with_checkpoints(tuple(sorted(parsed, key=lambda one: one.input)))
