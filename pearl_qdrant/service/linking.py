"""The paths that link and learn, with their bodies and answers.

POST /v1/link                       mentions to links
POST /v1/annotate, /v1/documents    mentions of a text: found, or at given places
POST /v1/accept, /v1/reject         answers of people, which the collection learns
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Request
from fastapi.responses import Response
from orjson import Fragment
from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field

from pearl_qdrant.linking.learned.ledger import LearnedBatch
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.mention_detection.blocks import Utf16
from pearl_qdrant.linking.options import AnnotateOptions, CommonWords, LinkOptions, Markup, OffsetUnit, OnTie, TypeMode
from pearl_qdrant.linking.properties import MOST_CANDIDATES, linked_rows, read_rows, wider
from pearl_qdrant.linking.ranking.explain import explain_link
from pearl_qdrant.options import Options
from pearl_qdrant.records import Annotation, Assertion, Link, link_record
from pearl_qdrant.service.answers import CollectionsHere, beside, declared, json_answer, packed, router_of
from pearl_qdrant.service.collections import CollectionHandle
from pearl_qdrant.service.queues import IsGone
from pearl_qdrant.service.settings import Body, InvalidRequestError, ServiceSettings, Strict, Texts
from pearl_qdrant.settings import DEFAULT_LIMIT

router = router_of("linking")
texts = router_of("texts")
learning = router_of("learning")

T = TypeVar("T")
Chosen = TypeVar("Chosen", bound=Options)

_RECORD_BYTES = 300  # About the size of a candidate or a mention as JSON


def _chosen(body: Body, record: type[Chosen]) -> Chosen:
    """The record of options whose fields the body has."""
    return record(**{name: getattr(body, name) for name in record.model_fields if hasattr(body, name)})


class _Linked(Body):
    types: Texts = Field([], description="Only entities of one of these types, native or coarse.")
    threshold: float | None = Field(None, ge=0, le=1, description="Minimum probability of a link.")
    on_tie: OnTie = Field("canonical", description="What to do when several entities have the name.")


class _WithCandidates(_Linked):
    type_mode: TypeMode = Field("hard", description="hard: only entities of the types; soft: prefer them; off.")
    limit: int | None = Field(
        None, ge=1, description=f"Most candidates; by default what the answer needs, to {DEFAULT_LIMIT}."
    )
    languages: Texts = Field(
        [], description="Only names in one of these languages, such as de, and names without a stated language."
    )


_MOST_BIAS = 20.0


class LinkBody(_WithCandidates):
    """Mentions to link."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"mentions": ["NYTimes", "Big Apple"], "limit": 3},
                {
                    "mentions": ["Clinton"],
                    "types": ["PERSON"],
                    "threshold": 0.8,
                    "context": "Bill Clinton met reporters in Washington.",
                    "explain": True,
                },
            ]
        }
    )
    linked = "mentions"

    mentions: Texts = Field(description="The strings to link.", examples=[["NYTimes", "Big Apple"]])
    context: str | None = Field(None, description="Text around the mentions.")
    nil_bias: float = Field(
        0.0,
        ge=-_MOST_BIAS,
        le=_MOST_BIAS,
        description="Added to the logit of NIL: below 0 more is linked.",
    )
    properties: dict[str, list[str | float | None]] = Field(
        {},
        max_length=50,
        description="Columns beside the mentions, by the column of the base, with a value or null for each mention.",
        examples=[{"city": ["Emeryville", None]}],
    )
    split: bool = Field(False, description="Link each name of a list (`X; Y`): `parts` of its link, which is NIL.")
    explain: bool = Field(False, description="Add features, and lines that explain each link.")

    def check(self, settings: ServiceSettings) -> None:
        super().check(settings)
        for name, values in self.properties.items():
            if len(values) != len(self.mentions):
                raise InvalidRequestError(
                    f"properties.{name} has {len(values)} values, mentions {len(self.mentions)}. Send one for each, or "
                    "null.",
                    where=f"properties.{name}",
                )


class Span(Strict):
    """The place of a mention, in code points of the text."""

    start: int = Field(ge=0, description="Offset of its first character.")
    end: int = Field(ge=1, description="Offset after its last character.")


class LabelledSpan(Span):
    """The place of a mention, as `offsets` counts, and what a recogniser called it."""

    label: str = Field("", max_length=200, description="Its label.")


