"""One collection on a Qdrant server, as `protocol.Collection` has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from hashlib import sha256
from heapq import merge
from itertools import islice, product
from typing import Any

import msgspec
from pydantic import ValidationError
from qdrant_client import models

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.errors import ManifestError, StoreClosedError
from pearl_qdrant.lexical.ngrams import SparseRows
from pearl_qdrant.store.hybrid import search_hybrid
from pearl_qdrant.store.protocol import CollectionStatus, IsExactMatch, ScoredName, share_indexed
from pearl_qdrant.store.schema import DENSE, FACET_FIELDS, LEXICAL, Checkpoint, Manifest, NamePoint
from pearl_qdrant.store.search import RunQueries, chunks, search, storable
from pearl_qdrant.store.server import indexing as server_indexing
from pearl_qdrant.store.server.connection import Connection
from pearl_qdrant.store.server.indexing import Indexing
from pearl_qdrant.store.server.limits import Limits, at_most
from pearl_qdrant.store.server.points import check_points
from pearl_qdrant.store.server.queries import run_queries, type_filter
from pearl_qdrant.store.server.upload import ServerWriter, Uploader

MANIFEST_KEY = "pearl_qdrant"
"""Where the manifest lies in the collection's metadata; other keys there are left alone."""

CHECKPOINT_PREFIX = "pearl_qdrant_checkpoint_"
"""Each input that is being loaded has a key of its own, so that processes do not overwrite each other's."""

_PAGE = 512  # points a scroll request
_MENTIONS = 32  # of one request: enough to hide a round trip, few enough for several requests in flight
_VALUES = 512  # values a filter condition


