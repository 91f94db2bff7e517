"""The JSON of candidates and of data extensions, and the bodies of all answers for OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, RootModel

from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.records import LINKS_FIELD
from pearl_qdrant.service.collections import CollectionHandle
from pearl_qdrant.service.reconcile.evidence import Level
from pearl_qdrant.service.reconcile.matching import Answer, Scored
from pearl_qdrant.service.reconcile.properties import POPULARITY, EntityColumns, property_name, with_names
from pearl_qdrant.service.reconcile.queries import MOST_VALUES, Extension

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


LIMIT_SETTING: Mapping[str, Any] = {
    "name": "limit",
    "label": "Limit",
    "type": "number",
    "default": 0,
    "help_text": "Most values of a cell; 0 for all.",
}
"""What a user can set for a property."""

Row = Mapping[str, Sequence[Mapping[str, str | float]]]
"""The values of each property: {"str": ...}, {"float": ...}, or an entity as {"id": ..., "name": ...}."""


async def extended_rows(handle: CollectionHandle, asked: Extension) -> dict[str, Row]:
    """The rows of entities, by their ids; empty lists for an unknown one."""
    return await handle.call(lambda linker: _rows(linker, asked))


def meta_of(asked: Extension) -> list[dict[str, str]]:
    """The properties, in the order asked for."""
    return [{"id": one, "name": property_name(one)} for one in asked.limits]


def draft_rows(rows: Mapping[str, Row]) -> list[dict[str, Any]]:
    """The rows in the form of the 1.0 draft; unknown ids share a row, and do here too."""
    drafts = {id(row): [{"id": one, "values": values} for one, values in row.items()] for row in rows.values()}
    return [{"id": id_, "properties": drafts[id(row)]} for id_, row in rows.items()]


def _rows(linker: EntityLinker, asked: Extension) -> dict[str, Row]:
    found = with_names(linker, asked.ids)
    linked: dict[str, EntityColumns] = {}
    if (limit := asked.limits.get(LINKS_FIELD)) is not None:
        ids = {link: None for one in found.values() for link in one.values(LINKS_FIELD)[:limit]}
        linked = with_names(linker, list(ids)[: MOST_VALUES * 10])
    # One row for all unknown ids: with 1,000 of them and 50 properties, garbage collection would stop the event loop.
    unknown: Row = {one: [] for one in asked.limits}
    return {
        id_: {one: _values(found[id_], one, linked)[: min(limit, MOST_VALUES)] for one, limit in asked.limits.items()}
        if id_ in found
        else unknown
        for id_ in asked.ids
    }


def _values(
    columns: EntityColumns, property_id: str, linked: Mapping[str, EntityColumns]
) -> list[Mapping[str, str | float]]:
    values = columns.values(property_id)
    if property_id == LINKS_FIELD:
        return [{"id": one, "name": linked[one].point.canonical_name if one in linked else one} for one in values]
    if property_id == POPULARITY and columns.point.popularity is not None and POPULARITY not in columns.point.extra:
        return [{"float": columns.point.popularity}]
    return [{"str": one} for one in values]
