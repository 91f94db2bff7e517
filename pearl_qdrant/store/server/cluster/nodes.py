"""The nodes of a cluster: which there are, where the shards of a collection go, and when they are there.

Partition i has its copies on nodes i, i + 1, ... in the order of their ids, so that the shards lie over all nodes. Only
a node that has a copy of a shard takes a snapshot of it, and one URL reaches one node. So a shard that comes as a
snapshot is made on the node asked first, and moves to its place afterwards, from node to node.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from qdrant_client import models

from pearl_qdrant.errors import StoreError, StoreRejectedError
from pearl_qdrant.store.server.cluster.keys import ShardKeys
from pearl_qdrant.store.server.connection import Connection

_log = logging.getLogger(__name__)

_COMPLETE_LOOKS = 2
_START_LOOKS = 40
"""A move that has not begun after so many looks, 20 s, was given up."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of a cluster that answer.

    Attributes:
        asked: Id of the node at the URL.
        ids: Of all that it reaches, itself included, sorted.
    """

    asked: int
    ids: tuple[int, ...]

    def places(self, partition: int, replicas: int) -> list[int]:
        """Return the nodes of a partition's copies: as many as there are replicas, or all nodes if these are fewer."""
        n = len(self.ids)
        return [self.ids[(partition + i) % n] for i in range(min(replicas, n))]

    def first_places(self, partition: int, replicas: int) -> list[int]:
        """Return the nodes where a partition is made whose snapshot comes through the node asked."""
        places = self.places(partition, replicas)
        return places if self.asked in places else [self.asked, *places[:-1]]


@dataclass(frozen=True, slots=True)
class PlacedShard:
    """Where a shard is.

    Attributes:
        id: Its id on the server.
        replicas: State of the copy on each node.
        is_moving: Whether a copy of it is on its way.
    """

    id: int
    replicas: Mapping[int, models.ReplicaState]
    is_moving: bool = False


def find_nodes(connection: Connection) -> Nodes | None:
    """Return the nodes of the cluster; None if the server is none, or the key may not see it.

    Raises:
        StoreUnavailableError: If the server does not answer.
    """
    if connection.is_local:
        return None
    try:
        status = connection.call(connection.client.cluster_status)
    except StoreRejectedError:
        return None
    if not isinstance(status, models.ClusterStatusOneOf1):
        return None
    failing = {address.rstrip("/") for address in status.message_send_failures or {}}
    reached = {int(peer) for peer, info in status.peers.items() if info.uri.rstrip("/") not in failing}
    return Nodes(status.peer_id, tuple(sorted({status.peer_id, *reached})))


def create_shards(
    connection: Connection, physical: str, keys: ShardKeys, nodes: Nodes, *, replicas: int, comes_as_snapshot: bool
) -> None:
    """Create the shards of a new collection, empty.

    Args:
        connection: To the server.
        physical: The server's name of the collection.
        keys: Their keys.
        nodes: Where they go.
        replicas: Copies of each.
        comes_as_snapshot: Whether each must have a copy on the node asked; `move_to_places` then corrects this.

    Raises:
        StoreError: If the server refuses, or does not answer after all retries.
    """
    for partition, key in enumerate(keys.all):
        places = (nodes.first_places if comes_as_snapshot else nodes.places)(partition, replicas)
        connection.call(partial(_create_once, connection, physical, key, places), collection=physical)


def _create_once(connection: Connection, physical: str, key: str, places: list[int]) -> None:
    """Create a shard unless an earlier try did, whose answer was lost."""
    client = connection.client
    if key not in _placed(client.collection_cluster_info(physical)):
        client.create_shard_key(physical, key, shards_number=1, replication_factor=len(places), placement=[*places])


def find_shards(connection: Connection, physical: str) -> dict[str, PlacedShard]:
    """Return the shards of a collection by their keys; a shard without a key is left out."""
    return _placed(connection.call(lambda: connection.client.collection_cluster_info(physical), collection=physical))


def _placed(info: models.CollectionClusterInfo) -> dict[str, PlacedShard]:
    replicas: dict[str, dict[int, models.ReplicaState]] = {}
    ids: dict[str, int] = {}
    local = [(one.shard_id, one.shard_key, info.peer_id, one.state) for one in info.local_shards]
    remote = [(one.shard_id, one.shard_key, one.peer_id, one.state) for one in info.remote_shards]
    for shard_id, key, node, state in (*local, *remote):
        if key is not None:
            replicas.setdefault(str(key), {})[node] = state
            ids[str(key)] = shard_id
    moving = {transfer.shard_id for transfer in info.shard_transfers}
    return {key: PlacedShard(ids[key], states, ids[key] in moving) for key, states in replicas.items()}


