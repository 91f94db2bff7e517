"""Bodies of /v1/link and its answers."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from pearl_qdrant.linking.options import LinkOptions, OnTie, TypeMode
from pearl_qdrant.records import Candidate, Link
from pearl_qdrant.service.bodies.limits import TYPES_LIMITS, Body, Limit, Texts
from pearl_qdrant.settings import DEFAULT_LIMIT

_WITH_CONTEXT: JsonDict = {
    "mentions": ["Clinton"],
    "types": ["PERSON"],
    "threshold": 0.8,
    "context": "Bill Clinton met reporters in Washington.",
    "explain": True,
}


class LinkBody(Body):
    """Mentions to link."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"mentions": ["NYTimes", "Big Apple"], "limit": 3}, _WITH_CONTEXT]}
    )
    limits = (
        *TYPES_LIMITS,
        Limit("mentions", "max_mentions", "items"),
        Limit("mentions", "max_mention_characters", "characters of each"),
        Limit("context", "max_text_characters", "characters"),
        Limit("limit", "max_limit", "value"),
        Limit("collection", "max_mention_characters", "characters"),
    )

    linked = "mentions"

    collection: str | None = Field(None, description="Name of the collection; optional if there is only one.")
    mentions: Texts = Field(description="The strings to link.", examples=[["NYTimes", "Big Apple"]])
    types: Texts = Field([], description="Only entities of one of these types, native or coarse.")
    type_mode: TypeMode = Field("hard", description="hard: only entities of the types; soft: prefer them; off.")
    limit: int = Field(DEFAULT_LIMIT, ge=1, description="Maximum number of candidates.")
    threshold: float | None = Field(None, ge=0, le=1, description="Minimum probability of a link.")
    on_tie: OnTie = Field("canonical", description="What to do when several entities have the name.")
    context: str | None = Field(None, description="Text around the mentions.")
    explain: bool = Field(False, description="Add features, and lines that explain each link.")

    def options(self) -> LinkOptions:
        """The options of the linker."""
        return LinkOptions(tuple(self.types), self.type_mode, self.limit, self.threshold, self.on_tie, self.context)


class CandidateAnswer(BaseModel):
    """An entity proposed for a mention, best first."""

    entity_id: str
    kb: str
    canonical_name: str
    name: str
    types: list[str]
    kb_types: list[str]
    description: str | None
    popularity: float | None
    probability: float | None
    dense_score: float | None
    lexical_score: float | None
    score: float
    tie: bool
    phrase_type: str | None
    type_probability: float | None
    features: dict[str, float] | None = None
    document: dict[str, float] | None = None


class LearnedAnswer(BaseModel):
    """How often a mention meant an entity, as the collection learned it."""

    entity_id: str | None
    kb: str
    as_written: int
    other_forms: int
    rejected: int


class LinkRecord(BaseModel):
    """The link of a mention."""

    mention: str
    entity_id: str | None = Field(description="null for NIL")
    kb: str | None
    canonical_name: str | None
    probability: float | None
    nil_reason: str | None = Field(description="Why there is no entity; null if there is one.")
    rule: str | None
    candidates: list[CandidateAnswer]
    learned: list[LearnedAnswer] | None = None
    warnings: list[str] | None = None
    explanation: list[str] | None = Field(None, description="With explain: lines for people.")


class LinkAnswer(BaseModel):
    """The links of the mentions, in their order."""

    collection: str
    links: list[LinkRecord]


_CANDIDATE = tuple(name for name in CandidateAnswer.model_fields if name not in ("features", "document"))
_LINK = ("mention", "entity_id", "kb", "canonical_name", "probability", "nil_reason", "rule")


def link_record(link: Link, *, explanation: list[str] | None = None) -> dict[str, Any]:
    """The JSON of a link; features only with an explanation, warnings and what was learned only if there are any."""
    record = {name: getattr(link, name) for name in _LINK}
    record["candidates"] = [_candidate_record(one, explained=explanation is not None) for one in link.candidates]
    if link.learned:
        record["learned"] = link.learned
    if link.warnings:
        record["warnings"] = link.warnings
    if explanation is not None:
        record["explanation"] = explanation
    return record


def _candidate_record(candidate: Candidate, *, explained: bool) -> dict[str, Any]:
    record = {name: getattr(candidate, name) for name in _CANDIDATE}
    if explained:
        record["features"] = dict(candidate.features)
        record["document"] = dict(candidate.document)
    return record
