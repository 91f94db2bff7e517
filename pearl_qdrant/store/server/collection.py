"""One open collection on a Qdrant server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar

import msgspec
from pydantic import ValidationError

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.errors import ManifestError, StoreClosedError, StoreError
from pearl_qdrant.store.graph import CollectionStatus, share_indexed
from pearl_qdrant.store.points import NameRows, pack_rows
from pearl_qdrant.store.protocol import Collection, PointFilter
from pearl_qdrant.store.schema import DENSE, LEXICAL, Checkpoint, Manifest, NamePoint
from pearl_qdrant.store.search import SearchEngine
from pearl_qdrant.store.server import indexing as server_indexing
from pearl_qdrant.store.server.answers import CollectionInfo, Limits, at_most
from pearl_qdrant.store.server.connection import Connection
from pearl_qdrant.store.server.current import confirm_write, find_current, physical_name
from pearl_qdrant.store.server.indexing import Indexing
from pearl_qdrant.store.server.ledger import ServerLedger
from pearl_qdrant.store.server.points import check_points
from pearl_qdrant.store.server.queries import ServerFilter, retrieve, run_queries, scroll, to_filter
from pearl_qdrant.store.server.upload import ServerWriter, Uploader
from pearl_qdrant.store.versions import PLAIN

T = TypeVar("T")

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
    """One open collection on a server; see `protocol.Collection`. Many threads may search at the same time.

    Attributes:
        connection: Of its requests.
        physical: The server's own name of this version.
        version: Which version it is of those behind its name; the empty text is the collection that a load makes.
    """

    is_remote = True

    def __init__(
        self,
        connection: Connection,
        name: str,
        info: CollectionInfo,
        *,
        indexing: Indexing,
        version: str = PLAIN,
        is_hidden: bool = False,
    ) -> None:
        """Use a version of a collection.

        Args:
            connection: To the server.
            name: The collection.
            info: What the server says of the version.
            indexing: How `finalize` waits.
            version: The version behind the name.
            is_hidden: Whether it is being built, so that no other process writes it or waits for it.

        Raises:
            ManifestError: If it was not made by pearl-qdrant.
        """
        manifest = parse_manifest(info.metadata, name)
        dense = info.config.params.dense.get(DENSE)
        if dense is None or (dense.size, dense.distance) != (manifest.dim, "Cosine"):
            found = f"{dense.size} dim, {dense.distance}" if dense else "none"
            raise ManifestError(name, f"vector '{DENSE}' should be {manifest.dim} dim, Cosine; it is: {found}")
        if LEXICAL not in (info.config.params.sparse_vectors or {}):
            raise ManifestError(name, f"there should be sparse vectors '{LEXICAL}'")
        self.connection = connection
        self.name = name
        self.version = version
        self.physical = physical_name(name, version)
        self._is_hidden = is_hidden
        self._seen_at = time.monotonic()
        self._is_outdated = False
        self._manifest = manifest
        self._keep_to(info.limits)
        self._indexing = indexing
        self._closed = False

    def __repr__(self) -> str:
        return f"ServerCollection({self.connection.location!r}, {self.name!r})"

    @property
    def manifest(self) -> Manifest:
        """The manifest as read on opening, or as last written here."""
        return self._manifest

    @property
    def is_outdated(self) -> bool:
        """Whether another version is current by now. The server is asked once in `_LOOK_S` seconds at most."""
        if not self._is_hidden and not self._is_outdated and time.monotonic() - self._seen_at > _LOOK_S:
            self._seen_at = time.monotonic()
            with suppress(StoreError):
                self._is_outdated = find_current(self.connection, self.name)[0] != self.version
        return self._is_outdated

    def _confirm(self) -> None:
        """Return when what was written counts; see `confirm_write`."""
        if not self._is_hidden:
            confirm_write(self.connection, self.name, self.version)

    def read_manifest(self) -> Manifest:
        """Read the manifest as it is on the server now."""
        info = self._info()
        self._manifest = parse_manifest(info.metadata, self.name)
        self._keep_to(info.limits)
        return self._manifest

    def _keep_to(self, limits: Limits) -> None:
        """Keep to limits of strict mode."""
        self._limits = limits
        self._page_size = at_most(_PAGE_POINTS, limits.query)
        self._max_values = at_most(_MAX_VALUES, limits.values)

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest in one request; other metadata stays, checkpoints included."""
        self._merge_metadata({MANIFEST_KEY: dump_manifest(manifest)})
        self._confirm()
        self._manifest = manifest

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Record how much of an input is stored."""
        self._merge_metadata({_checkpoint_key(checkpoint.input): checkpoint.model_dump(mode="json")})

    def remove_checkpoint(self, input_name: str) -> None:
        """Remove the checkpoint of an input: its load is complete."""
        self._merge_metadata({_checkpoint_key(input_name): None})

    def _merge_metadata(self, metadata: dict[str, object]) -> None:
        self._check_open()
        self.connection.merge_metadata(self.physical, metadata)

    def _info(self) -> CollectionInfo:
        self._check_open()
        return self.connection.info(self.physical)

    def read_ledger(self) -> Iterator[bytes]:
        """Yield the lines of the ledger of learned names; see `protocol.Collection.read_ledger`."""
        self._check_open()
        return ServerLedger(self.connection, self.name, self.physical).read_lines()

    def append_ledger(self, lines: Sequence[bytes]) -> None:
        """Append lines to the ledger of learned names; see `protocol.Collection.append_ledger`."""
        self._check_open()
        ServerLedger(self.connection, self.name, self.physical).append_lines(lines)

    def writer(self) -> ServerWriter:
        """Start a bulk load: make missing payload indexes, and hold back the graph until `finalize`."""
        self._check_open()
        server_indexing.ensure_payload_indexes(self.connection, self.physical)
        server_indexing.begin_load(self.connection, self.physical)
        dim = self._manifest.dim
        return ServerWriter(self.connection, self.physical, self._limits, dim=dim, confirm=self._confirm)

    def upsert(self, points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray) -> None:
        """Write a few points; search finds them when this returns."""
        self._check_open()
        uploader = Uploader(self.connection, self.physical, self._limits)
        for batch in uploader.batches(check_points(points, vectors, encodable, dim=self._manifest.dim)):
            uploader.send(batch)
        self._confirm()

    def replace_payloads(self, points: Sequence[NamePoint]) -> None:
        """Replace everything but the vectors of stored points."""
        self._check_open()
        Uploader(self.connection, self.physical, self._limits).replace_payloads(points)
        self._confirm()

    def count_entities(self) -> int:
        """Return the exact number of points that carry a canonical name."""
        return self._count_filtered({"must": [{"key": "is_canonical", "match": {"value": True}}]})

    def finalize(self, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Switch indexing on and wait until the server has built the graph.

        Raises:
            StoreError: If the server reports a failure, or makes no progress for `Indexing.stall_s`.
        """
        self._check_open()
        server_indexing.ensure_payload_indexes(self.connection, self.physical)
        server_indexing.end_load(self.connection, self.physical)
        server_indexing.wait_until_built(
            self.connection,
            self.physical,
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

    def _check_open(self) -> None:
        self.connection.guard.check()
        if self._closed:
            raise StoreClosedError(f"Collection '{self.name}' was closed. Open it again.")

    def _engine(self, point_filter: PointFilter, n_wanted: int) -> SearchEngine:
        self._limits.check_query(n_wanted, self.name)
        return SearchEngine(
            run=partial(
                run_queries,
                self.connection,
                self.physical,
                query_filter=to_filter(point_filter),
                quantization=self._manifest.quantization,
                limits=self._limits,
            ),
            read=self._read,
            dim=self._manifest.dim,
            max_points=self._limits.query,
            max_ids=self._limits.ids,
            batch_mentions=_BATCH_MENTIONS,
            map_batches=self.connection.map,
            is_remote=True,
        )

    def _scroll(self, point_filter: PointFilter | None, page: int) -> Iterator[NamePoint]:
        self._check_open()
        for rows in scroll(self.connection, self.physical, page=page, query_filter=to_filter(point_filter)):
            yield from (self._read(row.payload) for row in rows)

    def scroll_rows(self) -> Iterator[NameRows]:
        """Yield all points with their vectors; see `protocol.Collection.scroll_rows`."""
        self._check_open()
        page = at_most(_ROWS, self._limits.query)
        for rows in scroll(self.connection, self.physical, page=page, with_vectors=True):
            points, vectors = [self._read(row.payload) for row in rows], ((row.vector or {}).get(DENSE) for row in rows)
            yield pack_rows(points, vectors, dim=self._manifest.dim)

    def _retrieve(self, ids: list[str]) -> dict[str, NamePoint]:
        self._check_open()
        rows = retrieve(self.connection, self.physical, ids)
        return {str(row.id): self._read(row.payload) for row in rows}

    def _retrieve_vectors(self, ids: list[str]) -> dict[str, list[float]]:
        self._check_open()
        rows = retrieve(self.connection, self.physical, ids, dim=self._manifest.dim)
        return {str(row.id): row.vector[DENSE] for row in rows if row.vector and DENSE in row.vector}

    def _count(self, point_filter: PointFilter | None) -> int:
        return self._count_filtered(to_filter(point_filter))

    def _count_filtered(self, count_filter: ServerFilter | None) -> int:
        body = {"exact": True} if count_filter is None else {"exact": True, "filter": count_filter}
        return self._ask(_Count, "/points/count", body).count

    def _count_vectors(self, vector: str) -> int:
        """Count the points that have this vector, exactly."""
        return self._count_filtered({"must": [{"has_vector": vector}]})

    def _count_values(self, field: str, limit: int) -> dict[str, int]:
        body = {"key": field, "limit": at_most(limit, self._limits.query), "exact": True}
        return {str(hit.value): hit.count for hit in self._ask(_Facet, "/facet", body).hits if hit.count}

    def _delete_matching(self, point_filter: PointFilter) -> int:
        selector = to_filter(point_filter)
        assert selector is not None  # there is at least one condition
        # Counted first: if the answer of a delete is lost and it is sent again, there is nothing left to count.
        n_points = self._count_filtered(selector)
        if n_points:
            self._delete({"filter": selector})
        self._confirm()
        return n_points

    def _delete_ids(self, ids: list[str]) -> None:
        self._delete({"points": ids})
        self._confirm()

    def _delete(self, selector: dict[str, object]) -> None:
        self._ask(object, "/points/delete?wait=true", selector)

    def _read(self, payload: msgspec.Raw) -> NamePoint:
        return NamePoint.from_json(payload, self.name)

    def _ask(self, kind: type[T], path: str, body: Mapping[str, object]) -> T:
        """Post a request to the collection."""
        self._check_open()
        path = "/collections/{name}" + path
        return self.connection.ask(kind, "POST", path, body, name=self.physical, collection=self.name)


class _Count(msgspec.Struct):
    """The answer to a count."""

    count: int


class _Value(msgspec.Struct):
    """A value of a field, and how many points have it."""

    value: str | int | bool
    count: int


class _Facet(msgspec.Struct):
    """The answer to a count by value."""

    hits: list[_Value]


def _checkpoint_key(input_name: str) -> str:
    return CHECKPOINT_PREFIX + sha256(input_name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def dump_manifest(manifest: Manifest) -> dict[str, Any]:
    """Make the metadata of a manifest; checkpoints have keys of their own."""
    return manifest.model_dump(mode="json", exclude={"checkpoints"})


def parse_manifest(metadata: Mapping[str, Any], name: str) -> Manifest:
    """Read the manifest and the checkpoints of a collection from its metadata.

    Raises:
        ManifestError: If there is none, or it cannot be read.
    """
    checkpoints = [value for key, value in metadata.items() if key.startswith(CHECKPOINT_PREFIX) and value]
    manifest = Manifest.parse(metadata.get(MANIFEST_KEY), name)
    try:
        parsed = tuple(map(Checkpoint.model_validate, checkpoints))
    except ValidationError as error:
        raise ManifestError(name, f"a checkpoint is unreadable: {error.errors()[0]['msg']}") from error
    return manifest.with_checkpoints(tuple(sorted(parsed, key=lambda one: one.input)))
