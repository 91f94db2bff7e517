"""The Qdrant double as a node of a cluster: shards with their copies on nodes, and nodes that are away.

All points stay in one local collection; the id of a point says which shard it is in.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from qdrant_client import models
from qdrant_double_http import Refused

ASKED = 11
"""Id of the node that the double is."""


@dataclass
class Cluster:
    """What the double knows beside its points.

    Attributes:
        nodes: Ids of all nodes; none if it is no cluster.
        away: Those that do not answer.
        replicas: Copies of a shard, unless a collection says otherwise.
        shards: The state of the copy on each node, by collection and shard.
    """

    nodes: tuple[int, ...] = ()
    away: set[int] = field(default_factory=set)
    replicas: int = 1
    shards: dict[str, list[dict[int, str]]] = field(default_factory=dict)

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
        """Distribute a new collection over the nodes that answer; by default one shard a node."""
        alive = [node for node in self.nodes if node not in self.away]
        if not alive:
            return
        copies = min(wanted.replication_factor or self.replicas, len(alive))
        self.shards[name] = [
            {alive[(shard + i) % len(alive)]: "Active" for i in range(copies)}
            for shard in range(wanted.shard_number or len(alive))
        ]

    def look(self, name: str) -> dict[str, Any]:
        """The answer to `GET /collections/NAME/cluster`; by then, nodes that are back have filled their copies."""
        local, remote = [], []
        for number, shard in enumerate(self.shards[name]):
            for node in shard:
                if node not in self.away:
                    shard[node] = "Active"
                one = {"shard_id": number, "state": shard[node]}
                if node == ASKED:
                    local.append({**one, "points_count": 0})
                else:
                    remote.append({**one, "peer_id": node})
        return {
            "peer_id": ASKED,
            "shard_count": len(self.shards[name]),
            "local_shards": local,
            "remote_shards": remote,
            "shard_transfers": [],
        }

    def read(self, name: str) -> None:
        """Refuse a read of all shards if there is one of which no copy answers."""
        for shard in self.shards.get(name, []):
            if not any(state == "Active" and node not in self.away for node, state in shard.items()):
                raise Refused(
                    500,
                    f"Service internal error: 1 of 1 read operations failed:\n  Service internal error: Tonic status "
                    f"error: Failed to connect to {address(next(iter(shard)))}, error: transport error",
                )

    def write(self, name: str, points: Iterable[str] | None) -> None:
        """Write to the copies that answer; the others are dead from then on. `points` is None for a change of all."""
        shards = self.shards.get(name, [])
        if not shards:
            return
        numbers = range(len(shards)) if points is None else {uuid.UUID(one).int % len(shards) for one in points}
        for shard in (shards[number] for number in numbers):
            if all(node in self.away for node in shard):
                raise Refused(
                    500,
                    "Service internal error: The following shards have no active replicas: 1 out of 1 update "
                    f"operations failed: Failed to connect to {address(next(iter(shard)))}",
                )
            for node in shard:
                if node in self.away:
                    shard[node] = "Dead"


def address(node: int) -> str:
    """How the nodes reach each other."""
    return f"http://node-{node}:6335/"