def _check_places(spans: Sequence[Span], length: int, unit: str = "characters") -> None:
    """Refuse spans that are outside the text. Raises InvalidRequestError with the number of one."""
    for number, span in enumerate(spans):
        if not span.start < span.end <= length:
            raise InvalidRequestError(
                f"spans.{number} is {span.start} to {span.end}, but the text has {length} {unit}. Offsets "
                f"count {unit.replace('characters', 'code points')} from 0; the end is behind the last character.",
                where=f"spans.{number}",
            )


_AssertionName = Annotated[
    Assertion, BeforeValidator(lambda one: one.replace("-", "_") if isinstance(one, str) else one)
]
"""An assertion, with a dash too."""


class AnnotateBody(_Linked):
    """A text in which mentions are found and linked."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "She read the NYTimes at Heathrow.", "threshold": 0.5}]}
    )

    text: str = Field(description="The text.")
    threshold: float | None = Field(None, ge=0, le=1, description="Minimum probability of a mention.")
    context: str | None = Field(None, description="What the text is about.")
    include_nil: bool = Field(False, description="Return spans that look like mentions but have no entity, too.")
    nested: bool = Field(False, description="Return mentions inside other mentions, too.")
    document: bool = Field(False, description="Link the mentions together, as those of a document.")
    common_words: CommonWords = Field("capitalised", description="When a frequent word that is also a name counts.")
    assertions: Annotated[list[_AssertionName], FailFast()] = Field(
        [], max_length=5, description="Only mentions of which the text says one of these."
    )
    markup: Markup | None = Field(None, description="How the text is written: its tags and signs are no text.")
    offsets: OffsetUnit = Field("characters", description="What offsets count: code points, or UTF-16 code units.")
    spans: Annotated[list[LabelledSpan], FailFast()] = Field(
        [], description="The places of its mentions; they are found if it is left out."
    )
    label_types: dict[str, list[str]] = Field(
        {}, max_length=100, description="The types of each label; spans with other labels are linked to `types`."
    )

    def options(self) -> AnnotateOptions:
        """The options of the linker. Raises InvalidRequestError if they do not fit together."""
        try:
            return _chosen(self, AnnotateOptions)
        except ValueError as error:
            raise InvalidRequestError(str(error), where="label_types") from error

    def labelled(self) -> list[tuple[int, int, str]] | None:
        """The places of the mentions and their labels; None if they are to be found. Raises InvalidRequestError if one
        is outside the text.
        """
        if "spans" not in self.model_fields_set:
            return None
        is_utf16 = self.offsets == "utf-16"
        length = Utf16(self.text).units(len(self.text)) if is_utf16 else len(self.text)
        _check_places(self.spans, length, "UTF-16 code units" if is_utf16 else "characters")
        return [(span.start, span.end, span.label) for span in self.spans]


Part = Literal["partial names", "popularity", "learned names", "types", "passages", "coherence"]


class DocumentBody(_WithCandidates):
    """A document with the places of its mentions, which are linked together."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"text": "Bill Clinton spoke. Clinton left.", "spans": [{"start": 20, "end": 27}]}]
        }
    )
    linked = "spans"

    text: str = Field(description="The document.")
    spans: Annotated[list[Span], FailFast()] = Field(description="The places of its mentions.")
    without: Annotated[list[Part], FailFast()] = Field([], max_length=6, description="What of the document not to use.")

    def check(self, settings: ServiceSettings) -> None:
        super().check(settings)
        _check_places(self.spans, len(self.text))


class AcceptBody(Body):
    """A mention and the entity that it meant."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"mention": "Big Apple", "entity_id": "new-york-city"}]})

    mention: str = Field(description="The mention.")
    entity_id: str | None = Field(description="The entity that it meant; null for no entity.")


class RejectBody(AcceptBody):
    """A mention and an entity that it did not mean."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"mention": "Big Apple", "entity_id": "apple-inc"}]})

    entity_id: str = Field(description="The entity that it did not mean.")


BODIES = (LinkBody, AnnotateBody, DocumentBody, AcceptBody, RejectBody)  # Bodies with limits


@dataclass(frozen=True, slots=True)
class ExplainedLink(Link):
    """The link of a mention; with `explain`, lines for people, too."""

    explanation: tuple[str, ...] = ()


class LinkAnswer(BaseModel):
    """The links of the mentions, in their order."""

    collection: str
    links: list[ExplainedLink]


class AnnotationsAnswer(BaseModel):
    """The mentions of a text, in its order."""

    collection: str
    annotations: list[Annotation]


_ANNOTATION = tuple(one.name for one in fields(Annotation) if one.name != "link")


class BatchAnswer(BaseModel):
    """What the collection learned. `pearl-qdrant learn --undo` takes its number."""

    collection: str
    number: int
    kind: str
    time: str


