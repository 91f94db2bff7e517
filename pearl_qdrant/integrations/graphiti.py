"""Graphiti: one node for the entities of a graph that mean the same, after episodes were added; and undoing.

    from pearl_qdrant.integrations.graphiti import EntityMerger

    merger = EntityMerger(graphiti.driver, NameMerger("nodes.tsv"))
    await merger.merge("my-group")
    await merger.undo("A. Einstein")

Edges keep their ids, facts and times. Works on each database that Graphiti has a driver for; build communities again
afterwards. Needs the package graphiti-core.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from graphiti_core.edges import EntityEdge, EpisodicEdge
from graphiti_core.errors import GroupsEdgesNotFoundError
from graphiti_core.nodes import EntityNode

from pearl_qdrant.errors import OptionError
from pearl_qdrant.integrations.merging import NameMerger
from pearl_qdrant.resolution import NameRecord

if TYPE_CHECKING:
    from graphiti_core.driver.driver import GraphDriver

Edge = EntityEdge | EpisodicEdge


class EntityMerger:
    """Merges entity nodes, and takes apart what this object merged.

    Attributes:
        before: The nodes of each merge as they were, the one that stayed first.
    """

    def __init__(self, driver: GraphDriver, merger: NameMerger | None = None) -> None:
        """Make a merger for a database; one of names of yours has the precision, the file of nodes and the dry run."""
        self.driver, self.merger = driver, merger or NameMerger()
        self.before = list[list[EntityNode]]()
        self._ids: dict[str, str] = {}  # the node that each merged node went into
        self._edges: dict[str, Edge] = {}  # edges as they were before the first merge

    async def merge(self, group_id: str) -> None:
        """Merge the entities of a group; a dry run only reads, and `merger.report()` has what would merge."""
        every = await EntityNode.get_by_group_ids(self.driver, [group_id], with_embeddings=True)
        nodes = {node.uuid: node for node in every}
        records = {key: _record(node) for key, node in nodes.items()}
        done = [one for one in await asyncio.to_thread(self.merger.merge, records) if one.others]
        for one in done:
            self.before.append([nodes[key] for key in (one.key, *one.others)])
            self._ids.update(dict.fromkeys(one.others, one.key))
        gone = {key for one in done for key in one.others}
        for edge in await self._edges_of(group_id) if done else ():
            if gone & {edge.source_node_uuid, edge.target_node_uuid}:
                await self._place(self._edges.setdefault(edge.uuid, edge))
        for one in done:
            kept, *others = (nodes[key] for key in (one.key, *one.others))
            summary = "\n".join(dict.fromkeys(node.summary for node in (kept, *others) if node.summary))
            attributes = {**kept.attributes, "aliases": one.aliases}
            await kept.model_copy(update={"name": one.name, "summary": summary, "attributes": attributes}).save(
                self.driver
            )
            for other in others:
                await other.delete(self.driver)

    async def undo(self, name: str) -> None:
        """Take the merge of a name apart, in the database and for later runs; edges that came since stay. Raises
        OptionError if this object merged no node of that name.
        """
        found = next((one for one in self.before if name in [node.name for node in one]), None)
        if found is None:
            raise OptionError("undo", f"No node named {name!r} is in the {len(self.before):,} merges of this object.")
        kept, *others = found
        self.merger.separate(_record(kept), map(_record, others))
        self.before.remove(found)
        for node in found:
            self._ids.pop(node.uuid, None)
            await node.save(self.driver)
        keys = {node.uuid for node in others}
        for edge in self._edges.values():
            if keys & {edge.source_node_uuid, edge.target_node_uuid}:
                await self._place(edge)

    async def _edges_of(self, group_id: str) -> Iterable[Edge]:
        found: list[Edge] = []
        for read in (EntityEdge.get_by_group_ids(self.driver, [group_id], with_embeddings=True),
                     EpisodicEdge.get_by_group_ids(self.driver, [group_id])):  # fmt: skip
            with contextlib.suppress(GroupsEdgesNotFoundError):
                found += await read
        return found

    async def _place(self, edge: Edge) -> None:
        """Store an edge between the nodes that its ends are now; none where they are one."""
        source, target = (self._now(key) for key in (edge.source_node_uuid, edge.target_node_uuid))
        await edge.delete(self.driver)
        if source != target or edge.source_node_uuid == edge.target_node_uuid:
            await edge.model_copy(update={"source_node_uuid": source, "target_node_uuid": target}).save(self.driver)

    def _now(self, key: str) -> str:
        while key in self._ids:
            key = self._ids[key]
        return key


def _record(node: EntityNode) -> NameRecord:
    return NameRecord(node.name, min(set(node.labels) - {"Entity"}, default=""), context=node.summary)
