"""The routes of the Qdrant double (qdrant_double.py): what each request does with the client in local mode."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from qdrant_client import models
from qdrant_double_http import Answered, Refused

if TYPE_CHECKING:
    from qdrant_double import QdrantDouble


def _parse(model: Any, body: bytes) -> Any:
    return TypeAdapter(model).validate_json(body)


def _info(double: QdrantDouble, name: str, body: bytes) -> Any:
    raise Answered({"title": "qdrant - vector search engine", "version": double.version})


def _aliases(double: QdrantDouble, name: str, body: bytes) -> Any:
    """Change aliases, all or none; a server refuses an alias with the name of a collection."""
    if double.read_only:
        raise Refused(403, "Forbidden: Global manage access is required")
    actions = _parse(models.ChangeAliasesOperation, body).actions
    names = {one.name for one in double.client.get_collections().collections}
    for action in actions:
        created = getattr(action, "create_alias", None)
        if created is not None and created.alias_name in names:
            raise Refused(409, f"Wrong input: Collection with the same name already exists: `{created.alias_name}`")
    return double.client.update_collection_aliases(actions)


def _list_aliases(double: QdrantDouble, name: str, body: bytes) -> Any:
    return double.client.get_aliases()


def _cluster(double: QdrantDouble, name: str, body: bytes) -> Any:
    return double.cluster_state.status()


def _placed(double: QdrantDouble, name: str, body: bytes) -> Any:
    if name in double.cluster_state.shards:
        return double.cluster_state.look(name)
    shards = [{"shard_id": i, "peer_id": 2, "state": state} for i, state in enumerate(double.replica_states)]
    local = [] if shards else [{"shard_id": 0, "points_count": 0, "state": "Active"}]
    return {"peer_id": 1, "shard_count": 1, "local_shards": local, "remote_shards": shards, "shard_transfers": []}


def _snapshot(double: QdrantDouble, name: str, body: bytes) -> Any:
    """Back up a collection under a name."""
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
    raise Answered(double.snapshots[double.path.rpartition("/")[2]])


def _forget(double: QdrantDouble, name: str, body: bytes) -> Any:
    del double.snapshots[double.path.rpartition("/")[2]]
    return True


def _restore(double: QdrantDouble, name: str, body: bytes) -> Any:
    """Replace a collection by an uploaded snapshot."""
    kept = json.loads(body[body.index(b'{"params"') : body.rindex(b"}") + 1])
    params = models.CollectionParams.model_validate(kept["params"])
    double.client.delete_collection(name)
    double.client.create_collection(
        name, vectors_config=params.vectors, sparse_vectors_config=params.sparse_vectors, metadata=kept["metadata"]
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
    """Describe a collection, with facts that local mode lacks."""
    info = double.client.get_collection(name).model_dump(mode="json", exclude_none=True)
    # A collection that another program made has neither.
    config, schema = double.config.get(name, {}), double.schema.get(name, {})
    info["payload_schema"] = {k: {"data_type": v, "points": 0} for k, v in schema.items()}
    info["config"]["optimizer_config"].update(config)
    created, params = double.created.get(name, {}), info["config"]["params"]
    if isinstance(params.get("vectors"), dict) and created:
        params["vectors"] = created["vectors"]
    params["replication_factor"] = created.get("replication_factor") or double.cluster_state.replicas
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
    """Points with this vector, dense or sparse: a server counts all as indexed."""
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
    double.cluster_state.create(name, wanted)
    return double.client.create_collection(
        name, vectors_config=wanted.vectors, sparse_vectors_config=wanted.sparse_vectors, metadata=wanted.metadata
    )


def _update(double: QdrantDouble, name: str, body: bytes) -> Any:
    wanted = _parse(models.UpdateCollection, body)
    if wanted.optimizers_config is not None:
        double.config[name].update(wanted.optimizers_config.model_dump(exclude_none=True))
        double.busy[name] = double.optimizer_polls
    for vector, changed in (wanted.vectors or {}).items():
        double.created[name]["vectors"][vector].update(changed.model_dump(mode="json", exclude_none=True))
    return double.client.update_collection(name, metadata=wanted.metadata)


def _delete(double: QdrantDouble, name: str, body: bytes) -> Any:
    double.cluster_state.shards.pop(name, None)
    double.created.pop(name, None)
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
    wanted = _parse(models.PointsList, body)
    points = wanted.points
    double.check_limit("upsert_max_batchsize", len(points), "upsert limit")
    too_many = double.max_points is not None and len(points) > double.max_points
    if too_many or (double.max_bytes is not None and len(body) > double.max_bytes):
        raise Refused(413, "Payload Too Large")
    double.cluster_state.write(name, [str(point.id) for point in points])
    double.gate.write(len(points))
    double.upsert_sizes.append(len(points))
    return double.client.upsert(name, points)


def _retrieve(double: QdrantDouble, name: str, body: bytes) -> Any:
    double.cluster_state.read(name)
    double.gate.read()
    request = _parse(models.PointRequest, body)
    found = double.client.retrieve(
        name,
        request.ids,
        with_payload=True if request.with_payload is None else request.with_payload,
        with_vectors=request.with_vector or False,
    )
    return [record.model_dump(mode="json") for record in found]


def _batch(double: QdrantDouble, name: str, body: bytes) -> Any:
    """Apply operations one after the other; those before a refused one stay."""
    operations = _parse(models.UpdateOperations, body).operations
    double.cluster_state.write(name, None)
    results = []
    for operation in operations:
        double.gate.write()
        results += double.client.batch_update_points(name, [operation])
    return [result.model_dump(mode="json") for result in results]


def _delete_points(double: QdrantDouble, name: str, body: bytes) -> Any:
    selector = _parse(models.PointsSelector, body)
    double.check_filter(name, getattr(selector, "filter", None))
    double.cluster_state.write(name, None)
    return double.client.delete(name, selector)


def _count(double: QdrantDouble, name: str, body: bytes) -> Any:
    double.cluster_state.read(name)
    double.gate.read()
    wanted = _parse(models.CountRequest, body)
    double.check_exact(wanted.exact)
    double.check_filter(name, wanted.filter)
    return double.client.count(name, count_filter=wanted.filter, exact=wanted.exact)


def _scroll(double: QdrantDouble, name: str, body: bytes) -> Any:
    double.cluster_state.read(name)
    double.gate.read()
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
    double.cluster_state.read(name)
    searches = _parse(models.QueryRequestBatch, body).searches
    double.gate.read(len(searches))
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
    double.cluster_state.read(name)
    wanted = _parse(models.FacetRequest, body)
    double.check_exact(wanted.exact)
    double.check_limit("max_query_limit", wanted.limit, "limit")
    if wanted.key not in double.schema[name]:
        raise Refused(400, f"Bad request: No appropriate index for faceting: `{wanted.key}`.")
    return double.client.facet(name, wanted.key, facet_filter=wanted.filter, limit=wanted.limit or 10)


_COLLECTION = r"/collections/(?P<name>[^/]+)"

MAY_BE_ABSENT = (_create, _exists, _delete, _restore)
BY_NAME_ALONE = (_create, _delete)
"""What takes no alias."""

ROUTES: list[tuple[str, str, Callable[[QdrantDouble, str, bytes], Any]]] = [
    ("GET", "/", _info),
    ("GET", "/cluster", _cluster),
    ("POST", "/collections/aliases", _aliases),
    ("GET", "/aliases", _list_aliases),
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
