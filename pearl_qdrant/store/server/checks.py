"""What `pearl-qdrant doctor` looks at on a server: version, key, strict mode, nodes and replicas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from typing import Any

from qdrant_client import models

from pearl_qdrant.errors import StoreError
from pearl_qdrant.settings import TESTED_SERVER
from pearl_qdrant.store.server.collection import MANIFEST_KEY
from pearl_qdrant.store.server.connection import Connection
from pearl_qdrant.store.server.limits import Limits
from pearl_qdrant.store.server.store import ServerStore

Check = tuple[str, str, str]
"""What was looked at; "ok", "note" or "fail"; what was found, with the fix if it failed."""

OLDEST_SERVER = (1, 16)
"""The first release that keeps metadata of collections."""

MOST_COLLECTIONS = 50
"""Collections whose strict mode and replicas are looked at."""


def check_server(store: ServerStore) -> Iterator[Check]:
    """Look at a server that answers; reads, and writes nothing.

    Raises:
        StoreError: If it stops answering, or refuses the key.
    """
    connection, client = store.connection, store.connection.client
    yield _version(connection.call(client.info).version)
    names = connection.collections()
    yield _key(connection)
    cluster = _optional(connection, client.cluster_status)
    is_cluster = cluster is not None and getattr(cluster, "status", "") == "enabled"
    if is_cluster:
        yield _nodes(cluster)
    for name in names[:MOST_COLLECTIONS]:
        yield from _collection(connection, name, is_cluster=is_cluster)
    if len(names) > MOST_COLLECTIONS:
        yield "collections", "note", f"only the first {MOST_COLLECTIONS} of {len(names)} were looked at"


def _version(server: str) -> Check:
    """Whether the server fits the client: one minor version apart at most."""
    ours = version("qdrant-client")
    found = f"Qdrant {server}, qdrant-client {ours} (tried with Qdrant {TESTED_SERVER})"
    theirs, client = _numbers(server), _numbers(ours)
    if theirs < OLDEST_SERVER:
        return "server", "fail", f"{found}. Update the server to {'.'.join(map(str, OLDEST_SERVER))} or later."
    if theirs[0] != client[0] or abs(theirs[1] - client[1]) > 1:
        return "server", "note", f"{found}: they are more than one minor version apart. Update the older one."
    return "server", "ok", found


def _numbers(release: str) -> tuple[int, int]:
    """Major and minor version; 0 for what is no number."""
    parts = [int(part) if part.isdigit() else 0 for part in release.split(".")[:2]]
    return parts[0], parts[1] if len(parts) > 1 else 0


def _key(connection: Connection) -> Check:
    """Whether the key may write: a change of no aliases changes nothing, and is refused to a key that may only read."""
    try:
        connection.call(partial(connection.client.update_collection_aliases, []))
    except StoreError as error:
        if "403" in str(error) or "401" in str(error):
            return "key", "note", "may read, not write: enough to link, not to ingest, add or calibrate"
        return "key", "note", f"may read; whether it may write is not known ({error})"
    return "key", "ok", "may read and write"


def _nodes(cluster: Any) -> Check:
    """Whether all nodes of a cluster are there."""
    peers = getattr(cluster, "peers", None) or {}
    failing = getattr(cluster, "message_send_failures", None) or {}
    if failing:
        away = ", ".join(sorted(map(str, failing)))
        return "nodes", "fail", f"{len(peers)} nodes; not reached: {away}. Bring them back, or take them out."
    return "nodes", "ok", f"{len(peers)} nodes, all reached"


def _collection(connection: Connection, name: str, *, is_cluster: bool) -> Iterator[Check]:
    """Strict mode and replicas of one collection."""
    info = connection.call(partial(connection.client.get_collection, name), collection=name)
    if MANIFEST_KEY not in (info.config.metadata or {}):
        return
    limits = {key: value for key, value in asdict(Limits.of(info)).items() if value is not None}
    if limits:
        shown = ", ".join(f"{key} {value}" for key, value in limits.items())
        yield "strict mode", "note", f"{name}: limits of strict mode are kept to ({shown})"
    if not is_cluster:
        return
    placed = _optional(connection, partial(connection.client.collection_cluster_info, name))
    away = list(_replicas_away(placed)) if placed is not None else []
    if away:
        yield "replicas", "fail", f"{name}: {', '.join(away)}. Bring the nodes back; they recover by themselves."
    elif placed is not None:
        yield "replicas", "ok", f"{name}: all active"


def _replicas_away(placed: models.CollectionClusterInfo) -> Iterator[str]:
    """Replicas that do not answer searches."""
    for shard in placed.local_shards:
        if shard.state != models.ReplicaState.ACTIVE:
            yield f"shard {shard.shard_id} on this node is {shard.state.value}"
    for remote in placed.remote_shards:
        if remote.state != models.ReplicaState.ACTIVE:
            yield f"shard {remote.shard_id} on node {remote.peer_id} is {remote.state.value}"


def _optional(connection: Connection, request: Any) -> Any:
    """What a server may not tell: one that is too old, or a key that may not ask."""
    try:
        return connection.call(request)
    except StoreError:
        return None
