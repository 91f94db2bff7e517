"""Haystack: a component that tags documents with their entities, and one that retrieves entities.

    from pearl_qdrant.integrations.haystack import EntityRetriever, EntityTagger

A component names its collections and opens them with `warm_up`, or takes an open `EntityLinker`, which it leaves open;
then it cannot be serialised. Haystack 3 loads a pipeline with them where its module is trusted:
`Pipeline.loads(text, allowed_modules=["pearl_qdrant.integrations.haystack"])`. Needs the extra `haystack`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from haystack import Document, component, default_from_dict, default_to_dict

from pearl_qdrant.errors import OptionError
from pearl_qdrant.integrations.metadata import candidate_metadata, candidate_text, document_metadata
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.options import check_threshold
from pearl_qdrant.settings import DEFAULT_LIMIT

C = TypeVar("C", bound="_OwnsLinker")


class _OwnsLinker:
    """What both components have: a linker that is opened when it is needed first, for reading alone, or a given one."""

    def _take(self, collections: str | Sequence[str] | None, store: str | None, linker: EntityLinker | None) -> None:
        names = [collections] if isinstance(collections, str) else list(collections or [])
        if bool(names) == (linker is not None):
            raise OptionError("collections", "Give either names of collections or an open linker.")
        self._collections, self._store = names, store
        self._linker, self._is_ours = linker, linker is None

    def warm_up(self) -> None:
        """Open the collections and load the model."""
        self._open()

    def close(self) -> None:
        """Close the collections, if they were opened here; `run` opens them again."""
        if self._is_ours and self._linker is not None:
            self._linker.close()
            self._linker = None

    def _open(self) -> EntityLinker:
        """The open linker, in the newest state of its collections."""
        if self._linker is None:
            self._linker = EntityLinker.open(*self._collections, store=self._store, read_only=True)
        if self._is_ours and self._linker.is_outdated:
            self._linker.reload()
        return self._linker

    def _as_values(self, **parameters: Any) -> dict[str, Any]:
        """The component as plain values. Raises OptionError if it was given an open linker."""
        if not self._is_ours:
            raise OptionError(
                "collections", "A component with an open linker cannot be serialised: give it names of collections."
            )
        return default_to_dict(self, collections=self._collections, store=self._store, **parameters)

    @classmethod
    def from_dict(cls: type[C], data: dict[str, Any]) -> C:
        """Make the component of `to_dict`."""
        made: C = default_from_dict(cls, data)
        return made


@component
class EntityTagger(_OwnsLinker):
    """Finds the entities of documents and adds `entity_ids` and `entity_names` to their `meta`."""

    def __init__(
        self,
        collections: str | list[str] | None = None,
        store: str | None = None,
        types: list[str] | None = None,
        threshold: float | None = None,
        mentions: bool = False,
        linker: EntityLinker | None = None,
    ) -> None:
        """Make a tagger; nothing is opened yet. `store`, `types`, `threshold`: as for the linker; `mentions` lists each
        mention with its place, too, as `entity_mentions`; `linker`: an open one in place of `collections`. Raises
        OptionError unless there is either a collection or a linker; ValueError if the threshold is no probability.
        """
        check_threshold(threshold)
        self._take(collections, store, linker)
        self.types, self.threshold, self.mentions = types, threshold, mentions

    def to_dict(self) -> dict[str, Any]:
        """The component as plain values."""
        return self._as_values(types=self.types, threshold=self.threshold, mentions=self.mentions)

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Return copies of the documents with the entities in `meta`; one without text has none."""
        texts = [document.content or "" for document in documents]
        found = self._open().annotate_batch(texts, types=self.types or (), threshold=self.threshold)
        return {
            "documents": [
                replace(
                    document,
                    meta={**document.meta, **document_metadata(one, mentions=self.mentions, existing=document.meta)},
                )
                for document, one in zip(documents, found, strict=True)
            ]
        }

    @component.output_types(documents=list[Document])
    async def run_async(self, documents: list[Document]) -> dict[str, Any]:
        """`run` in a thread."""
        return await asyncio.to_thread(self.run, documents)


@component
class EntityRetriever(_OwnsLinker):
    """Retrieves the entities that a mention may mean, best first, scored with their probability."""

    def __init__(
        self,
        collections: str | list[str] | None = None,
        store: str | None = None,
        top_k: int = DEFAULT_LIMIT,
        types: list[str] | None = None,
        linker: EntityLinker | None = None,
    ) -> None:
        """Make a retriever of at most `top_k` entities; the others are as for `EntityTagger`. Raises OptionError unless
        there is either a collection or a linker; ValueError if `top_k` is below 1.
        """
        if top_k < 1:
            raise ValueError(f"top_k must be at least 1, not {top_k}")
        self._take(collections, store, linker)
        self.top_k, self.types = top_k, types

    def to_dict(self) -> dict[str, Any]:
        """The component as plain values."""
        return self._as_values(top_k=self.top_k, types=self.types)

    @component.output_types(documents=list[Document])
    def run(self, query: str, top_k: int | None = None, types: list[str] | None = None) -> dict[str, Any]:
        """Return the entities of a mention, which is not a question; `top_k` and `types` replace those of the
        component.
        """
        kinds, limit = self.types if types is None else types, self.top_k if top_k is None else top_k
        link = self._open().link(query, types=kinds or (), limit=limit)
        return {
            "documents": [
                Document(
                    id=one.entity_id, content=candidate_text(one), meta=candidate_metadata(one), score=one.probability
                )
                for one in link.candidates
            ]
        }

    @component.output_types(documents=list[Document])
    async def run_async(self, query: str, top_k: int | None = None, types: list[str] | None = None) -> dict[str, Any]:
        """`run` in a thread."""
        return await asyncio.to_thread(self.run, query, top_k, types)