def wait_until_copied(connection: Connection, physical: str, *, poll_s: float, stall_s: float) -> None:
    """Wait until each shard has all its copies; not for copies on nodes that do not answer, which the log names.

    Args:
        connection: To the server.
        physical: The server's name of the collection.
        poll_s: Seconds between two looks.
        stall_s: Give up after so many seconds without a change.

    Raises:
        StoreError: If copies on nodes that answer are not filled.
    """

    def missing(shards: Mapping[str, PlacedShard]) -> list[str]:
        nodes = find_nodes(connection)
        reached = set() if nodes is None else set(nodes.ids)
        return [
            f"{key} on node {node} is {state.value}"
            for key, shard in shards.items()
            for node, state in shard.replicas.items()
            if node in reached and (state != models.ReplicaState.ACTIVE or shard.is_moving)
        ]

    if late := _wait(connection, physical, missing, poll_s=poll_s, stall_s=stall_s):
        raise StoreError(
            f"Qdrant at {connection.location} has not filled all copies of the shards for {stall_s:.0f} s: "
            f"{', '.join(late[:3])}{', ...' if len(late) > 3 else ''}. See the logs of these nodes and: "
            f"pearl-qdrant doctor"
        )
    shards = find_shards(connection, physical)
    away = sum(state != models.ReplicaState.ACTIVE for shard in shards.values() for state in shard.replicas.values())
    if away:
        _log.warning(
            "%d copies of shards are on nodes that do not answer; Qdrant at %s fills them when these are back",
            away,
            connection.location,
        )


def move_to_places(
    connection: Connection,
    physical: str,
    keys: ShardKeys,
    nodes: Nodes,
    *,
    replicas: int,
    poll_s: float,
    stall_s: float,
) -> None:
    """Move shards that were made on the node asked to their places, one after the other.

    All copies answer meanwhile. Where a move fails, the shard stays where it is, and a warning in the log names it.

    Args:
        connection: To the server.
        physical: The server's name of the collection.
        keys: The keys of its shards.
        nodes: As for `create_shards`.
        replicas: As for `create_shards`.
        poll_s: Seconds between two looks.
        stall_s: Give a move up after so many seconds without a change.
    """
    for partition, key in enumerate(keys.all):
        places = nodes.places(partition, replicas)
        if nodes.asked in places:
            continue
        move = _Move(key, nodes.asked)
        try:
            connection.call(partial(_move_once, connection, physical, move, places), collection=physical)
            left = _wait(connection, physical, move.missing, poll_s=poll_s, stall_s=stall_s) or move.failed
        except StoreError as error:
            left = [str(error)]
        if left:
            _log.warning("Shard %s of collection '%s' stays on node %d: %s", key, physical, nodes.asked, left[0])


def _move_once(connection: Connection, physical: str, move: _Move, places: list[int]) -> None:
    """Start a move to a node that has no copy yet, unless an earlier try did, whose answer was lost."""
    client = connection.client
    shard = _placed(client.collection_cluster_info(physical))[move.key]
    free = [node for node in places if node not in shard.replicas]
    if shard.is_moving or move.source not in shard.replicas:
        return
    if not free:  # other nodes answered when it was created
        move.failed = ["its places have copies already"]
        return
    wanted = models.MoveShard(
        shard_id=shard.id, from_peer_id=move.source, to_peer_id=free[0], method=models.ShardTransferMethod.SNAPSHOT
    )
    client.cluster_collection_update(physical, models.MoveShardOperation(move_shard=wanted))


@dataclass(slots=True)
class _Move:
    """A move of a copy from one node to another.

    Attributes:
        key: The shard's key.
        source: The node that it leaves.
        failed: Why it did not leave, if it did not.
        looks: Looks that saw it neither moving nor gone.
        was_moving: Whether a look saw it moving.
    """

    key: str
    source: int
    failed: list[str] = field(default_factory=list)
    looks: int = 0
    was_moving: bool = False

    def missing(self, shards: Mapping[str, PlacedShard]) -> list[str]:
        """Say what is missing; nothing once the copy has left, or the server has given the move up."""
        shard = shards[self.key]
        if self.failed or (self.source not in shard.replicas and not shard.is_moving):
            return []
        if shard.is_moving:
            self.was_moving = True
            return ["it still moves"]
        self.looks += 1
        if self.was_moving or self.looks > _START_LOOKS:
            self.failed = ["the server gave the move up"]
            return []
        return ["it is still there"]


def _wait(
    connection: Connection,
    physical: str,
    missing: Callable[[Mapping[str, PlacedShard]], list[str]],
    *,
    poll_s: float,
    stall_s: float,
) -> list[str]:
    """Look until nothing is missing, or nothing has changed for too long; what is missing then.

    Nothing counts as missing after two looks: the nodes agree on a state a moment after the request that changed it.
    """
    seen, changed_at, n_complete = None, time.monotonic(), 0
    while True:
        shards = find_shards(connection, physical)
        left = missing(shards)
        n_complete = 0 if left else n_complete + 1
        if n_complete == _COMPLETE_LOOKS:
            return []
        if shards != seen:
            seen, changed_at = shards, time.monotonic()
        elif left and time.monotonic() - changed_at > stall_s:
            return left
        time.sleep(poll_s)
