"""The JSON of candidates, and the bodies of all answers for OpenAPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, RootModel

from pearl_qdrant.service.reconcile.evidence import Level
from pearl_qdrant.service.reconcile.matching import Answer, Scored
from pearl_qdrant.service.reconcile.properties import property_name

SCORE_DIGITS = 2


class Named(BaseModel):
    """A type or a property."""

    id: str
    name: str
    description: str | None = None


class FeatureAnswer(BaseModel):
    """A number or a truth value behind a score."""

    id: str
    name: str
    value: float | bool


class ReconcileCandidateAnswer(BaseModel):
    """An entity proposed for a query."""

    id: str
    name: str
    score: float = Field(description="100 x the probability that it is the right entity.", ge=0, le=100)
    match: bool = Field(description="Whether it is good enough to be chosen without a person.")
    type: list[Named]
    description: str | None = None
    features: list[FeatureAnswer]


class QueryErrorAnswer(BaseModel):
    """Why a query of a batch has no candidates."""

    code: str
    message: str


class ResultAnswer(BaseModel):
    """The candidates of a query, best first."""

    result: list[ReconcileCandidateAnswer]
    error: QueryErrorAnswer | None = None


class ReconcileBatchAnswer(RootModel[dict[str, ResultAnswer]]):
    """The results of a batch, by the keys of its queries."""


class DraftResultAnswer(BaseModel):
    """The candidates of a query of the 1.0 draft, best first."""

    candidates: list[ReconcileCandidateAnswer]
    error: QueryErrorAnswer | None = None


class DraftBatchAnswer(BaseModel):
    """The results of a batch of the 1.0 draft, in the order of its queries."""

    results: list[DraftResultAnswer]


class SuggestAnswer(BaseModel):
    """Suggestions, best first."""

    result: list[dict[str, Any]]


class FlyoutAnswer(BaseModel):
    """A small preview."""

    id: str
    html: str


class ProposalAnswer(BaseModel):
    """Properties that entities of a type have."""

    properties: list[Named]
    type: str
    limit: int | None = None


class ExtensionAnswer(BaseModel):
    """Values of properties: a row for each entity, in it a list for each property."""

    meta: list[Named]
    rows: dict[str, dict[str, list[dict[str, str | int | float]]]]


class DraftExtensionAnswer(BaseModel):
    """The same in the form of the 1.0 draft."""

    meta: list[Named]
    rows: list[dict[str, Any]]


class ManifestAnswer(BaseModel):
    """What the service offers."""

    model_config = ConfigDict(extra="allow")

    versions: list[str]
    name: str
    identifierSpace: str  # noqa: N815 (the specification's names)
    schemaSpace: str  # noqa: N815


def type_list(types: Sequence[str]) -> list[dict[str, str]]:
    """Types as objects."""
    return [{"id": one, "name": one} for one in dict.fromkeys(types)]


def answer_record(name: str, answer: Answer) -> dict[str, Any]:
    """The JSON of the answer of a query; its candidates have the name that the version of the specification gives."""
    record: dict[str, Any] = {name: [_candidate(one) for one in answer.candidates]}
    if answer.error is not None:
        record["error"] = answer.error
    return record


def _candidate(scored: Scored) -> dict[str, Any]:
    candidate = scored.candidate
    record = {
        "id": candidate.entity_id,
        "name": candidate.canonical_name,
        "score": round(100 * scored.probability, SCORE_DIGITS),
        "match": scored.is_match,
        "type": type_list((*candidate.kb_types, *candidate.types)),
        "features": _features(scored),
    }
    if candidate.description:
        record["description"] = candidate.description
    return record


def _features(scored: Scored) -> list[dict[str, Any]]:
    """What is behind a score, without what is not known."""
    candidate = scored.candidate
    known: list[tuple[str, str, float | bool | None]] = [
        ("name_probability", "Probability by the name alone", candidate.probability),
        ("dense_score", "Similarity of meaning", candidate.dense_score),
        ("lexical_score", "Similarity of spelling", candidate.lexical_score),
        ("equal_name", "Equal name", bool(candidate.features.get("equal_core"))),
        ("canonical_name", "The preferred name", candidate.name == candidate.canonical_name),
        ("namesakes", "Another entity has this name", candidate.tie),
        ("popularity", "Popularity", candidate.popularity),
    ]
    levels: dict[str, Level] = {}
    for one in scored.agreements:
        if one.level is not Level.MISSING:
            levels[one.property_id] = min(one.level, levels.get(one.property_id, one.level), key=lambda of: of.value)
    known += [(f"property:{one}", property_name(one), level.value) for one, level in levels.items()]
    return [
        {"id": id_, "name": name, "value": round(value, 4) if isinstance(value, float) else value}
        for id_, name, value in known
        if value is not None
    ]