class ServerCollection:
    """One collection on a server; as in `protocol.Collection`. Searches may run in many threads."""

    def __init__(
        self, connection: Connection, name: str, manifest: Manifest, *, limits: Limits, indexing: Indexing
    ) -> None:
        self._connection = connection
        self._client = connection.client
        self._name = name
        self._manifest = manifest
        self._limits = limits
        self._indexing = indexing
        self._closed = False

    def __repr__(self) -> str:
        return f"ServerCollection({self._connection.location!r}, {self._name!r})"

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def is_remote(self) -> bool:
        """Whether searching it is mostly waiting for the server; not in local mode."""
        return not self._connection.is_local

    @property
    def manifest(self) -> Manifest:
        """As read on opening, or as last written here."""
        return self._manifest

    def read_manifest(self) -> Manifest:
        """The manifest as it is now."""
        info = self._call(lambda: self._client.get_collection(self._name))
        self._manifest = parse_manifest(info.config.metadata, self._name)
        self._limits = Limits.of(info)
        return self._manifest

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest in one request; other metadata, and so the checkpoints, stay."""
        self._merge_metadata({MANIFEST_KEY: manifest.model_dump(mode="json", exclude={"checkpoints"})})
        self._manifest = manifest

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Note how far the load of an input has come."""
        self._merge_metadata({_checkpoint_key(checkpoint.input): checkpoint.model_dump(mode="json")})

    def remove_checkpoint(self, input_name: str) -> None:
        """The load of an input is over."""
        self._merge_metadata({_checkpoint_key(input_name): None})

    def _merge_metadata(self, metadata: dict[str, object]) -> None:
        """Set some keys of the collection's metadata, in one request; None removes one."""
        self._call(lambda: self._client.update_collection(self._name, metadata=metadata))

    def writer(self) -> ServerWriter:
        """Begin a bulk load: indexes are there, and the graph waits for `finalize`."""
        self._check_open()
        server_indexing.ensure_payload_indexes(self._connection, self._name)
        server_indexing.begin_load(self._connection, self._name)
        return ServerWriter(self._connection, self._name, self._manifest, self._limits)

    def upsert(self, points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray) -> None:
        """Write a few points; visible to search when this returns."""
        self._check_open()
        uploader = Uploader(self._connection, self._name, self._limits)
        for batch in uploader.batches(check_points(points, vectors, encodable, self._manifest)):
            uploader.send(batch)

    def search(self, vectors: FloatArray, *, limit: int, types: Sequence[str] = ()) -> list[list[ScoredName]]:
        """Nearest names of each query vector, best first; as in `protocol.Collection.search`.

        Raises:
            ValueError: If the vectors are of another width or not finite, or `limit` is not positive.
        """
        self._check_open()
        run = self._queries(types)
        if run is None:
            return [[] for _ in range(len(vectors))]
        self._limits.check_query(limit, self._name)
        return search(run, vectors, dim=self._manifest.dim, limit=limit, read=self._read, most=self._limits.query)

    def search_hybrid(
        self,
        vectors: FloatArray,
        lexical: SparseRows,
        *,
        limit: int,
        lexical_limit: int,
        types: Sequence[str] = (),
        is_exact_match: IsExactMatch | None = None,
    ) -> list[list[ScoredName]]:
        """Names near by dense vector or by n-grams; as in `protocol.Collection.search_hybrid`.

        Raises:
            ValueError: If vectors and rows do not pair up, are of another width or not finite, or a limit is not
                positive.
        """
        self._check_open()
        run = self._queries(types)
        if run is None:
            return [[] for _ in range(len(vectors))]
        self._limits.check_query(lexical_limit, self._name)  # what the caller wants; `limit` is some more
        return search_hybrid(
            run,
            vectors,
            lexical if self._manifest.has_lexical else None,
            dim=self._manifest.dim,
            limit=limit,
            lexical_limit=lexical_limit,
            is_exact_match=is_exact_match,
            read=self._read,
            most=self._limits.query,
            together=_MENTIONS,
            run_parts=self._connection.map,
            is_far=True,
        )

    def _queries(self, types: Sequence[str]) -> RunQueries | None:
        """One request under a type filter; None if nothing can pass it."""
        query_filter = type_filter(types)
        if types and query_filter is None:
            return None
        return partial(
            run_queries,
            self._connection,
            self._name,
            query_filter=query_filter,
            quantization=self._manifest.quantization,
            limits=self._limits,
        )

    def _read(self, payload: Mapping[str, Any] | msgspec.Raw | None) -> NamePoint:
        if isinstance(payload, msgspec.Raw):
            return NamePoint.from_json(payload, self._name)
        return NamePoint.from_payload(payload, self._name)

    def find(
        self, *, entity_ids: Sequence[str] = (), names: Sequence[str] = (), types: Sequence[str] = (), limit: int
    ) -> list[NamePoint]:
        """Points by exact entity id or name, ordered by point id; both given means both must match.

        Raises:
            ValueError: If neither ids nor names are given, or `limit` is not positive.
        """
        if not entity_ids and not names:
            raise ValueError("find needs entity_ids or names")
        if limit < 1:
            raise ValueError(f"limit must be positive, it is {limit}")
        types_match = type_filter(types)
        if types and types_match is None:
            return []
        fixed = [] if types_match is None else [types_match]
        groups: list[list[models.Condition]] = []
        for key, values in (("entity_id", entity_ids), ("name", names)):
            if values:
                parts = chunks(storable(dict.fromkeys(values)), at_most(_VALUES, self._limits.values))
                groups.append([models.FieldCondition(key=key, match=models.MatchAny(any=part)) for part in parts])
        page = min(limit, self._page_size)
        # Without a storable value there is no part, and so no filter: nothing is found.
        filters = [models.Filter(must=[*parts, *fixed]) for parts in product(*groups)]
        pages = [self._scroll(one, page=page) for one in filters]
        return list(islice(merge(*pages, key=lambda point: point.id), limit))

    def get(self, ids: Sequence[str]) -> dict[str, NamePoint]:
        """Points by id, those of them that are there."""
        found = {}
        for some in chunks(ids, self._page_size):
            records = self._call(partial(self._client.retrieve, self._name, some, with_payload=True))
            found.update({str(r.id): self._read(r.payload) for r in records})
        return found

    def replace_payloads(self, points: Sequence[NamePoint]) -> None:
        """Replace all but the vectors of points that are there."""
        self._check_open()
        uploader = Uploader(self._connection, self._name, self._limits)
        uploader.replace_payloads(points)

    def scroll(self) -> Iterator[NamePoint]:
        """All points, ordered by point id."""
        return self._scroll(None, page=self._page_size)

    def count(self) -> int:
        """Exact number of points."""
        return self._count(None)

    def count_entities(self) -> int:
        """Exact number of points that carry a canonical name."""
        canonical = models.FieldCondition(key="is_canonical", match=models.MatchValue(value=True))
        return self._count(models.Filter(must=[canonical]))

    def type_counts(self, limit: int = 1000) -> dict[str, dict[str, int]]:
        """Points by value of each type field."""
        counts = {}
        for key in FACET_FIELDS:
            most = at_most(limit, self._limits.query)
            answer = self._call(partial(self._client.facet, self._name, key, limit=most, exact=True))
            counts[key] = {str(hit.value): hit.count for hit in answer.hits if hit.count}
        return counts

    def has_type(self, name: str) -> bool:
        """Whether any point passes a filter for this type."""
        wanted = type_filter([name])
        return wanted is not None and self._count(wanted) > 0

    def delete_entities(self, entity_ids: Sequence[str]) -> int:
        """Delete all points of these entities; returns how many points went."""
        deleted = 0
        for values in chunks(storable(dict.fromkeys(entity_ids)), at_most(_VALUES, self._limits.values)):
            condition = models.FieldCondition(key="entity_id", match=models.MatchAny(any=values))
            selector = models.Filter(must=[condition])
            # Counted before: a try whose answer was lost has deleted already.
            n_points = self._count(selector)
            if n_points:
                self._call(partial(self._client.delete, self._name, selector, wait=True))
            deleted += n_points
        return deleted

    def delete_points(self, ids: AbstractSet[str]) -> None:
        """Delete points by id; ids that are not there do not matter."""
        for some in chunks(sorted(ids), at_most(_VALUES, self._limits.values)):
            points: list[models.ExtendedPointId] = [*some]
            selector = models.PointIdsList(points=points)
            self._call(partial(self._client.delete, self._name, selector, wait=True))

    def finalize(self, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Switch indexing on and wait until the server has built the graph.

        Raises:
            StoreError: If the server reports a failure, or makes no progress for `Indexing.stall_s`.
        """
        self._check_open()
        server_indexing.ensure_payload_indexes(self._connection, self._name)
        server_indexing.end_load(self._connection, self._name)
        server_indexing.wait_until_built(self.status, self._connection, self._name, self._indexing, on_progress)

    def status(self) -> CollectionStatus:
        """How the collection stands."""
        info = self._call(lambda: self._client.get_collection(self._name))
        n_vectors = self._count_with(DENSE)
        n_sparse = self._count_with(LEXICAL) if LEXICAL in (info.config.params.sparse_vectors or {}) else 0
        return CollectionStatus(
            points=self._count(None),
            vectors=n_vectors,
            indexed_vectors=share_indexed(info.indexed_vectors_count or 0, n_vectors, n_sparse),
            segments=info.segments_count,
            is_finalized=server_indexing.is_built(
                info, n_vectors=n_vectors, dim=self._manifest.dim, is_local=self._connection.is_local
            ),
            payload_indexes=tuple(sorted(info.payload_schema)),
        )

    def close(self) -> None:
        """Nothing is held open, but using it further is an error."""
        self._closed = True

    @property
    def _page_size(self) -> int:
        """Points a scroll request."""
        return at_most(_PAGE, self._limits.query)

    def _check_open(self) -> None:
        self._connection.owner.check()
        if self._closed:
            raise StoreClosedError(f"Collection '{self._name}' was closed. Open it again.")

    def _call(self, request: Callable[[], Any]) -> Any:
        self._check_open()
        return self._connection.call(request, collection=self._name)

    def _count(self, count_filter: models.Filter | None) -> int:
        answer = self._call(lambda: self._client.count(self._name, count_filter=count_filter, exact=True))
        return int(answer.count)

    def _count_with(self, vector: str) -> int:
        """Exact number of points with this vector."""
        return self._count(models.Filter(must=[models.HasVectorCondition(has_vector=vector)]))

    def _scroll(self, scroll_filter: models.Filter | None, *, page: int) -> Iterator[NamePoint]:
        """Points that pass the filter, by id, a page a request."""
        offset: models.ExtendedPointId | None = None
        while True:
            records, offset = self._page(scroll_filter, page, offset)
            for record in records:
                yield self._read(record.payload)
            if offset is None:
                return

    def _page(
        self, scroll_filter: models.Filter | None, limit: int, offset: models.ExtendedPointId | None
    ) -> tuple[list[models.Record], models.ExtendedPointId | None]:
        """One request of a scroll, and where the next one begins."""
        answer: tuple[list[models.Record], models.ExtendedPointId | None] = self._call(
            lambda: self._client.scroll(self._name, scroll_filter=scroll_filter, limit=limit, offset=offset)
        )
        return answer


def _checkpoint_key(input_name: str) -> str:
    return CHECKPOINT_PREFIX + sha256(input_name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def parse_manifest(metadata: Mapping[str, Any] | None, name: str) -> Manifest:
    """The manifest, with the checkpoints that lie beside it.

    Raises:
        ManifestError: If there is none, or it cannot be read.
    """
    metadata = metadata or {}
    checkpoints = [value for key, value in metadata.items() if key.startswith(CHECKPOINT_PREFIX) and value]
    manifest = Manifest.parse(metadata.get(MANIFEST_KEY), name)
    try:
        parsed = tuple(map(Checkpoint.model_validate, checkpoints))
    except ValidationError as error:
        raise ManifestError(name, f"a checkpoint is unreadable: {error.errors()[0]['msg']}") from error
    return manifest.with_checkpoints(tuple(sorted(parsed, key=lambda one: one.input)))
