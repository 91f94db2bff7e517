"""Haystack: a component that tags documents with their entities, one that retrieves entities, and one that gives the
entities that a language model extracted, and that mean the same, one name.

    from pearl_qdrant.integrations.haystack import EntityMerger, EntityRetriever, EntityTagger

The first two name their collections and open them with `warm_up`, or take an open `EntityLinker`, which they leave
open; then they cannot be serialised. Haystack 3 loads a pipeline with them where its module is trusted:
`Pipeline.loads(text, allowed_modules=["pearl_qdrant.integrations.haystack"])`. Needs the extra `haystack`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from haystack import Document, component, default_from_dict, default_to_dict

from pearl_qdrant.errors import OptionError
from pearl_qdrant.integrations.merging import NameMerger, new_names
from pearl_qdrant.integrations.metadata import candidate_metadata, candidate_text, document_metadata, open_newest
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.options import check_threshold
from pearl_qdrant.resolution import NameRecord
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
        if self._is_ours or self._linker is None:
            self._linker = open_newest(self._linker, self._collections, store=self._store)
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


@component
class EntityMerger:
    """Gives the entities in the metadata of documents that mean the same one name, as `LLMMetadataExtractor` writes
    them: {"entities": [{"entity": "deepset GmbH", "entity_type": "company"}]}. The given documents are not changed, so
    that a run after `merger.undo` has the names as they were.
    """

    def __init__(
        self,
        nodes: str | None = None,
        dry_run: bool = False,
        entity_keys: Sequence[str] = ("entities", "entity", "entity_type"),
        relation_keys: Sequence[str] = ("relations", "source", "target"),
        merger: NameMerger | None = None,
    ) -> None:
        """Make a merger. `nodes`: file of the node of each name, which later runs keep; `dry_run`: merge nothing;
        `entity_keys`, `relation_keys`: the key of the list in `meta`, and those of name and type, or of both ends, in
        each item; `merger`: a `NameMerger` with options of its own in place of the first two.
        """
        if merger is not None and (nodes is not None or dry_run):
            raise OptionError("merger", "Give either a merger, which has its own nodes and dry run, or these.")
        self._nodes, self._is_ours = nodes, merger is None
        self.merger = merger or NameMerger(nodes, dry_run=dry_run)
        self.entity_keys, self.relation_keys = list(entity_keys), list(relation_keys)

    def to_dict(self) -> dict[str, Any]:
        """The component as plain values. Raises OptionError if it was given a merger."""
        if not self._is_ours:
            raise OptionError("merger", "A component with a merger of yours cannot be serialised: give it `nodes`.")
        return default_to_dict(
            self,
            nodes=self._nodes,
            dry_run=self.merger.dry_run,
            entity_keys=self.entity_keys,
            relation_keys=self.relation_keys,
        )

    @component.output_types(documents=list[Document], report=str)
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Return copies of the documents, with each entity once and by one name, and its other names as `aliases`; and
        a line for each name that was, or would be, merged.
        """
        key, name_key, type_key = self.entity_keys
        given = {
            (i, j): entity
            for i, document in enumerate(documents)
            for j, entity in enumerate(_dicts(document.meta.get(key)))
            if isinstance(entity.get(name_key), str)
        }
        records = {
            place: NameRecord(one[name_key], one.get(type_key, ""), documents[place[0]].id)
            for place, one in given.items()
        }
        new: dict[int, dict[int, dict[str, Any]]] = {}
        for one in self.merger.merge(records):
            for i, j in (one.key, *one.others):
                new.setdefault(i, {})[j] = {**given[i, j], name_key: one.name, **one.added}
        if self.merger.dry_run:
            new = {}
        return {
            "documents": [
                replace(document, meta=self._merged(document.meta, new[i])) if i in new else document
                for i, document in enumerate(documents)
            ],
            "report": self.merger.report(),
        }

    def _merged(self, meta: dict[str, Any], new: dict[int, dict[str, Any]]) -> dict[str, Any]:
        """Metadata with new entities, by place, and with their names in its relations."""
        (key, name_key, type_key), (relations_key, *ends) = self.entity_keys, self.relation_keys
        before = _dicts(meta[key])
        after = [new.get(j, one) for j, one in enumerate(before)]
        places = sorted(new)
        names = new_names((before[j][name_key] for j in places), (after[j][name_key] for j in places))
        found = {**meta, key: list({(str(one.get(name_key)), str(one.get(type_key))): one for one in after}.values())}
        if relations := _dicts(meta.get(relations_key)):
            found[relations_key] = [one for old in relations if (one := _moved(old, ends, names)) is not None]
        return found


def _dicts(value: object) -> list[dict[str, Any]]:
    """The list of entities or relations; an empty one where a language model wrote something else."""
    return value if isinstance(value, list) and all(isinstance(one, dict) for one in value) else []


def _moved(relation: dict[str, Any], ends: Sequence[str], names: dict[str, str]) -> dict[str, Any] | None:
    """A relation with the new names of its ends; None if they have become one."""
    given = [one for end in ends if isinstance(one := relation.get(end), str)]
    new = {end: names.get(one, one) for end in ends if isinstance(one := relation.get(end), str)}
    return None if len(set(new.values())) < len(set(given)) else {**relation, **new}
