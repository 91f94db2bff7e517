"""A Qdrant server for tests: real HTTP in front of qdrant-client's local mode, with faults on order.

It answers qdrant-client's REST requests from one `QdrantClient(":memory:")` under one lock. What local mode lacks is
kept here: the payload schema, strict mode (no filter on a field without an index), a limit of points or bytes a
request, and an optimizer that is busy for a few looks after indexing is switched on. Each entry of `faults` is used up
by the next request that it matches.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Callable
from typing import Any, final
from urllib.parse import unquote

from pydantic import TypeAdapter
from qdrant_client import QdrantClient, models
from qdrant_double_http import Answered, DoubleServer, Fault, Kind, Refused, handler_of


@final
class QdrantDouble:
    """The double; a context manager that serves on a free port of 127.0.0.1.

    Attributes:
        faults: Scripted faults, first match first.
        requests: "METHOD /path" of all requests, in order of arrival.
        upsert_sizes: Points of each upsert that was applied, in order.
        headers: Headers of the last request, with lower-case names.
        n_compressed: How many answers were compressed.
        before_fault: Called, once a fault is due, before it happens.
        strict: Refuse filters on fields without an index.
        limits: Numbers of strict mode by the server's names, told with the collection, and enforced.
        n_refused: Requests refused for one of them.
        drop_every: Every so many requests are lost: by turns before they are applied, after, and with a 503.
        max_points, max_bytes: Answer 413 to an upsert over this.
        optimizer_polls: For so many looks the optimizer is busy after indexing is switched on.
        optimizer_error: What the optimizer failed with.
        keeps_metadata: Whether it stores metadata at all; servers before 1.16 do not.
        version, read_only, cluster, replica_states: What it says of itself, and of its replicas on another node.
        snapshots: What was backed up, by name.
        created: What each collection was created with.
        schema, config: Payload indexes and optimizer settings by collection.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.client = QdrantClient(":memory:")
        self._tls = tls
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self._server = DoubleServer(("127.0.0.1", 0), handler_of(self), tls)
        self._address = self._server.server_address
        self._thread: threading.Thread | None = None
        self.reset()

    def reset(self) -> None:
        """Forget everything, as if started anew; a new client in local mode would cost a fifth of a second."""
        self.stopping.set()  # ends requests that hang
        self.stopping = threading.Event()
        for collection in self.client.get_collections().collections:
            self.client.delete_collection(collection.name)
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.upsert_sizes: list[int] = []
        self.headers: dict[str, str] = {}
        self.n_compressed = 0
        self.before_fault: Callable[[], None] | None = None
        self.strict = False
        self.limits: dict[str, Any] = {}
        self.n_refused = 0
        self.drop_every = 0
        self.max_points: int | None = None
        self.max_bytes: int | None = None
        self.optimizer_polls = 0
        self.optimizer_error: str | None = None
        self.keeps_metadata = True
        self.snapshots: dict[str, bytes] = {}
        self.version = "1.19.0"
        self.read_only = False
        self.cluster: dict[str, Any] = {"status": "disabled"}
        self.replica_states: list[str] = []
        self.schema: dict[str, dict[str, str]] = {}
        self.created: dict[str, dict[str, Any]] = {}
        self.config: dict[str, dict[str, Any]] = {}
        self.busy: dict[str, int] = {}

    @property
    def n_connections(self) -> int:
        """Connections that clients have made so far."""
        return self._server.n_connections

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._address[1]}"

    def __enter__(self) -> QdrantDouble:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()
        self.client.close()

    def start(self) -> None:
        """Listen; after `stop` on the same port again, with all that was stored."""
        if self._server.is_closed:
            self._server = DoubleServer(self._address, handler_of(self), self._tls)
            self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End all connections, and accept none."""
        self.stopping.set()
        if self._thread is not None:
            self._server.shutdown()
            self._server.close_connections()
            self._server.server_close()
            self._thread.join()
            self._thread = None

    def take_fault(self, request: str) -> Fault | None:
        """The fault for this request, used up."""
        with self.lock:
            if self.drop_every and len(self.requests) % self.drop_every == 0:
                kinds: tuple[Kind, ...] = ("drop", "apply_then_drop", "status")
                return Fault(kinds[len(self.requests) // self.drop_every % len(kinds)])
            for fault in self.faults:
                if re.match(fault.match, request):
                    self.faults.remove(fault)
                    if self.before_fault is not None:
                        self.before_fault()
                    return fault
        return None

    def answer(self, method: str, path: str, body: bytes) -> Any:
        """The `result` for a request; raises `Refused`."""
        for route_method, pattern, handle in _ROUTES:
            match = re.fullmatch(pattern, path)
            if route_method == method and match:
                name = unquote(match.groupdict().get("name", ""))
                with self.lock:
                    if name and not self.client.collection_exists(name) and handle not in _MAY_BE_ABSENT:
                        raise Refused(404, f"Not found: Collection `{name}` doesn't exist!")
                    try:
                        return handle(self, name, body)
                    except ValueError as error:
                        raise Refused(400, f"Bad request: {error}") from error
        raise Refused(404, "")

    def check_limit(self, name: str, value: float | None, called: str) -> None:
        """Refuse more than a limit of strict mode, in the server's words."""
        limit = self.limits.get(name)
        if limit is not None and value is not None and value > limit:
            self.n_refused += 1
            raise Refused(
                400,
                f'Bad request: Limit exceeded {value} > {limit} for "{called}". Help: Reduce the "{called}" parameter.',
            )

    def check_filter(self, name: str, wanted: models.Filter | None) -> None:
        """Refuse a filter on a field without an index, as strict mode does, and a condition that is too large."""
        for size in _condition_sizes(wanted):
            self.check_limit("condition_max_size", size, "condition limit")
        if not self.strict or wanted is None:
            return
        for key, kind in _filter_keys(wanted):
            if self.schema.get(name, {}).get(key) != kind:
                raise Refused(
                    400,
                    f'Bad request: Index required but not found for "{key}" of one of the following types: [{kind}]. '
                    "Help: Create an index for this key or use a different filter.",
                )


