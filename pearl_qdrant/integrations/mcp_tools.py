"""The tools of `pearl_qdrant.integrations.mcp`: what an assistant may ask of collections, and what it is answered."""

from __future__ import annotations

import contextvars
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field

from pearl_qdrant import records
from pearl_qdrant.errors import EntityNotFoundError, OptionError, PearlQdrantError
from pearl_qdrant.integrations.metadata import open_newest, types_of
from pearl_qdrant.linking.editing import read_entities
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.service.lanes import SHORT_TEXT, Lane
from pearl_qdrant.service.settings import LIMITS as OF_SERVICE
from pearl_qdrant.service.settings import Limit, ServiceSettings
from pearl_qdrant.settings import DEFAULT_LIMIT

T = TypeVar("T")

SHOWN = 3  # Candidates beside each link

LIMITS = (
    *(one for one in OF_SERVICE if one.field in ("mentions", "text", "entity_id", "collection", "types")),
    Limit("name", "max_mention_characters", "characters"),
    Limit("entity_ids", "max_mentions", "items"),
    Limit("entity_ids", "max_mention_characters", "characters of each"),
    Limit("entities", "max_mentions", "items"),
)
"""Those of the service, by argument."""

HALF = "\ufdd0"
"""Stands for half of a character in what a client sends (`mcp.LineReader`). Unicode allows it in no text."""

_NO_TEXT = re.compile(f"[{HALF}\ud800-\udfff]")

Types = Annotated[
    list[str],
    Field(description="Only entities of one of these types of the base, such as city; empty for all, if unsure."),
]
Most = Annotated[int, Field(ge=1, le=100, description="Entities to return at most.")]
Probability = Annotated[
    float | None,
    Field(ge=0, le=1, description="Least probability of a link; leave it out for the one fitted to the base."),
]


def check_arguments(arguments: Mapping[str, object]) -> None:
    """Refuse arguments that have half of a character, which no answer could repeat, with OptionError, and those over a
    limit with LimitError.
    """
    for name, value in arguments.items():
        if _NO_TEXT.search(json.dumps(value, ensure_ascii=False, default=BaseModel.model_dump)):
            raise OptionError(name, f"{name} has half of a character (a lone surrogate), which is no valid text.")
    for limit in LIMITS:
        limit.check(arguments.get(limit.field), ServiceSettings())


class FoundEntity(BaseModel):
    """An entity that a mention may mean."""

    entity_id: str
    canonical_name: str
    name: str = Field(description="The name of the entity that is closest to the mention.")
    types: list[str]
    probability: float = Field(description="Probability that the mention means it.")
    description: str | None = None


class MentionLink(BaseModel):
    """A mention with its entity; without one (NIL), nil_reason says why."""

    mention: str
    entity_id: str | None
    canonical_name: str | None
    probability: float | None
    nil_reason: str | None = None
    candidates: list[FoundEntity] = Field(description="The most probable entities, best first, also for NIL.")
    start: int | None = Field(default=None, description="Offset of the mention in the text, in characters.")
    end: int | None = Field(default=None, description="Offset after its last character.")


class Links(BaseModel):
    """Mentions in their order."""

    links: list[MentionLink]


class Entities(BaseModel):
    """Entities, best first."""

    entities: list[FoundEntity]


class EntityRecord(BaseModel):
    """All that the base says of an entity."""

    entity_id: str
    canonical_name: str
    aliases: list[str] = []
    types: list[str] = []
    description: str | None = None
    popularity: float | None = None


class Changed(BaseModel):
    """What was written or deleted."""

    names: int = Field(description="Number of names.")


