"""Graphiti: one node for the entities of a graph that mean the same, after episodes were added; and undoing.

    from pearl_qdrant.integrations.graphiti import EntityMerger

    merger = EntityMerger(graphiti, NameMerger("nodes.tsv"))        # `graphiti` is an open `Graphiti`
    await merger.merge("my-group")
    await merger.undo("A. Einstein")

Edges keep their ids, facts and times. Works on each database that Graphiti has a driver for; build communities again
afterwards. Needs the package graphiti-core, 0.31 or newer.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pearl_qdrant.integrations.merging import NameMerger, latest
from pearl_qdrant.resolution import NameRecord


class EntityMerger:
    """Merges entity nodes, and takes apart what this object merged.

    Attributes:
        before: The nodes of each merge as they were, the one that stayed first.
    """

    def __init__(self, graphiti: Any, merger: NameMerger | None = None) -> None:
        """Make a merger for a `Graphiti`; one of names has the precision, the file of nodes and the dry run."""
        self.graphiti, self.merger = graphiti, merger or NameMerger()
        self.before = list[list[Any]]()
        self._ids: dict[str, str] = {}  # the node that each merged node went into
        self._edges: dict[str, Any] = {}  # edges as they were before the first merge

    async def merge(self, group_id: str) -> None:
        """Merge the entities of a group; a dry run only reads, and `merger.report()` has what would merge."""
        nodes = {node.uuid: node for node in await self.graphiti.nodes.entity.get_by_group_ids([group_id])}
        records = {key: _record(node) for key, node in nodes.items()}
        done = [one for one in await asyncio.to_thread(self.merger.merge, records) if one.others]
        gone = {key for one in done for key in one.others}
        if not gone:
            return
        edges, mentions = self.graphiti.edges.entity, self.graphiti.edges.episodic
        facts = [edge for edge in await edges.get_by_group_ids([group_id]) if gone & _ends(edge)]
        await edges.load_embeddings_bulk(facts)
        await self.graphiti.nodes.entity.load_embeddings_bulk(
            [nodes[key] for one in done for key in (one.key, *one.others)]
        )
        for one in done:
            self.before.append([nodes[key] for key in (one.key, *one.others)])
            self._ids.update(dict.fromkeys(one.others, one.key))
        for edge in [*facts, *(edge for edge in await mentions.get_by_group_ids([group_id]) if gone & _ends(edge))]:
            await self._place(self._edges.setdefault(edge.uuid, edge))
        for one, (kept, *others) in zip(done, self.before[-len(done) :], strict=True):
            summary = "\n".join(dict.fromkeys(node.summary for node in (kept, *others) if node.summary))
            attributes = {**kept.attributes, **one.added}
            new = kept.model_copy(update={"name": one.name, "summary": summary, "attributes": attributes})
            await new.save(self.graphiti.driver)
            for other in others:
                await other.delete(self.graphiti.driver)

    async def undo(self, name: str) -> None:
        """Take the merge of a name apart, in the database and for later runs; edges that came since stay. Raises
        OptionError if this object merged no node of that name, or all had the same name.
        """
        found = self.merger.take_apart(name, self.before, _record)
        keys = {node.uuid for node in found[1:]}
        self._ids = {old: new for old, new in self._ids.items() if old not in keys}
        for node in found:
            await node.save(self.graphiti.driver)
        for edge in self._edges.values():
            if keys & _ends(edge):
                await self._place(edge)

    async def _place(self, edge: Any) -> None:
        """Store an edge between the nodes that its ends are now; none where they are one."""
        source, target = (latest(end, self._ids) for end in (edge.source_node_uuid, edge.target_node_uuid))
        await edge.delete(self.graphiti.driver)
        if source != target or edge.source_node_uuid == edge.target_node_uuid:
            moved = edge.model_copy(update={"source_node_uuid": source, "target_node_uuid": target})
            await moved.save(self.graphiti.driver)


def _ends(edge: Any) -> set[str]:
    return {edge.source_node_uuid, edge.target_node_uuid}


def _record(node: Any) -> NameRecord:
    return NameRecord(node.name, min(set(node.labels) - {"Entity"}, default=""), context=node.summary)