def _condition_sizes(condition: Any) -> list[int]:
    """Values of each condition in a filter."""
    if isinstance(condition, models.Filter):
        parts = [part for clause in (condition.must, condition.should, condition.must_not) for part in clause or []]
        return [size for part in parts for size in _condition_sizes(part)]
    if isinstance(condition, models.HasIdCondition):
        return [len(condition.has_id)]
    match = getattr(condition, "match", None)
    return [len(match.any)] if isinstance(match, models.MatchAny) else []


def _filter_keys(condition: Any) -> list[tuple[str, str]]:
    """(field, kind of index) of all conditions in a filter."""
    if isinstance(condition, models.Filter):
        parts = [part for clause in (condition.must, condition.should, condition.must_not) for part in clause or []]
        return [key for part in parts for key in _filter_keys(part)]
    if isinstance(condition, models.FieldCondition):
        is_bool = isinstance(condition.match, models.MatchValue) and isinstance(condition.match.value, bool)
        return [(condition.key, "bool" if is_bool else "keyword")]
    if isinstance(condition, models.IsEmptyCondition):
        return [(condition.is_empty.key, "keyword")]
    return []


def _parse(model: Any, body: bytes) -> Any:
    return TypeAdapter(model).validate_json(body)


def _info(double: QdrantDouble, name: str, body: bytes) -> Any:
    raise Answered({"title": "qdrant - vector search engine", "version": double.version})


def _aliases(double: QdrantDouble, name: str, body: bytes) -> Any:
    if double.read_only:
        raise Refused(403, "Forbidden: Global manage access is required")
    return True


def _cluster(double: QdrantDouble, name: str, body: bytes) -> Any:
    return double.cluster


def _placed(double: QdrantDouble, name: str, body: bytes) -> Any:
    shards = [{"shard_id": i, "peer_id": 2, "state": state} for i, state in enumerate(double.replica_states)]
    return {"peer_id": 1, "shard_count": 1, "local_shards": [], "remote_shards": shards, "shard_transfers": []}


def _snapshot(double: QdrantDouble, name: str, body: bytes) -> Any:
    """Keep all of a collection under a name, as the server does."""
    called = f"{name}-{len(double.snapshots) + 1}.snapshot"
    params = double.client.get_collection(name).config.params
    points, _ = double.client.scroll(name, limit=1_000_000, with_payload=True, with_vectors=True)
    kept = {
        "params": params.model_dump(mode="json"),
        "metadata": double.client.get_collection(name).config.metadata,
        "schema": double.schema[name],
        "points": [point.model_dump(mode="json", include={"id", "payload", "vector"}) for point in points],
    }
    double.snapshots[called] = json.dumps(kept).encode()
    return {"name": called, "creation_time": "2026-11-22T00:00:00", "size": len(double.snapshots[called])}


def _download(double: QdrantDouble, name: str, body: bytes) -> Any:
    raise Answered(double.snapshots[double.requests[-1].rpartition("/")[2]])