@dataclass
class LinkerTools:
    """The tools over some collections, each of which is opened when it is needed first. Raises ValueError if no
    collection is given.
    """

    collections: Sequence[str]
    store: str | None
    read_only: bool
    _open: dict[str, EntityLinker] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _short: Lane = field(default_factory=lambda: Lane("calls", threads=1, timeout_s=ServiceSettings().timeout_s))
    _long: Lane = field(default_factory=lambda: Lane("long calls", threads=1, timeout_s=ServiceSettings().timeout_s))

    def __post_init__(self) -> None:
        if isinstance(self.collections, str) or not self.collections:
            raise ValueError(f"collections is a list with at least one name, not {self.collections!r}")
        self.collections = tuple(dict.fromkeys(self.collections))

    def open_all(self) -> None:
        """Open all collections now."""
        for collection in self.collections:
            self._linker(collection)

    async def link(self, *, mentions: list[str], types: Types = [], collection: str | None = None) -> Links:  # noqa: B006
        """Give names their ids: for names that you have, such as the cells of a column. Give all names in one call, as
        they are written. Each gets one entity with a probability, or none (NIL) with a reason: the base
        lacks it (below_threshold, no_candidates), or several entities have that name (ambiguous: ask again with types).
        For a sentence or longer text use annotate.
        """
        size = sum(map(len, mentions))
        links = await self._run(
            collection, lambda linker: list(linker.link_batch(mentions, types=types, workers=1)), size=size
        )
        return Links(links=[_as_link(one) for one in links])

    async def annotate(
        self,
        *,
        text: str,
        types: Types = [],  # noqa: B006
        threshold: Probability = None,
        collection: str | None = None,
    ) -> Links:
        """Find the entities that a text mentions, and where: for sentences, notes, articles, not for single names. What
        is not in the base is not returned.
        """
        found = await self._run(
            collection, lambda linker: linker.annotate(text, types=types, threshold=threshold), size=len(text)
        )
        places = [{"mention": one.text, "start": one.start, "end": one.end} for one in found]
        return Links(links=[_as_link(one.link).model_copy(update=p) for one, p in zip(found, places, strict=True)])

    async def entity(self, *, entity_id: str, collection: str | None = None) -> EntityRecord:
        """Look up one entity by its id, as another tool returned it: all its names, types and description. For a name
        use search.
        """
        found = await self._run(collection, lambda linker: linker.entity(entity_id))
        types = list(dict.fromkeys([*found.types, *found.kb_types]))
        return EntityRecord.model_validate({**_shared(EntityRecord, found), "types": types})

    async def search(
        self,
        *,
        name: str,
        types: Types = [],  # noqa: B006
        limit: Most = DEFAULT_LIMIT,
        collection: str | None = None,
    ) -> Entities:
        """List the entities that one name may mean, also misspelled, most probable first: to compare several. The
        first is no answer by itself: link says whether it is certain enough.
        """
        link = await self._run(collection, lambda linker: linker.link(name, types=types, limit=limit))
        return Entities(entities=[_as_entity(one) for one in link.candidates])

    async def add(self, *, entities: list[EntityRecord], collection: str | None = None) -> Changed:
        """Write entities with their names into the base, only where the user asks for it; one whose id exists is
        replaced whole.
        """
        new = read_entities([one.model_dump(exclude_none=True) for one in entities])
        return Changed(names=await self._run(collection, lambda linker: linker.add(new)))

    async def delete(self, *, entity_ids: list[str], collection: str | None = None) -> Changed:
        """Delete entities with all their names, only where the user asks for it. It cannot be undone."""
        return Changed(names=await self._run(collection, lambda linker: linker.delete(entity_ids)))

    def close(self) -> None:
        """End the calls at their next pause, and close the collections."""
        for lane in (self._short, self._long):
            lane.close()
        while self._open:
            self._open.popitem()[1].close()

    def _named(self, collection: str | None) -> str:
        """The collection that a call names, or the only one. Raises OptionError if there is none of that name, or
        several and none is named.
        """
        known = ", ".join(self.collections)
        if collection is None and len(self.collections) > 1:
            raise OptionError("collection", f"The argument collection is missing: it is one of {known}.")
        if collection is not None and collection not in self.collections:
            raise OptionError("collection", f"There is no collection {collection!r}; there are: {known}.")
        return collection or self.collections[0]

    async def _run(self, collection: str | None, use: Callable[[EntityLinker], T], *, size: int = 0) -> T:
        """What a linker answers, in a thread and in the newest state of its collection; `size` in characters. Raises
        TimedOutError if it takes longer than a request to the service may.
        """
        name = self._named(collection)
        lane = self._short if size <= SHORT_TEXT else self._long
        # Opened without pauses, since the lock is held.
        return await lane.run(lambda: use(contextvars.Context().run(self._linker, name)), size=size)

    def _linker(self, collection: str) -> EntityLinker:
        with self._lock:
            known = self._open.get(collection)
            self._open[collection] = open_newest(known, [collection], store=self.store, read_only=self.read_only)
            return self._open[collection]


def told(error: PearlQdrantError) -> str:
    """The text of an error for a client, which may have these tools and no shell."""
    advice = " Ids are case-sensitive; the tool search finds them." if isinstance(error, EntityNotFoundError) else ""
    return error.message + advice


def _as_link(link: records.Link) -> MentionLink:
    reason = None if link.nil_reason is None else link.nil_reason.value
    candidates = [_as_entity(one) for one in link.candidates[:SHOWN]]
    return MentionLink.model_validate({**_shared(MentionLink, link), "nil_reason": reason, "candidates": candidates})


def _as_entity(candidate: records.Candidate) -> FoundEntity:
    found = {"types": types_of(candidate), "probability": candidate.probability or 0.0}
    return FoundEntity.model_validate({**_shared(FoundEntity, candidate), **found})


def _shared(model: type[BaseModel], record: object) -> dict[str, object]:
    """The values of the fields that a record has of a model."""
    return {name: getattr(record, name) for name in model.model_fields if hasattr(record, name)}
