"""One open collection of the embedded store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from typing import Any, cast

import qdrant_edge as edge

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.errors import StoreClosedError
from pearl_qdrant.pieces import pause
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.child_process import EdgeProcess, EdgeWriter
from pearl_qdrant.store.edge.content import IndexState
from pearl_qdrant.store.edge.folder import CollectionFolder
from pearl_qdrant.store.edge.shard import (
    CANONICAL_FIELD,
    check_points,
    edge_payload,
    payload_fields,
    read_payload,
    read_record,
)
from pearl_qdrant.store.edge.view import CollectionView
from pearl_qdrant.store.protocol import Collection, PointFilter
from pearl_qdrant.store.schema import (
    DENSE,
    FILTER_FIELD,
    INDEXED_FIELDS,
    LANGUAGE_FIELD,
    LEXICAL,
    Checkpoint,
    Manifest,
    NamePoint,
    NameRows,
    pack_rows,
)
from pearl_qdrant.store.search import (
    OVERSAMPLING,
    CollectionStatus,
    EnginePoint,
    NameQuery,
    RunQueries,
    SearchEngine,
    n_candidates,
)

_PAGE_POINTS = 1000  # points in one scroll


class EdgeCollection(Collection):
    """One open collection; see `protocol.Collection`. Thread-safe: threads use the engine one after the other."""

    _page_size = _PAGE_POINTS
    _max_values = 1000  # other threads wait meanwhile

    def __init__(self, folder: CollectionFolder | CollectionView) -> None:
        self._folder_open: CollectionFolder | CollectionView | None = folder
        self.name = folder.name

    def __repr__(self) -> str:
        return f"EdgeCollection({self.name!r})"

    @property
    def _folder(self) -> CollectionFolder | CollectionView:
        if self._folder_open is None:
            raise StoreClosedError(f"Collection '{self.name}' was closed. Open it again.")
        self._folder_open.guard.check()
        return self._folder_open

    def _writable(self, doing: str) -> CollectionFolder:
        """The open folder, for a use as in "adding to it"; ReadOnlyError if it was opened read-only."""
        folder = self._folder
        return folder.refuse(doing) if isinstance(folder, CollectionView) else folder

    @property
    def manifest(self) -> Manifest:
        return self._folder.manifest

    @property
    def is_outdated(self) -> bool:
        folder = self._folder
        return isinstance(folder, CollectionView) and folder.is_outdated

    @property
    def state_token(self) -> str | None:
        return self._folder.state_token

    @property
    def ledger_loss(self) -> str | None:
        return self._folder.ledger_loss

    def editing(self) -> AbstractContextManager[None]:
        return self._writable("editing it").editing()

    def read_manifest(self) -> Manifest:
        return self.manifest

    def write_manifest(self, manifest: Manifest) -> None:
        self._writable("writing its manifest").write_manifest(manifest)

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        self.write_manifest(self.manifest.with_checkpoint(checkpoint))

    def remove_checkpoint(self, input_name: str) -> None:
        if any(one.input == input_name for one in self.manifest.checkpoints):
            self.write_manifest(self.manifest.without_input(input_name))

    def read_ledger(self) -> Iterator[bytes]:
        return self._folder.read_ledger()

    def append_ledger(self, lines: Sequence[bytes]) -> None:
        self._writable("learning names").append_ledger(lines)

    def writer(self) -> EdgeWriter:
        return EdgeWriter(self._writable("loading into it"))

    def upsert(self, points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray) -> None:
        folder = self._writable("writing to it")
        batches = check_points(points, vectors, encodable, dim=folder.manifest.dim)
        with folder.changing("writing to it") as shard:
            for batch in batches:
                edge_shard.check_space(folder.path, folder.name)
                edge_shard.upsert(shard, batch)

    def replace_payloads(self, points: Sequence[NamePoint]) -> None:
        folder = self._writable("writing to it")
        payloads = {point.id: edge_payload(point) for point in points}
        edge_shard.check_space(folder.path, folder.name)
        with folder.changing("writing to it") as shard:
            for point_id, payload in payloads.items():
                shard.update(edge.UpdateOperation.overwrite_payload([point_id], payload))

    def count_entities(self) -> int:
        return self._count_values(CANONICAL_FIELD, 2).get("True", 0)

    def finalize(self, on_progress: Callable[[int, int], None] | None = None) -> None:
        folder = self._writable("finalizing it")
        with folder.editing(), folder.shard("finalizing it") as shard:
            n_vectors = edge_shard.count_vectors(shard)
            is_small = edge_shard.needs_no_graph(n_vectors, folder.manifest.dim)
            if is_small and not edge_shard.has_indexes(shard):
                folder.record_change()
                edge_shard.create_indexes(shard)
        report = on_progress or (lambda done, total: None)
        report(0, n_vectors)
        if not is_small:
            self._build_graph(folder)
        report(n_vectors, n_vectors)

    def _build_graph(self, folder: CollectionFolder) -> None:
        # Old and new segments are on the disk together until the new ones are complete.
        used = sum(file.stat().st_blocks * 512 for file in (folder.work_shard / "segments").rglob("*"))
        needed = used + edge_shard.MIN_FREE_BYTES
        edge_shard.check_space(folder.path, folder.name, needed, doing="building its graph")
        with folder.hand_over("being finalized"):
            job = folder.job("finalize")
            child = EdgeProcess(job)
            try:
                answer = child.receive_answer()
                built = replace(job.index or IndexState(0), vectors=answer["indexed"], rewritten=0)
                folder.write_index_state(built)
            except BaseException:
                child.kill()
                raise
            finally:
                child.end()

    def status(self) -> CollectionStatus:
        folder = self._folder
        state = folder.index
        with folder.shard("reading its status") as shard:
            n_vectors = edge_shard.count_vectors(shard)
            n_points = edge_shard.count_points(shard)
            info = shard.info()
            has_indexes = edge_shard.has_indexes(shard)
        # Edge counts every compacted segment as indexed, with a graph or not, and deleted points too.
        indexed = max(0, min(n_vectors, state.vectors - state.rewritten)) if state else 0
        return CollectionStatus(
            points=n_points,
            vectors=n_vectors,
            indexed_vectors=indexed,
            segments=info.segments_count,
            is_finalized=has_indexes and edge_shard.needs_no_graph(n_vectors - indexed, folder.manifest.dim),
            payload_indexes=tuple(name for name in INDEXED_FIELDS if name in info.payload_schema),
        )

    def close(self) -> None:
        folder, self._folder_open = self._folder_open, None
        if folder is not None:
            folder.release()

    def _check_open(self) -> None:
        _ = self._folder  # raises if it is closed

    def _engine(self, point_filter: PointFilter, n_wanted: int) -> SearchEngine:
        folder = self._folder
        return SearchEngine(_make_run(folder, point_filter), self._reader(), folder.manifest.dim)

    def _scroll(self, point_filter: PointFilter | None, page: int) -> Iterator[NamePoint]:
        read, fields = self._reader(), payload_fields(self.manifest)
        for records in self._pages(fields, page=page, scroll_filter=_to_filter(point_filter)):
            yield from (read(record.payload) for record in records)

    def scroll_rows(self) -> Iterator[NameRows]:
        read, fields, dim = self._reader(), payload_fields(self.manifest), self.manifest.dim
        for records in self._pages(fields, with_vector=[DENSE]):
            points = [read(record.payload) for record in records]
            vectors = (cast("dict[str, list[float]]", record.vector or {}).get(DENSE) for record in records)
            yield pack_rows(points, vectors, dim=dim)

    def _pages(
        self,
        fields: list[str] | bool,
        *,
        page: int = _PAGE_POINTS,
        scroll_filter: edge.Filter | None = None,
        with_vector: list[str] | bool = False,
    ) -> Iterator[list[edge.Record]]:
        """Yield the records that pass, by id, with these fields. Between pages, other threads may use the shard."""
        offset = None
        while True:
            request = edge.ScrollRequest(offset, page, scroll_filter, fields, with_vector)
            with self._folder.shard("reading it") as shard:
                records, offset = shard.scroll(request)
            yield records
            if offset is None:
                return

    def _retrieve(self, ids: list[str]) -> dict[str, NamePoint]:
        folder, read = self._folder, self._reader()
        with folder.shard("reading it") as shard:
            records = shard.retrieve([*ids], payload_fields(folder.manifest), False)
            return {str(record.id): read(record.payload) for record in records}

    def _retrieve_vectors(self, ids: list[str]) -> dict[str, list[float]]:
        with self._folder.shard("reading it") as shard:
            records = shard.retrieve([*ids], False, [DENSE])
        named = {str(record.id): cast("dict[str, list[float]]", record.vector or {}) for record in records}
        return {point_id: vectors[DENSE] for point_id, vectors in named.items() if DENSE in vectors}

    def _count(self, point_filter: PointFilter | None) -> int:
        with self._folder.shard("counting its points") as shard:
            return edge_shard.count_points(shard, _to_filter(point_filter))

    def _count_values(self, field: str, limit: int) -> dict[str, int]:
        # Between a large load and `finalize` there are no payload indexes, which a facet needs: count the records.
        with self._folder.shard("counting its types") as shard:
            if edge_shard.has_indexes(shard):
                hits = shard.facet(edge.FacetRequest(field, limit=limit, exact=True))
                return {str(hit.value): hit.count for hit in hits if hit.count}
        counts: Counter[str] = Counter()
        for record in chain.from_iterable(self._pages([field])):
            value = (record.payload or {}).get(field, [])
            counts.update({str(one) for one in (value if isinstance(value, list) else [value])})
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:limit])

    def _delete_matching(self, point_filter: PointFilter) -> int:
        selected = _to_filter(point_filter)
        assert selected is not None  # there is at least one condition
        folder = self._writable("deleting from it")
        with folder.changing("deleting from it") as shard:
            n_points = edge_shard.count_points(shard, selected)
            if n_points:
                shard.update(edge.UpdateOperation.delete_points_by_filter(selected))
        return n_points

    def _delete_ids(self, ids: list[str]) -> None:
        folder = self._writable("deleting from it")
        with folder.changing("deleting from it") as shard:
            shard.update(edge.UpdateOperation.delete_points([*ids]))

    def _reader(self) -> Callable[[Mapping[str, Any] | None], NamePoint]:
        """How payloads are read, decided once for many points."""
        read = read_payload if self._folder.manifest.has_plain_payloads else read_record
        return partial(read, collection=self.name)


NARROW_SHARE = 0.15
"""The graph has extra links for a filter that passes less than this share of the points. For a wider filter ACORN is
used, which also follows neighbours that do not pass. Measured: GPE (42 %) with ACORN 0.97 and 0.93 in 3 to 4 ms; ef 256
without ACORN finds 0.97 and 0.89 in 1.8; ORG with ACORN 0.994 and 0.960 in 3 to 7 ms."""

_FILTERED_QUERIES = 4
"""Queries under a filter in one call of the engine, which holds the interpreter lock meanwhile: 16 took 41 ms, and more
with cold pages; other threads should not wait 50. Without a filter it cost a batch of names 15 % of its rate."""

_QUERIES = 32
"""The same without a filter, where a query takes less; so few that other threads, such as an event loop, go on."""

_FULL_PRECISION = edge.SearchParams(quantization=edge.QuantizationSearchParams(ignore=True))  # for points given by id


def _to_filter(point_filter: PointFilter | None) -> edge.Filter | None:
    if point_filter is None:
        return None
    wanted = {"entity_id": point_filter.entity_ids, "name": point_filter.names, FILTER_FIELD: point_filter.types}
    must: list[edge.FieldCondition | edge.Filter] = [
        edge.FieldCondition(field, match=edge.MatchAny(list(values))) for field, values in wanted.items() if values
    ]
    if point_filter.languages:
        one_of = edge.FieldCondition(LANGUAGE_FIELD, match=edge.MatchAny(list(point_filter.languages)))
        must.append(edge.Filter(should=[one_of, edge.IsEmptyCondition(LANGUAGE_FIELD)]))
    return edge.Filter(must=[*must]) if must else None


def _is_narrow(folder: CollectionFolder | CollectionView, query_filter: edge.Filter) -> bool:
    """Whether a filter passes less than `NARROW_SHARE` of the points, as the payload index estimates."""
    with folder.shard("searching it") as shard:
        n_points = shard.count(edge.CountRequest(exact=False))
        return shard.count(edge.CountRequest(exact=False, filter=query_filter)) < NARROW_SHARE * n_points


def _make_run(folder: CollectionFolder | CollectionView, point_filter: PointFilter) -> RunQueries:
    """Return what runs queries by dense vector or by n-grams under a filter, in one call of the engine. The payloads
    that it finds are records (`shard.py`).
    """
    query_filter = _to_filter(point_filter)

    @cache  # counting takes 0.2 ms, and a search by keys alone does not need it
    def acorn() -> edge.AcornSearchParams | None:
        # The graph has extra links for types alone.
        if query_filter is None or (not point_filter.languages and _is_narrow(folder, query_filter)):
            return None
        return edge.AcornSearchParams(enable=True, max_selectivity=1.0)

    # Quantised vectors only find candidates. Qdrant scores these with the full vectors only if requested.
    rescore = edge.QuantizationSearchParams(rescore=True, oversampling=OVERSAMPLING)
    fields = payload_fields(folder.manifest)

    def request(query: NameQuery) -> edge.QueryRequest:
        params = None
        if query.vector is not None:
            nearest = edge.Query.Nearest(memoryview(query.vector), using=DENSE)  # type: ignore[arg-type] # half a list's time
            params = _FULL_PRECISION
            if query.ids is None:
                ef = n_candidates(query, is_filtered=query_filter is not None)
                params = edge.SearchParams(hnsw_ef=ef, acorn=acorn(), quantization=rescore)
        else:
            assert query.lexical is not None
            indices, values = query.lexical
            nearest = edge.Query.Nearest(edge.SparseVector(indices.tolist(), values.tolist()), using=LEXICAL)
        return edge.QueryRequest(
            query=nearest,
            filter=query_filter if query.ids is None else edge.Filter(must=[edge.HasIdCondition({*query.ids})]),
            limit=query.limit,
            params=params,
            with_payload=fields if query.has_payload else False,
        )

    def run(queries: Sequence[NameQuery]) -> Sequence[Sequence[EnginePoint]]:
        found: list[Sequence[EnginePoint]] = []
        step = _QUERIES if query_filter is None else _FILTERED_QUERIES
        for start in range(0, len(queries), step):
            pause()
            requests = edge.QueryBatchRequest([request(query) for query in queries[start : start + step]])
            with folder.shard("searching it") as shard:
                found += shard.query_batch(requests)
        return found

    return run