def _forget(double: QdrantDouble, name: str, body: bytes) -> Any:
    del double.snapshots[double.requests[-1].rpartition("/")[2]]
    return True


def _restore(double: QdrantDouble, name: str, body: bytes) -> Any:
    """Make a collection of an uploaded snapshot, whatever was there."""
    kept = json.loads(body[body.index(b'{"params"') : body.rindex(b"}") + 1])
    params = models.CollectionParams.model_validate(kept["params"])
    double.client.delete_collection(name)
    double.client.create_collection(
        name,
        vectors_config=params.vectors,
        sparse_vectors_config=params.sparse_vectors,
        metadata=kept["metadata"],
    )
    double.schema[name], double.config[name] = kept["schema"], {}
    if kept["points"]:
        double.client.upsert(name, [models.PointStruct.model_validate(point) for point in kept["points"]])
    return True


def _list(double: QdrantDouble, name: str, body: bytes) -> Any:
    return double.client.get_collections()


def _exists(double: QdrantDouble, name: str, body: bytes) -> Any:
    return {"exists": double.client.collection_exists(name)}


def _get(double: QdrantDouble, name: str, body: bytes) -> Any:
    """The collection's description, with what local mode does not know."""
    info = double.client.get_collection(name).model_dump(mode="json", exclude_none=True)
    config = double.config[name]
    info["payload_schema"] = {k: {"data_type": v, "points": 0} for k, v in double.schema[name].items()}
    info["config"]["optimizer_config"].update(config)
    if not double.keeps_metadata:
        info["config"].pop("metadata", None)
    if double.limits:
        info["config"]["strict_mode_config"] = {"enabled": True, **double.limits}
    if double.optimizer_error is not None:
        info["optimizer_status"] = {"error": double.optimizer_error}
    is_indexing = config.get("indexing_threshold") != 0
    if is_indexing and double.busy.get(name, 0) > 0:
        double.busy[name] -= 1
        info["status"] = "yellow"
        info["indexed_vectors_count"] = 0
    elif is_indexing:
        info["indexed_vectors_count"] = sum(_count_with(double, name, vector) for vector in ("dense", "lexical"))
    return info


def _count_with(double: QdrantDouble, name: str, vector: str) -> int:
    """Points with this vector, dense or sparse: a server counts both as indexed."""
    params = double.client.get_collection(name).config.params
    named = params.vectors if isinstance(params.vectors, dict) else {}
    if vector not in {**named, **(params.sparse_vectors or {})}:
        return 0
    wanted = models.Filter(must=[models.HasVectorCondition(has_vector=vector)])
    return double.client.count(name, count_filter=wanted, exact=True).count


def _create(double: QdrantDouble, name: str, body: bytes) -> Any:
    wanted = _parse(models.CreateCollection, body)
    if double.client.collection_exists(name):
        raise Refused(409, f"Wrong input: Collection `{name}` already exists!")
    double.schema[name], double.config[name] = {}, {}
    double.created[name] = wanted.model_dump(mode="json", exclude_none=True)
    return double.client.create_collection(
        name,
        vectors_config=wanted.vectors,
        sparse_vectors_config=wanted.sparse_vectors,
        metadata=wanted.metadata,
    )


def _update(double: QdrantDouble, name: str, body: bytes) -> Any:
    wanted = _parse(models.UpdateCollection, body)
    if wanted.optimizers_config is not None:
        double.config[name].update(wanted.optimizers_config.model_dump(exclude_none=True))
        double.busy[name] = double.optimizer_polls
    return double.client.update_collection(name, metadata=wanted.metadata)


def _delete(double: QdrantDouble, name: str, body: bytes) -> Any:
    return double.client.delete_collection(name)


def _index(double: QdrantDouble, name: str, body: bytes) -> Any:
    wanted = _parse(models.CreateFieldIndex, body)
    double.schema[name][wanted.field_name] = str(wanted.field_schema.value)
    return {"operation_id": 0, "status": "completed"}


def _optimizations(double: QdrantDouble, name: str, body: bytes) -> Any:
    left = double.busy.get(name, 0)
    summary = {"queued_optimizations": left, "queued_segments": left, "queued_points": 0, "idle_segments": 1}
    return {"summary": summary, "running": []}


def _upsert(double: QdrantDouble, name: str, body: bytes) -> Any:
    points = _parse(models.PointsList, body).points
    double.check_limit("upsert_max_batchsize", len(points), "upsert limit")
    too_many = double.max_points is not None and len(points) > double.max_points
    if too_many or (double.max_bytes is not None and len(body) > double.max_bytes):
        raise Refused(413, "Payload Too Large")
    double.upsert_sizes.append(len(points))
    return double.client.upsert(name, points)


