"""Check a server: version, key, strict mode, nodes and replicas."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from pearl_qdrant.errors import StoreError
from pearl_qdrant.settings import TESTED_SERVER
from pearl_qdrant.store.protocol import Check
from pearl_qdrant.store.server.collection import MANIFEST_KEY
from pearl_qdrant.store.server.connection import Connection, parse_release
from pearl_qdrant.store.server.store import ServerStore

MAX_COLLECTIONS = 50
"""The most collections whose strict mode and replicas are checked."""


def check_server(store: ServerStore) -> Iterator[Check]:
    """Check a server that answers; writes nothing.

    Raises:
        StoreError: If it does not answer, or refuses the key.
    """
    connection = store.connection
    yield _version(connection.version())
    if len(connection.addresses) > 1:
        yield from map(partial(_address, connection), range(len(connection.addresses)))
    names = connection.collections()
    yield _key(connection)
    cluster = _optional(connection, "/cluster")
    is_cluster = cluster.get("status") == "enabled"
    if is_cluster:
        yield _nodes(cluster)
    for name in names[:MAX_COLLECTIONS]:
        yield from _collection(connection, name, is_cluster=is_cluster)
    if len(names) > MAX_COLLECTIONS:
        yield Check("collections", "note", f"only the first {MAX_COLLECTIONS} of {len(names)} were checked")


def _version(server: str) -> Check:
    """Check that the server is at most one minor version from the tested one; one too old was refused before."""
    theirs, tested = parse_release(server), parse_release(TESTED_SERVER)
    found = f"Qdrant {server} (tested with {TESTED_SERVER})"
    if theirs[0] != tested[0] or abs(theirs[1] - tested[1]) > 1:
        return Check("server", "note", f"{found}: they are more than one minor version apart")
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
        connection.ask(object, "POST", "/collections/aliases", {"actions": []})
    except StoreError as error:
        if "403" in str(error) or "401" in str(error):
            return Check("key", "note", "may read, not write: enough to link, not to ingest, add or calibrate")
        return Check("key", "note", f"may read; whether it may write is unknown ({error})")
    return Check("key", "ok", "may read and write")


def _nodes(cluster: dict[str, Any]) -> Check:
    """Check that all nodes of a cluster answer."""
    peers, failing = cluster.get("peers") or {}, cluster.get("message_send_failures") or {}
    if failing:
        away = ", ".join(sorted(map(str, failing)))
        return Check("nodes", "fail", f"{len(peers)} nodes; not reached: {away}. Start them again, or remove them.")
    return Check("nodes", "ok", f"{len(peers)} nodes, all reached")


def _collection(connection: Connection, name: str, *, is_cluster: bool) -> Iterator[Check]:
    """Check strict mode and replicas of one collection."""
    info = connection.info(name)
    if MANIFEST_KEY not in info.metadata:
        return
    limits = {key: value for key, value in msgspec.structs.asdict(info.limits).items() if value is not None}
    limits.pop("enabled", None)
    if limits:
        shown = ", ".join(f"{key} {value}" for key, value in limits.items())
        yield Check("strict mode", "note", f"{name}: requests keep to the limits of strict mode ({shown})")
    placed = _optional(connection, "/collections/{name}/cluster", name) if is_cluster else {}
    away = list(_replicas_away(placed))
    if away:
        yield Check("replicas", "fail", f"{name}: {', '.join(away)}. Start the nodes again; the replicas then recover.")
    elif placed:
        yield Check("replicas", "ok", f"{name}: all active")


def _replicas_away(placed: dict[str, Any]) -> Iterator[str]:
    """Describe the replicas that do not answer searches."""
    for shard in (*placed.get("local_shards", ()), *placed.get("remote_shards", ())):
        if shard["state"] != "Active":
            where = f"node {shard['peer_id']}" if "peer_id" in shard else "this node"
            yield f"shard {shard['shard_id']} on {where} is {shard['state']}"


def _optional(connection: Connection, path: str, name: str = "") -> dict[str, Any]:
    """What an old server, or one asked with a read-only key, may refuse to say: nothing then."""
    try:
        return connection.ask(dict[str, Any], "GET", path, name=name)
    except StoreError:
        return {}
