"""LlamaIndex: an extractor that tags nodes with their entities, and a retriever of entities.

    from pearl_qdrant.integrations.llama_index import EntityExtractor, EntityRetriever

Both take an open `EntityLinker` and leave it open. Needs the extra `llama-index`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.callbacks import CallbackManager
from llama_index.core.extractors import BaseExtractor
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode

from pearl_qdrant.integrations.metadata import candidate_metadata, candidate_text, document_metadata
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.records import Annotation
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
        found = iter(await asyncio.to_thread(self._annotate, texts))
        return [
            document_metadata(next(found), mentions=self.mentions, existing=node.metadata) if wanted else {}
            for node, wanted in zip(nodes, is_text, strict=True)
        ]

    def _annotate(self, texts: list[str]) -> list[list[Annotation]]:
        return list(self._linker.annotate_batch(texts, types=self.types, threshold=self.threshold))


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
