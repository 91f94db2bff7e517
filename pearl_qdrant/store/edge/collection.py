"""One open collection of the embedded store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import islice
from typing import Any

from qdrant_edge import FacetRequest, Filter, Record, ScrollRequest, UpdateOperation

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.errors import StoreClosedError
from pearl_qdrant.lexical.ngrams import SparseRows
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.bulk import EdgeWriter
from pearl_qdrant.store.edge.folder import SHARD_FOLDER, CollectionFolder, IndexState
from pearl_qdrant.store.edge.points import CANONICAL_FIELD, RECORD_FIELD, check_points, checked_payload, read_record
from pearl_qdrant.store.edge.process import EdgeProcess
from pearl_qdrant.store.edge.search import is_narrow, run_queries
from pearl_qdrant.store.hybrid import search_hybrid
from pearl_qdrant.store.protocol import CollectionStatus, IsExactMatch, ScoredName
from pearl_qdrant.store.schema import FACET_FIELDS, INDEXED_FIELDS, Checkpoint, Manifest, NamePoint
from pearl_qdrant.store.search import RunQueries, chunks, search, storable

_PAGE = 1000  # points a scroll
_VALUES = 1000  # values of a filter condition, or points of a delete


class EdgeCollection:
    """One open collection; as in `protocol.Collection`. Thread-safe; threads take turns."""

    def __init__(self, folder: CollectionFolder) -> None:
        self._folder_open: CollectionFolder | None = folder
        self._name = folder.name

    def __repr__(self) -> str:
        return f"EdgeCollection({self._name!r})"

    @property
    def _folder(self) -> CollectionFolder:
        if self._folder_open is None:
            raise StoreClosedError(f"Collection '{self._name}' was closed. Open it again.")
        self._folder_open.owner.check()
        return self._folder_open

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def is_remote(self) -> bool:
        """Never: the engine is in this process."""
        return False

    @property
    def manifest(self) -> Manifest:
        """As read on opening, or as last written in this process."""
        return self._folder.manifest

    def read_manifest(self) -> Manifest:
        """The manifest; no other process can have written it."""
        return self.manifest

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest, atomically."""
        self._folder.write_manifest(manifest)

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Note how far the load of an input has come."""
        self.write_manifest(self.manifest.with_checkpoint(checkpoint))

    def remove_checkpoint(self, input_name: str) -> None:
        """The load of an input is over."""
        self.write_manifest(self.manifest.without_input(input_name))

    def writer(self) -> EdgeWriter:
        """Begin a bulk load, in a child process; as in `protocol.Collection.writer`."""
        return EdgeWriter(self._folder)

    def upsert(self, points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray) -> None:
        """Write a few points; visible to search when this returns."""
        folder = self._folder
        batches = check_points(points, vectors, encodable, dim=folder.manifest.dim)
        with folder.shard("writing to it") as shard:
            for batch in batches:
                edge_shard.check_space(folder.path, folder.name)
                edge_shard.upsert(shard, batch, has_lexical=folder.manifest.has_lexical)

    def search(self, vectors: FloatArray, *, limit: int, types: Sequence[str] = ()) -> list[list[ScoredName]]:
        """Nearest names of each query vector, best first; as in `protocol.Collection.search`.

        Raises:
            ValueError: If the vectors are of another width or not finite, or `limit` is not positive.
        """
        run = self._queries(types)
        if run is None:
            return [[] for _ in range(len(vectors))]
        return search(run, vectors, dim=self.manifest.dim, limit=limit, read=self._read)

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
        run = self._queries(types)
        if run is None:
            return [[] for _ in range(len(vectors))]
        return search_hybrid(
            run,
            vectors,
            lexical if self.manifest.has_lexical else None,
            dim=self.manifest.dim,
            limit=limit,
            lexical_limit=lexical_limit,
            is_exact_match=is_exact_match,
            read=self._read,
        )

    def _queries(self, types: Sequence[str]) -> RunQueries | None:
        """One call of the engine under a type filter; None if nothing can pass it."""
        folder, wanted = self._folder, storable(types)
        if types and not wanted:
            return None
        query_filter = edge_shard.type_filter(wanted) if wanted else None
        narrow = query_filter is not None and is_narrow(folder, query_filter)
        return partial(run_queries, folder, query_filter=query_filter, is_narrow=narrow)

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
        must: list[Any] = []
        for key, values in (("entity_id", entity_ids), ("name", names)):
            if values:
                must.append(edge_shard.any_of(key, storable(values)))
        if types:
            wanted = storable(types)
            if not wanted:
                return []
            must.append(edge_shard.type_filter(wanted))
        found = self._scroll(Filter(must=must), page=min(limit, _PAGE))
        return [self._read(record.payload) for record in islice(found, limit)]

    def get(self, ids: Sequence[str]) -> dict[str, NamePoint]:
        """Points by id, those of them that are there."""
        with self._folder.shard("reading it") as shard:
            records = shard.retrieve([*ids], [RECORD_FIELD], False)
            return {str(record.id): self._read(record.payload) for record in records}

    def replace_payloads(self, points: Sequence[NamePoint]) -> None:
        """Replace all but the vectors of points that are there."""
        folder = self._folder
        payloads = [checked_payload(point) for point in points]
        edge_shard.check_space(folder.path, folder.name)
        with folder.shard("writing to it") as shard:
            for point, payload in zip(points, payloads, strict=True):
                shard.update(UpdateOperation.overwrite_payload([point.id], payload))

    def scroll(self) -> Iterator[NamePoint]:
        """All points, ordered by point id."""
        for record in self._scroll(None, page=_PAGE):
            yield self._read(record.payload)

    def count(self) -> int:
        """Exact number of points; works while a writer is open, too."""
        folder = self._folder
        count_while_lent = folder.count_while_lent
        if count_while_lent is not None:
            return count_while_lent()
        with folder.shard("counting it") as shard:
            return edge_shard.count_points(shard)

    def count_entities(self) -> int:
        """Exact number of points that carry a canonical name."""
        return self._facet(CANONICAL_FIELD, 2).get("True", 0)

    def type_counts(self, limit: int = 1000) -> dict[str, dict[str, int]]:
        """Points by value of each type field, most frequent first."""
        return {key: self._facet(key, limit) for key in FACET_FIELDS}

    def has_type(self, name: str) -> bool:
        """Whether any point passes a filter for this type."""
        if not storable([name]):
            return False
        with self._folder.shard("counting its types") as shard:
            return edge_shard.count_points(shard, edge_shard.type_filter([name])) > 0

    def delete_entities(self, entity_ids: Sequence[str]) -> int:
        """Delete all points of these entities; returns how many points went."""
        deleted = 0
        for values in chunks(storable(dict.fromkeys(entity_ids)), _VALUES):
            selected = Filter(must=[edge_shard.any_of("entity_id", values)])
            with self._folder.shard("deleting from it") as shard:
                n_points = edge_shard.count_points(shard, selected)
                if n_points:
                    shard.update(UpdateOperation.delete_points_by_filter(selected))
            deleted += n_points
        return deleted

    def delete_points(self, ids: AbstractSet[str]) -> None:
        """Delete points by id; ids that are not there do not matter."""
        for values in chunks(sorted(ids), _VALUES):
            with self._folder.shard("deleting from it") as shard:
                shard.update(UpdateOperation.delete_points([*values]))

    def finalize(self, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Build the graph in a child process; as in `protocol.Collection.finalize`.

        Edge does not tell how far it is: `on_progress` is called at the beginning and at the end. Meanwhile the
        collection cannot be searched; before and after it can. A child that is killed loses nothing.
        """
        folder = self._folder
        with folder.shard("finalizing it") as shard:
            n_vectors = edge_shard.count_vectors(shard)
            is_small = self._is_small(n_vectors)
            if is_small:
                edge_shard.create_indexes(shard)
        report = on_progress or (lambda done, total: None)
        report(0, n_vectors)
        if not is_small:
            self._build_graph()
        report(n_vectors, n_vectors)

    def _build_graph(self) -> None:
        """Let a child process build it."""
        folder = self._folder
        # Old and new segments lie side by side until the new ones are whole.
        used = sum(file.stat().st_blocks * 512 for file in (folder.path / SHARD_FOLDER / "segments").rglob("*"))
        needed = used + edge_shard.MIN_FREE_BYTES
        edge_shard.check_space(folder.path, folder.name, needed, doing="building its graph")
        with folder.lent("being finalized"):
            job = folder.finalize_job()
            child = EdgeProcess(job)
            try:
                answer = child.wait_answer()
                built = IndexState(answer["indexed"], m=job.graph_m, ef_construct=job.graph_ef_construct)
                folder.write_index_state(built)
            except BaseException:
                child.kill()
                raise
            finally:
                child.end()

    def status(self) -> CollectionStatus:
        """How the collection stands."""
        folder = self._folder
        state = folder.index_state()
        with folder.shard("looking at it") as shard:
            n_vectors = edge_shard.count_vectors(shard)
            n_points = edge_shard.count_points(shard)
            info = shard.info()
            has_indexes = edge_shard.has_indexes(shard)
        # Edge's own count takes every compacted segment for indexed, with a graph or not, and deleted points too.
        indexed = max(0, min(n_vectors, state.vectors - state.rewritten)) if state else 0
        return CollectionStatus(
            points=n_points,
            vectors=n_vectors,
            indexed_vectors=indexed,
            segments=info.segments_count,
            is_finalized=has_indexes and self._is_small(n_vectors - indexed),
            payload_indexes=tuple(name for name in INDEXED_FIELDS if name in info.payload_schema),
        )

    def close(self) -> None:
        """Close it; the last to do so in this process lets other processes in. Closing twice is no error.

        In a process that was forked from the one that opened it, the other one's stays open.
        """
        folder, self._folder_open = self._folder_open, None
        if folder is not None:
            folder.release()

    def _is_small(self, n_vectors: int) -> bool:
        """Whether so many vectors need no graph."""
        return n_vectors * self.manifest.dim * 4 <= edge_shard.INDEXING_THRESHOLD_KB * 1024

    def _read(self, payload: Mapping[str, Any] | None) -> NamePoint:
        return read_record(payload, self._name)

    def _facet(self, key: str, limit: int) -> dict[str, int]:
        """Points by value, most frequent first; counted by hand while a load has left no payload indexes."""
        folder = self._folder
        with folder.shard("counting its types") as shard:
            if edge_shard.has_indexes(shard):
                hits = shard.facet(FacetRequest(key, limit=limit, exact=True))
                return {str(hit.value): hit.count for hit in hits if hit.count}
        counts: Counter[str] = Counter()
        for record in self._scroll(None, page=_PAGE):
            value = (record.payload or {}).get(key, [])
            counts.update({str(one) for one in (value if isinstance(value, list) else [value])})
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:limit])

    def _scroll(self, scroll_filter: Filter | None, *, page: int) -> Iterator[Record]:
        """Points that pass the filter, by id; other threads may come in between pages."""
        offset = None
        while True:
            request = ScrollRequest(offset=offset, limit=page, filter=scroll_filter, with_payload=True)
            with self._folder.shard("reading it") as shard:
                records, offset = shard.scroll(request)
            yield from records
            if offset is None:
                return