def _retrieve(double: QdrantDouble, name: str, body: bytes) -> Any:
    request = _parse(models.PointRequest, body)
    found = double.client.retrieve(name, request.ids, with_payload=request.with_payload or True)
    return [record.model_dump(mode="json") for record in found]


def _batch(double: QdrantDouble, name: str, body: bytes) -> Any:
    operations = _parse(models.UpdateOperations, body).operations
    return [result.model_dump(mode="json") for result in double.client.batch_update_points(name, operations)]


def _delete_points(double: QdrantDouble, name: str, body: bytes) -> Any:
    selector = _parse(models.PointsSelector, body)
    double.check_filter(name, getattr(selector, "filter", None))
    return double.client.delete(name, selector)


def _count(double: QdrantDouble, name: str, body: bytes) -> Any:
    wanted = _parse(models.CountRequest, body)
    double.check_filter(name, wanted.filter)
    return double.client.count(name, count_filter=wanted.filter, exact=wanted.exact)


def _scroll(double: QdrantDouble, name: str, body: bytes) -> Any:
    wanted = _parse(models.ScrollRequest, body)
    double.check_filter(name, wanted.filter)
    double.check_limit("max_query_limit", wanted.limit, "limit")
    points, following = double.client.scroll(
        name,
        scroll_filter=wanted.filter,
        limit=wanted.limit,
        offset=wanted.offset,
        with_payload=wanted.with_payload,
        with_vectors=wanted.with_vector or False,
    )
    return {"points": [p.model_dump(mode="json") for p in points], "next_page_offset": following}


def _query_batch(double: QdrantDouble, name: str, body: bytes) -> Any:
    searches = _parse(models.QueryRequestBatch, body).searches
    double.check_limit("search_max_batchsize", len(searches), "search batch limit")
    for search in searches:
        double.check_filter(name, search.filter)
        double.check_limit("max_query_limit", search.limit, "limit")
        if search.params is not None:
            double.check_limit("search_max_hnsw_ef", search.params.hnsw_ef, "hnsw_ef")
            quantization = search.params.quantization
            double.check_limit("search_max_oversampling", quantization and quantization.oversampling, "oversampling")
        search.params = None
    answers = double.client.query_batch_points(name, requests=searches)
    return [answer.model_dump(mode="json") for answer in answers]


def _facet(double: QdrantDouble, name: str, body: bytes) -> Any:
    wanted = _parse(models.FacetRequest, body)
    double.check_limit("max_query_limit", wanted.limit, "limit")
    if wanted.key not in double.schema[name]:
        raise Refused(400, f"Bad request: Field index is needed to facet on `{wanted.key}`")
    return double.client.facet(name, wanted.key, facet_filter=wanted.filter, limit=wanted.limit or 10)


_COLLECTION = r"/collections/(?P<name>[^/]+)"

_MAY_BE_ABSENT = (_create, _exists, _delete, _restore)

_ROUTES: list[tuple[str, str, Callable[[QdrantDouble, str, bytes], Any]]] = [
    ("GET", "/", _info),
    ("GET", "/cluster", _cluster),
    ("POST", "/collections/aliases", _aliases),
    ("GET", "/collections", _list),
    ("GET", _COLLECTION, _get),
    ("PUT", _COLLECTION, _create),
    ("PATCH", _COLLECTION, _update),
    ("DELETE", _COLLECTION, _delete),
    ("GET", _COLLECTION + "/exists", _exists),
    ("POST", _COLLECTION + "/snapshots", _snapshot),
    ("GET", _COLLECTION + "/snapshots/[^/]+", _download),
    ("DELETE", _COLLECTION + "/snapshots/[^/]+", _forget),
    ("POST", _COLLECTION + "/snapshots/upload", _restore),
    ("GET", _COLLECTION + "/cluster", _placed),
    ("GET", _COLLECTION + "/optimizations", _optimizations),
    ("PUT", _COLLECTION + "/index", _index),
    ("PUT", _COLLECTION + "/points", _upsert),
    ("POST", _COLLECTION + "/points", _retrieve),
    ("POST", _COLLECTION + "/points/batch", _batch),
    ("POST", _COLLECTION + "/points/delete", _delete_points),
    ("POST", _COLLECTION + "/points/count", _count),
    ("POST", _COLLECTION + "/points/scroll", _scroll),
    ("POST", _COLLECTION + "/points/query/batch", _query_batch),
    ("POST", _COLLECTION + "/facet", _facet),
]
