"""LlamaIndex: an extractor that tags nodes with their entities, a retriever of entities, and a transformation that
makes one node of the entities of a property graph that mean the same.

    from pearl_qdrant.integrations.llama_index import EntityExtractor, EntityMerger, EntityRetriever

Extractor and retriever take an open `EntityLinker` and leave it open. Needs the extra `llama-index`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.callbacks import CallbackManager
from llama_index.core.extractors import BaseExtractor
from llama_index.core.graph_stores.types import KG_NODES_KEY, KG_RELATIONS_KEY, EntityNode, Relation
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode, TransformComponent

from pearl_qdrant.integrations.merging import Merged, NameMerger, new_names
from pearl_qdrant.integrations.metadata import candidate_metadata, candidate_text, document_metadata
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.resolution import NameRecord
from pearl_qdrant.settings import DEFAULT_LIMIT

READ_BY_PEOPLE = ("canonical_name", "description", "types")
"""Metadata of a candidate that a language model should read; the rest is numbers and ids."""


class EntityExtractor(BaseExtractor):
    """Finds the entities of nodes and adds them to `entity_ids` and `entity_names` of their metadata: a transformation
    of an ingestion pipeline. The linker is no part of what it serialises to.
    """

    types: list[str] = Field(default_factory=list, description="Only entities of these types.")
    threshold: float | None = Field(default=None, ge=0, le=1, description="Least probability of a mention.")
    mentions: bool = Field(default=False, description="Whether to list each mention with its place.")

    _linker: EntityLinker = PrivateAttr()

    def __init__(self, linker: EntityLinker, **fields: Any) -> None:
        """Make an extractor; `fields` are those above, and those of `BaseExtractor`."""
        super().__init__(**fields)
        self._linker = linker

    @classmethod
    def class_name(cls) -> str:
        """The name under which LlamaIndex serialises it."""
        return "PearlEntityExtractor"

    async def aextract(self, nodes: Sequence[BaseNode]) -> list[dict[str, Any]]:
        """One metadata dictionary for each node; an empty one for a node without text."""
        is_text = [isinstance(node, TextNode) or not self.is_text_node_only for node in nodes]
        # The text alone: metadata that other extractors wrote has names that the text does not mention.
        texts = [
            node.get_content(metadata_mode=MetadataMode.NONE)
            for node, wanted in zip(nodes, is_text, strict=True)
            if wanted
        ]
        annotate = self._linker.annotate_batch
        every = await asyncio.to_thread(lambda: list(annotate(texts, types=self.types, threshold=self.threshold)))
        found = iter(every)
        return [
            document_metadata(next(found), mentions=self.mentions, existing=node.metadata) if wanted else {}
            for node, wanted in zip(nodes, is_text, strict=True)
        ]


class EntityRetriever(BaseRetriever):
    """Retrieves the entities that a mention may mean, best first, as nodes scored with their probability.

    The query is a mention, not a question.
    """

    def __init__(
        self,
        linker: EntityLinker,
        *,
        similarity_top_k: int = DEFAULT_LIMIT,
        types: Sequence[str] = (),
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
    ) -> None:
        """Make a retriever of at most `similarity_top_k` entities. Raises ValueError if that is below 1."""
        if similarity_top_k < 1:
            raise ValueError(f"similarity_top_k must be at least 1, not {similarity_top_k}")
        super().__init__(callback_manager=callback_manager, verbose=verbose)
        self._linker, self._top_k, self._types = linker, similarity_top_k, tuple(types)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        link = self._linker.link(query_bundle.query_str, types=self._types, limit=self._top_k)
        return [
            NodeWithScore(
                node=TextNode(
                    id_=one.entity_id,
                    text=candidate_text(one),
                    metadata=(metadata := candidate_metadata(one)),
                    excluded_llm_metadata_keys=[key for key in metadata if key not in READ_BY_PEOPLE],
                    excluded_embed_metadata_keys=list(metadata),
                ),
                score=one.probability,
            )
            for one in link.candidates
        ]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


class EntityMerger(TransformComponent):
    """Gives the entities that mean the same one name, which is their id: the last of the `kg_extractors` of a property
    graph index. Types are their labels. The given nodes are not changed, so that a run after `merger.undo` has the
    names as they were.
    """

    _merger: NameMerger = PrivateAttr()

    def __init__(self, merger: NameMerger | None = None) -> None:
        """Make a transformation; a merger of yours has the file of nodes, the dry run and what it did."""
        super().__init__()
        self._merger = merger or NameMerger()

    @property
    def merger(self) -> NameMerger:
        """What it would merge or has merged, and undoing."""
        return self._merger

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[BaseNode]:
        """Copies of nodes, with the merged entities and relations in their metadata."""
        given = {
            (i, j): entity
            for i, node in enumerate(nodes)
            for j, entity in enumerate(node.metadata.get(KG_NODES_KEY) or ())
            if isinstance(entity, EntityNode)
        }
        records = {
            place: NameRecord(one.name, one.label, nodes[place[0]].node_id, one.properties.get("description", ""))
            for place, one in given.items()
        }
        merged = self._merger.merge(records)
        if self._merger.dry_run:
            return list(nodes)
        new: dict[int, dict[int, EntityNode]] = {}
        for one in merged:
            places = (one.key, *one.others)
            entity = _joined(one, [given[place] for place in places])
            for i, j in places:
                new.setdefault(i, {})[j] = entity.model_copy(deep=True)
        return [
            node.model_copy(update={"metadata": _with_entities(node.metadata, new[i])}) if i in new else node
            for i, node in enumerate(nodes)
        ]


def _joined(merged: Merged[tuple[int, int]], entities: Sequence[EntityNode]) -> EntityNode:
    """One entity of several; of each property the first value."""
    properties = {name: value for one in reversed(entities) for name, value in one.properties.items()}
    return entities[0].model_copy(update={"name": merged.name, "properties": properties | merged.added})


def _with_entities(metadata: dict[str, Any], new: dict[int, EntityNode]) -> dict[str, Any]:
    """The metadata of a node with new entities, by place; each is there once, and so is each relation."""
    before: list[Any] = metadata[KG_NODES_KEY]
    entities = [new.get(j, one) for j, one in enumerate(before)]
    new_id = new_names([one.id for one in before], [one.id for one in entities])
    relations = dict[tuple[str, str, str], Relation]()
    for one in metadata.get(KG_RELATIONS_KEY) or ():
        source, target = (new_id.get(end, end) for end in (one.source_id, one.target_id))
        if source != target or one.source_id == one.target_id:
            moved = one.model_copy(update={"source_id": source, "target_id": target}, deep=True)
            relations.setdefault((source, one.label, target), moved)
    return {
        **metadata,
        KG_NODES_KEY: list({(one.id, one.label): one for one in entities}.values()),
        KG_RELATIONS_KEY: list(relations.values()),
    }
