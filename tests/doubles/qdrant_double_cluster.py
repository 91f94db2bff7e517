"""The Qdrant double as a node of a cluster: shards with keys, their copies on nodes, and nodes that are away.

All points stay in one local collection; a shard remembers which of them it has. A server changes a point only in the
shard of the key that it is told, and has a point twice that is written with two keys. The double refuses the second one
with 500, since that is a mistake of the caller. It refuses what a server refuses: a write without a key, one with a key
that there is not, a key where there is no cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from qdrant_client import models
from qdrant_double_http import Refused

if TYPE_CHECKING:
    from qdrant_double import QdrantDouble

ASKED = 11
"""Id of the node that the double is."""


@dataclass
class KeyedShard:
    """A shard with a key.

    Attributes:
        id: Its id.
        nodes: The state of the copy on each node.
        points: Ids of its points.
    """

    id: int
    nodes: dict[int, str]
    points: set[str] = field(default_factory=set)


@dataclass
class Cluster:
    """What the double knows beside its points.

    Attributes:
        nodes: Ids of all nodes; none if it is no cluster.
        away: Those that do not answer.
        replicas: Copies of a shard, unless a collection says otherwise.
        shards: By collection and key; a collection without keys has no entry.
        slow_polls: A copy that has to be filled is there after so many looks.
        refuses_moves: Whether a shard stays where it is.
        aborts_moves: Whether a move is begun, and given up.
        moves: (shard, from, to) of all moves.
    """

    nodes: tuple[int, ...] = ()
    away: set[int] = field(default_factory=set)
    replicas: int = 1
    shards: dict[str, dict[str, KeyedShard]] = field(default_factory=dict)
    slow_polls: int = 2
    refuses_moves: bool = False
    aborts_moves: bool = False
    moves: list[tuple[int, int, int]] = field(default_factory=list)
    _filling: int = 0
    _moving: list[tuple[KeyedShard, int, int]] = field(default_factory=list)

    def status(self) -> dict[str, Any]:
        """The answer to `GET /cluster`."""
        if not self.nodes:
            return {"status": "disabled"}
        return {
            "status": "enabled",
            "peer_id": ASKED,
            "peers": {str(node): {"uri": address(node)} for node in self.nodes},
            "raft_info": {
                "term": 1, "commit": 1, "pending_operations": 0, "leader": ASKED, "role": "Leader", "is_voter": True,
            },
            "consensus_thread_status": {"consensus_thread_status": "working", "last_update": "2026-11-23T00:00:00Z"},
            "message_send_failures": {address(node): {"count": 3} for node in sorted(self.away)},
        }  # fmt: skip

    def create(self, name: str, wanted: models.CreateCollection) -> None:
        """Note a new collection."""
        if wanted.sharding_method == models.ShardingMethod.CUSTOM:
            self.shards[name] = {}

    def create_shard(self, name: str, wanted: models.CreateShardingKey, replicas: int) -> bool:
        """Create a key."""
        if not self.nodes:
            raise Refused(400, "Bad request: Distributed mode disabled")
        if name not in self.shards:
            raise Refused(400, f"Bad request: Shard Key {wanted.shard_key} cannot be created with Auto sharding method")
        if wanted.shard_key in self.shards[name]:
            raise Refused(400, f"Bad request: Shard key {wanted.shard_key} already exists")
        placement = wanted.placement or list(self.nodes)
        if unknown := [node for node in placement if node not in self.nodes]:
            raise Refused(400, f"Bad request: Peer {unknown[0]} does not exist")
        taken = placement[: wanted.replication_factor or replicas]
        shards = self.shards[name]
        shards[str(wanted.shard_key)] = KeyedShard(len(shards) + 1, dict.fromkeys(taken, "Active"))
        return True

    def look(self, name: str) -> dict[str, Any]:
        """The answer to `GET /collections/NAME/cluster` for a collection with keys; each look fills copies."""
        self._filling -= 1
        if self._filling <= 0:
            self._fill()
        shards = self.shards[name].items()
        moving = {id(shard): (source, target) for shard, source, target in self._moving}
        local, remote = [], []
        for key, shard in shards:
            for node, state in shard.nodes.items():
                one = {"shard_id": shard.id, "shard_key": key, "state": state}
                if node == ASKED:
                    local.append({**one, "points_count": len(shard.points)})
                else:
                    remote.append({**one, "peer_id": node})
        transfers = [
            {"shard_id": shard.id, "from": moving[id(shard)][0], "to": moving[id(shard)][1], "sync": False}
            for _, shard in shards
            if id(shard) in moving
        ]
        return {
            "peer_id": ASKED,
            "shard_count": len(shards),
            "local_shards": local,
            "remote_shards": remote,
            "shard_transfers": transfers,
        }

    def _fill(self) -> None:
        for shards in self.shards.values():
            for shard in shards.values():
                for node in shard.nodes:
                    if node not in self.away:
                        shard.nodes[node] = "Active"
        for shard, source, target in () if self.aborts_moves else self._moving:
            del shard.nodes[source]
            shard.nodes[target] = "Active"
        self._moving = []

    def move(self, name: str, wanted: models.MoveShard) -> bool:
        """Move a copy to another node."""
        found = [shard for shard in self.shards[name].values() if shard.id == wanted.shard_id]
        if not found or wanted.from_peer_id not in found[0].nodes:
            raise Refused(400, f"Bad request: Shard {wanted.shard_id} is not on peer {wanted.from_peer_id}")
        if wanted.to_peer_id in found[0].nodes:
            raise Refused(400, f"Bad request: Shard {wanted.shard_id} is already on peer {wanted.to_peer_id}")
        if self.refuses_moves:
            raise Refused(400, "Bad request: Max number of transfers is reached")
        self.moves.append((wanted.shard_id, wanted.from_peer_id, wanted.to_peer_id))
        self._moving.append((found[0], wanted.from_peer_id, wanted.to_peer_id))
        self._filling = self.slow_polls
        return True

    def local_shard(self, name: str, shard_id: int) -> KeyedShard:
        """The copy on the node asked, for a snapshot."""
        for shard in self.shards[name].values():
            if shard.id == shard_id and ASKED in shard.nodes:
                return shard
        raise Refused(404, f"Not found: Shard {shard_id} is not found")

    def uploaded(self, shard: KeyedShard, points: Iterable[str]) -> None:
        """A snapshot took the place of a shard's content: the other copies are filled from it."""
        shard.points = set(points)
        for node in shard.nodes:
            shard.nodes[node] = "Active" if node == ASKED else "Dead"
        self._filling = self.slow_polls

    def read(self, name: str) -> None:
        """Refuse a read of all shards if there is one of which no copy answers."""
        for shard in self.shards.get(name, {}).values():
            if not any(state == "Active" and node not in self.away for node, state in shard.nodes.items()):
                raise Refused(
                    500,
                    f"Service internal error: 1 of 1 read operations failed:\n  Service internal error: Tonic status "
                    f"error: Failed to connect to {address(next(iter(shard.nodes)))}, error: transport error",
                )

    def write(self, name: str, key: Any, points: Iterable[str] | None) -> None:
        """Check a write, and note what it adds; `points` is None where it adds none."""
        if name not in self.shards:
            if key is not None:
                raise Refused(400, f"Bad request: Shard key {key} not found")
            return
        if key is None:
            raise Refused(400, "Bad request: Shard key not specified")
        shards = self.shards[name]
        for one in key if isinstance(key, list) else [key]:
            if one not in shards:
                raise Refused(400, f"Bad request: Shard key {one} not found")
            self._reach(shards[one])
        if points is None:
            return
        assert isinstance(key, str)
        ids = set(points)
        if twice := [other for other, shard in shards.items() if other != key and shard.points & ids]:
            raise Refused(500, f"double: a point of shard {twice[0]} is written to {key}")
        shards[key].points |= ids

    def _reach(self, shard: KeyedShard) -> None:
        """Write to the copies that answer; the others are dead from then on."""
        if all(node in self.away for node in shard.nodes):
            raise Refused(
                500,
                "Service internal error: The following shards have no active replicas: 1 out of 1 update operations "
                f"failed: Failed to connect to {address(next(iter(shard.nodes)))}",
            )
        for node in shard.nodes:
            if node in self.away:
                shard.nodes[node] = "Dead"

    def find(self, name: str, key: str, points: Iterable[str]) -> None:
        """Refuse a change of points that are not in the shard of a key."""
        if missing := sorted(set(points) - self.shards[name][key].points):
            raise Refused(404, f"Not found: No point with id {missing[0]} found")


def address(node: int) -> str:
    """How the nodes reach each other."""
    return f"http://node-{node}:6335/"


def _create_shard(double: QdrantDouble, name: str, body: bytes) -> Any:
    wanted = TypeAdapter(models.CreateShardingKey).validate_json(body)
    replicas = double.created[name].get("replication_factor") or double.cluster_state.replicas
    return double.cluster_state.create_shard(name, wanted, replicas)


def _change(double: QdrantDouble, name: str, body: bytes) -> Any:
    wanted = TypeAdapter(models.MoveShardOperation).validate_json(body)
    return double.cluster_state.move(name, wanted.move_shard)


CLUSTER_ROUTES: list[tuple[str, str, Callable[[QdrantDouble, str, bytes], Any]]] = [
    ("PUT", r"/collections/(?P<name>[^/]+)/shards", _create_shard),
    ("POST", r"/collections/(?P<name>[^/]+)/cluster", _change),
]
