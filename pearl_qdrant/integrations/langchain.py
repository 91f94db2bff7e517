"""LangChain: a retriever of entities, a tool that links mentions, and a transformer that tags documents.

    from pearl_qdrant.integrations.langchain import EntityRetriever, EntityTagger, make_link_tool

Each takes an open `EntityLinker` and leaves it open. Needs the extra `langchain`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import BaseDocumentTransformer, Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import StructuredTool
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, SkipValidation

from pearl_qdrant.integrations.metadata import candidate_metadata, candidate_text, document_metadata
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.records import Candidate, Link, NilReason
from pearl_qdrant.settings import DEFAULT_LIMIT

TOOL_NAME = "link_entities"
_MOST_NAMED = 5  # entities of one name that the tool tells a model


class EntityRetriever(BaseRetriever):
    """Retrieves the entities that a mention (not a question) may mean, best first, as documents: the canonical name
    with the description; the metadata has the id, the types, the probability and the scores.

    `k` and `types` may be replaced for one call: `invoke(mention, k=3)`. Less probable entities than `min_probability`
    are left out.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    linker: SkipValidation[EntityLinker] = Field(exclude=True)
    k: PositiveInt = DEFAULT_LIMIT
    types: tuple[str, ...] = ()
    min_probability: float = Field(default=0.0, ge=0, le=1)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        types: Sequence[str] | None = None,
    ) -> list[Document]:
        limit, kinds = self.k if k is None else k, self.types if types is None else types
        return [
            Document(id=one.entity_id, page_content=candidate_text(one), metadata=candidate_metadata(one))
            for one in self.linker.link(query, types=kinds, limit=limit).candidates
            if (one.probability or 0.0) >= self.min_probability
        ]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **given: Any
    ) -> list[Document]:
        find = partial(self._get_relevant_documents, query, run_manager=run_manager.get_sync(), **given)
        return await asyncio.to_thread(find)


class LinkInput(BaseModel):
    """The arguments of the tool."""

    mentions: list[str] = Field(description="Names as they are written in the text, such as 'NYTimes'.")
    types: list[str] = Field(default=[], description="Only entities of one of these types; empty for all.")


def make_link_tool(linker: EntityLinker, *, name: str = TOOL_NAME, description: str | None = None) -> StructuredTool:
    """Make a tool by which an agent links names to entities of the base. Its content is one line a mention, for the
    model; its artifact is the list of `Link` records, for the program.
    """

    def link(mentions: list[str], types: list[str] | None = None) -> tuple[str, list[Link]]:
        links = list(linker.link_batch(mentions, types=types or []))
        return "\n".join(map(_line_of, links)), links

    return StructuredTool.from_function(
        link,
        name=name,
        description=description
        or "Link names to entities of the knowledge base. Returns for each name the entity's id, canonical name and "
        "probability, or NIL with the reason if the base has no such entity.",
        args_schema=LinkInput,
        response_format="content_and_artifact",
    )


def _line_of(link: Link) -> str:
    if link.nil_reason is NilReason.AMBIGUOUS:
        best = link.candidates[0]
        same = [one for one in link.candidates if one.tie or one.name == best.name]
        return f"{link.mention}: NIL (ambiguous: {', '.join(map(_named, same[:_MOST_NAMED]))})"
    if link.entity_id is None:
        return f"{link.mention}: NIL ({link.nil_reason.value.replace('_', ' ') if link.nil_reason else 'unknown'})"
    return f"{link.mention}: {link.canonical_name} [{link.entity_id}], probability {link.probability or 0:.2f}"


def _named(candidate: Candidate) -> str:
    about = f", {candidate.description}" if candidate.description else ""
    return f"{candidate.canonical_name} [{candidate.entity_id}{about}]"


class EntityTagger(BaseDocumentTransformer):
    """Finds the entities of documents and adds their ids to the metadata: `entity_ids` and `entity_names`; with
    `mentions` each mention with its place, too, as `entity_mentions`.
    """

    def __init__(
        self, linker: EntityLinker, *, types: Sequence[str] = (), threshold: float | None = None, mentions: bool = False
    ) -> None:
        self._linker = linker
        self._types, self._threshold, self._mentions = tuple(types), threshold, mentions

    def transform_documents(self, documents: Sequence[Document], **kwargs: Any) -> list[Document]:
        """Return copies with the metadata; the given documents are not changed."""
        texts = [document.page_content for document in documents]
        found = self._linker.annotate_batch(texts, types=self._types, threshold=self._threshold)
        return [
            document.model_copy(
                update={
                    "metadata": {
                        **document.metadata,
                        **document_metadata(one, mentions=self._mentions, existing=document.metadata),
                    }
                }
            )
            for document, one in zip(documents, found, strict=True)
        ]
