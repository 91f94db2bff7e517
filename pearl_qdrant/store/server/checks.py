"""Check a server: version, key, strict mode, nodes and replicas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from typing import Any

from qdrant_client import models

from pearl_qdrant.errors import StoreError
from pearl_qdrant.settings import TESTED_SERVER
from pearl_qdrant.store.protocol import Check
from pearl_qdrant.store.server.collection import MANIFEST_KEY
from pearl_qdrant.store.server.connection import Connection, parse_release
from pearl_qdrant.store.server.queries import Limits
from pearl_qdrant.store.server.store import ServerStore

MAX_COLLECTIONS = 50
"""The most collections whose strict mode and replicas are checked."""


def check_server(store: ServerStore) -> Iterator[Check]:
    """Check a server, without writing; StoreError if it does not answer, or refuses the key."""
    connection, client = store.connection, store.connection.client
    yield _version(connection.version())
    if len(connection.addresses) > 1:
        yield from map(partial(_address, connection), range(len(connection.addresses)))
    names = connection.collections()
    yield _key(connection)
    cluster = _optional(connection, client.cluster_status)
    is_cluster = cluster is not None and getattr(cluster, "status", "") == "enabled"
    if is_cluster:
        yield _nodes(cluster)
    for name in names[:MAX_COLLECTIONS]:
        yield from _collection(connection, name, is_cluster=is_cluster)
    if len(names) > MAX_COLLECTIONS:
        yield Check("collections", "note", f"only the first {MAX_COLLECTIONS} of {len(names)} were checked")


def _version(server: str) -> Check:
    """Check that server and client are at most one minor version apart; a server that is too old was refused before."""
    ours = version("qdrant-client")
    found = f"Qdrant {server}, qdrant-client {ours} (tested with Qdrant {TESTED_SERVER})"
    theirs, client = parse_release(server), parse_release(ours)
    if theirs[0] != client[0] or abs(theirs[1] - client[1]) > 1:
        return Check("server", "note", f"{found}: they are more than one minor version apart. Update the older one.")
    return Check("server", "ok", found)


def _address(connection: Connection, number: int) -> Check:
    """Check that one of several addresses answers."""
    url = connection.addresses[number].url
    try:
        return Check("address", "ok", f"{url}: Qdrant {connection.version(number)}")
    except StoreError as error:
        return Check(
            "address", "fail", f"{url} does not answer; the others do. Start it again, or leave it out. {error}"
        )


def _key(connection: Connection) -> Check:
    """Check whether the key may write: an empty change of aliases does nothing, but a read-only key may not do it."""
    try:
        connection.call(partial(connection.client.update_collection_aliases, []))
    except StoreError as error:
        if "403" in str(error) or "401" in str(error):
            return Check("key", "note", "may read, not write: enough to link, not to ingest, add or calibrate")
        return Check("key", "note", f"may read; whether it may write is unknown ({error})")
    return Check("key", "ok", "may read and write")


def _nodes(cluster: Any) -> Check:
    """Check that all nodes of a cluster answer."""
    peers = getattr(cluster, "peers", None) or {}
    failing = getattr(cluster, "message_send_failures", None) or {}
    if failing:
        away = ", ".join(sorted(map(str, failing)))
        return Check("nodes", "fail", f"{len(peers)} nodes; not reached: {away}. Start them again, or remove them.")
    return Check("nodes", "ok", f"{len(peers)} nodes, all reached")


def _collection(connection: Connection, name: str, *, is_cluster: bool) -> Iterator[Check]:
    """Check strict mode and replicas of one collection."""
    info = connection.info(name)
    if MANIFEST_KEY not in (info.config.metadata or {}):
        return
    limits = {key: value for key, value in asdict(Limits.of(info)).items() if value is not None}
    if limits:
        shown = ", ".join(f"{key} {value}" for key, value in limits.items())
        yield Check("strict mode", "note", f"{name}: requests keep to the limits of strict mode ({shown})")
    if not is_cluster:
        return
    placed = _optional(connection, partial(connection.client.collection_cluster_info, name))
    away = list(_replicas_away(placed)) if placed is not None else []
    if away:
        yield Check("replicas", "fail", f"{name}: {', '.join(away)}. Start the nodes again; the replicas then recover.")
    elif placed is not None:
        yield Check("replicas", "ok", f"{name}: all active")


def _replicas_away(placed: models.CollectionClusterInfo) -> Iterator[str]:
    """Describe the replicas that do not answer searches."""
    for shard in placed.local_shards:
        if shard.state != models.ReplicaState.ACTIVE:
            yield f"shard {shard.shard_id} on this node is {shard.state.value}"
    for remote in placed.remote_shards:
        if remote.state != models.ReplicaState.ACTIVE:
            yield f"shard {remote.shard_id} on node {remote.peer_id} is {remote.state.value}"


def _optional(connection: Connection, request: Any) -> Any:
    """Send a request that an old server, or a read-only key, may be refused; None if it is."""
    try:
        return connection.call(request)
    except StoreError:
        return None
