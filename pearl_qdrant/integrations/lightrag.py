"""LightRAG: one entity for the names that mean the same, through LightRAG's own merge; and undoing.

    from pearl_qdrant.integrations.lightrag import EntityMerger

    merger = EntityMerger(rag, NameMerger("nodes.tsv"))        # `rag` is an open `LightRAG`
    await merger.merge()
    await merger.undo("A. Einstein")

Works on each storage that LightRAG has. Needs the package lightrag-hku, which takes other versions of some libraries
than `constraints.txt`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pearl_qdrant.integrations.merging import NameMerger, latest
from pearl_qdrant.resolution import NameRecord

ENTITY_FIELDS = ("entity_type", "description", "source_id", "file_path")
RELATION_FIELDS = ("description", "keywords", "weight", "source_id", "file_path")

_Relations = dict[frozenset[str], dict[str, Any]]  # by their ends


class EntityMerger:
    """Merges entities, and takes apart what this object merged.

    Attributes:
        before: The entities of each merge as they were, the one that stayed first: name, data and relations; and the
            name that they have now.
    """

    def __init__(self, rag: Any, merger: NameMerger | None = None) -> None:
        """Make a merger for a `LightRAG`; one of names has the precision, the file of nodes and the dry run."""
        self.rag, self.merger = rag, merger or NameMerger()
        self.before = list[list[tuple[str, dict[str, Any], _Relations, str]]]()
        self._names: dict[str, str] = {}  # the name that each merged entity has now

    async def merge(self) -> None:
        """Merge all entities; a dry run only reads, and `merger.report()` has what would merge."""
        every = await self.rag.chunk_entity_relation_graph.get_all_nodes()
        nodes = {node.get("entity_id") or node["id"]: node for node in every}
        records = {key: _record(key, node) for key, node in nodes.items()}
        for one in await asyncio.to_thread(self.merger.merge, records):
            if one.others:
                keys = (one.key, *one.others)
                before = [(key, nodes[key], await self._relations(key), one.name) for key in keys]
                await self.rag.amerge_entities([key for key in keys if key != one.name], one.name)
                self.before.append(before)
                self._names.update({key: one.name for key in keys if key != one.name})

    async def undo(self, name: str) -> None:
        """Take the merge of a name apart, in the storages and for later runs; relations that came since stay with the
        entity that kept its name. Raises OptionError if this object merged no entity of that name, or all names were
        equal but for case and spaces.
        """
        found = self.merger.take_apart(name, self.before, lambda node: _record(*node[:2]))
        (kept, *_, now), *_ = found
        for key, *_ in found:
            self._names.pop(key, None)
        relations = {pair: edge for _, _, every, _ in found for pair, edge in every.items()}
        left = {frozenset(latest(end, self._names) for end in pair): edge for pair, edge in relations.items()}
        known = {end for pair in left for end in pair}
        for pair, edge in (await self._relations(now)).items():
            if not (other := pair - {now}) <= known:
                left[other | {kept}] = edge
        await self.rag.adelete_by_entity(now)
        for key, node, *_ in found:
            await self.rag.acreate_entity(key, _fields(node, ENTITY_FIELDS))
        for pair, edge in left.items():
            if len(pair) == 2:
                await self.rag.acreate_relation(*sorted(pair), _fields(edge, RELATION_FIELDS))

    async def _relations(self, key: str) -> _Relations:
        """The relations of an entity, which have no direction, by their ends."""
        graph = self.rag.chunk_entity_relation_graph
        pairs = await graph.get_node_edges(key) or ()
        return {frozenset(pair): await graph.get_edge(*pair) or {} for pair in pairs}


def _record(name: str, node: dict[str, Any]) -> NameRecord:
    return NameRecord(name, node.get("entity_type", ""), context=node.get("description", ""))


def _fields(stored: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """What LightRAG takes for a new entity or relation, which has to have a description."""
    return {"description": "-", **{name: stored[name] for name in names if stored.get(name)}}