def annotation_record(found: Annotation) -> dict[str, Any]:
    """The JSON of a mention in a text."""
    record = {name: getattr(found, name) for name in _ANNOTATION}
    return {**record, "link": link_record(found.link)}


@router.post("/v1/link", response_model=LinkAnswer, responses=declared(404, 415))
async def link(body: LinkBody, request: Request, collections: CollectionsHere) -> Response:
    """Link mentions to entities of a collection, each with a probability, or to NIL with a reason."""
    handle = await collections.of(body)
    options = _chosen(body, LinkOptions)
    if body.explain:
        options = options.updated(limit=options.most_candidates)

    def keep(links: Iterable[Link]) -> list[bytes]:
        calibration, model = handle.linker.calibration, handle.linker.model
        kept = []
        for one in links:
            record = link_record(one, is_explained=body.explain)
            if body.explain:
                record |= {"parts": list(map(link_record, one.parts))} if one.parts else {}
                record["explanation"] = explain_link(one, calibration, model)
            kept.append(packed(record))
        return kept

    links = await _links(handle, body, options, keep, request.is_disconnected)
    record = {"collection": handle.name, "links": list(map(Fragment, links))}
    return await beside(sum(map(len, links)), json_answer, record)


async def _links(
    handle: CollectionHandle,
    body: LinkBody,
    options: LinkOptions,
    keep: Callable[[Iterable[Link]], list[T]],
    is_gone: IsGone,
) -> list[T]:
    """What is kept of the links of the mentions, with their properties if there are any."""
    if not body.properties:
        return await handle.link(body.mentions, options, keep=keep, is_gone=is_gone)
    wide = wider(options, MOST_CANDIDATES)
    plain = list if body.explain else _without_features
    found = await handle.link(body.mentions, wide, keep=plain, is_gone=is_gone)
    rows = [row for _, row in read_rows(body.mentions, body.properties)]
    return await handle.call(
        lambda linker: keep(linked_rows(linker.state, found, rows, list(body.properties), options))
    )


_NOTHING: Mapping[str, float] = {}


def _without_features(links: list[Link]) -> list[Link]:
    """Links without what only explanations read, which is half of the memory of a candidate."""
    return [
        replace(one, candidates=tuple(replace(each, features=_NOTHING, decision=_NOTHING) for each in one.candidates))
        for one in links
    ]


@texts.post("/v1/annotate", response_model=AnnotationsAnswer, responses=declared(404, 415))
async def annotate(body: AnnotateBody, collections: CollectionsHere) -> Response:
    """Find the mentions of a text and link them, or link those whose places are known."""
    handle = await collections.of(body)
    options, spans = body.options(), body.labelled()
    return await _annotations(handle, len(body.text), lambda linker: linker.annotate(body.text, options, spans=spans))


@texts.post("/v1/documents", response_model=AnnotationsAnswer, responses=declared(404, 415))
async def documents(body: DocumentBody, collections: CollectionsHere) -> Response:
    """Link the mentions of a document together, where their places are known."""
    handle, options = await collections.of(body), _chosen(body, LinkOptions)
    places = [(span.start, span.end) for span in body.spans]
    return await _annotations(
        handle, len(body.text), lambda linker: linker.link_document(body.text, places, options, without=body.without)
    )


async def _annotations(
    handle: CollectionHandle, characters: int, find: Callable[[EntityLinker], list[Annotation]]
) -> Response:
    found = await handle.of_text(characters, find)
    size = sum(1 + len(one.link.candidates) for one in found) * _RECORD_BYTES
    return await beside(
        size, lambda: json_answer({"collection": handle.name, "annotations": list(map(annotation_record, found))})
    )


@learning.post("/v1/accept", response_model=BatchAnswer, responses=declared(403, 404, 415))
async def accept(body: AcceptBody, collections: CollectionsHere) -> Response:
    """Learn that a mention meant an entity, or none; effective at once."""
    return await _learned(body, collections, lambda linker: linker.accept(body.mention, body.entity_id))


@learning.post("/v1/reject", response_model=BatchAnswer, responses=declared(403, 404, 415))
async def reject(body: RejectBody, collections: CollectionsHere) -> Response:
    """Learn that a mention did not mean an entity; effective at once."""
    return await _learned(body, collections, lambda linker: linker.reject(body.mention, body.entity_id))


async def _learned(body: Body, collections: CollectionsHere, write: Callable[[EntityLinker], LearnedBatch]) -> Response:
    handle = await collections.of(body)
    batch = await handle.call(write)
    return json_answer({"collection": handle.name, "number": batch.number, "kind": batch.kind, "time": batch.time})
