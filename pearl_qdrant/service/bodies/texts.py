"""Bodies of /v1/annotate and /v1/documents, and their answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field

from pearl_qdrant.linking.options import AnnotateOptions, LinkOptions, OnTie, TypeMode
from pearl_qdrant.records import Annotation
from pearl_qdrant.service.bodies.limits import TYPES_LIMITS, Body, Limit, Strict, Texts
from pearl_qdrant.service.bodies.linking import LinkRecord, link_record
from pearl_qdrant.settings import DEFAULT_LIMIT

Part = Literal["partial names", "popularity", "learned names", "types", "passages", "coherence"]

_LIMITS = (
    *TYPES_LIMITS,
    Limit("text", "max_text_characters", "characters"),
    Limit("collection", "max_mention_characters", "characters"),
)


class AnnotateBody(Body):
    """A text in which mentions are found and linked."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "She read the NYTimes at Heathrow.", "threshold": 0.5}]}
    )
    limits = (*_LIMITS, Limit("context", "max_text_characters", "characters"))

    collection: str | None = Field(None, description="Name of the collection; optional if there is only one.")
    text: str = Field(description="The text.")
    types: Texts = Field([], description="Only entities of one of these types, native or coarse.")
    threshold: float | None = Field(None, ge=0, le=1, description="Minimum probability of a mention.")
    context: str | None = Field(None, description="What the text is about.")
    on_tie: OnTie = Field("canonical", description="What to do when several entities have the name.")
    include_nil: bool = Field(False, description="Return spans that look like mentions but have no entity, too.")
    nested: bool = Field(False, description="Return mentions inside other mentions, too.")
    document: bool = Field(False, description="Link the mentions together, as those of a document.")

    def options(self) -> AnnotateOptions:
        """The options of the linker."""
        return AnnotateOptions(
            tuple(self.types),
            self.threshold,
            self.context,
            self.on_tie,
            self.include_nil,
            self.nested,
            self.document,
        )


class Span(Strict):
    """The place of a mention, in code points of the text."""

    start: int = Field(ge=0, description="Offset of its first character.")
    end: int = Field(ge=1, description="Offset after its last character.")


class DocumentBody(Body):
    """A document with the places of its mentions, which are linked together."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"text": "Bill Clinton spoke. Clinton left.", "spans": [{"start": 20, "end": 27}]}]
        }
    )
    limits = (*_LIMITS, Limit("spans", "max_spans", "items"), Limit("limit", "max_limit", "value"))
    linked = "spans"

    collection: str | None = Field(None, description="Name of the collection; optional if there is only one.")
    text: str = Field(description="The document.")
    spans: Annotated[list[Span], FailFast()] = Field(description="The places of its mentions.")
    types: Texts = Field([], description="Only entities of one of these types, native or coarse.")
    type_mode: TypeMode = Field("hard", description="hard: only entities of the types; soft: prefer them; off.")
    limit: int = Field(DEFAULT_LIMIT, ge=1, description="Maximum number of candidates.")
    threshold: float | None = Field(None, ge=0, le=1, description="Minimum probability of a link.")
    on_tie: OnTie = Field("canonical", description="What to do when several entities have the name.")
    without: Annotated[list[Part], FailFast()] = Field([], max_length=6, description="What of the document not to use.")

    def options(self) -> LinkOptions:
        """The options of the linker."""
        return LinkOptions(tuple(self.types), self.type_mode, self.limit, self.threshold, self.on_tie)


class AnnotationRecord(BaseModel):
    """A mention in a text, with its link."""

    start: int
    end: int
    text: str
    long_form: str | None = Field(description="What the abbreviation stands for, if the text says so.")
    link: LinkRecord


class AnnotationsAnswer(BaseModel):
    """The mentions of a text, in its order."""

    collection: str
    annotations: list[AnnotationRecord]


def annotation_record(found: Annotation) -> dict[str, Any]:
    """The JSON of a mention in a text."""
    record = {name: getattr(found, name) for name in ("start", "end", "text", "long_form")}
    return {**record, "link": link_record(found.link)}
