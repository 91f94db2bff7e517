"""The JSON of candidates and of data extensions, in the form of version 0.2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.records import LINKS_FIELD
from pearl_qdrant.service.reconcile.evidence import Level
from pearl_qdrant.service.reconcile.matching import Answer, Scored
from pearl_qdrant.service.reconcile.properties import POPULARITY, EntityColumns, property_name, with_names
from pearl_qdrant.service.reconcile.queries import MOST_VALUES, BadQuery, Extension

SCORE_DIGITS = 2

Row = Mapping[str, Sequence[Mapping[str, str | float]]]
"""The values of each property: {"str": ...}, {"float": ...}, or an entity as {"id": ..., "name": ...}."""


def type_list(types: Sequence[str]) -> list[dict[str, str]]:
    """Types as objects."""
    return [{"id": one, "name": one} for one in dict.fromkeys(types)]


def answer_record(answer: Answer) -> dict[str, Any]:
    """The JSON of the answer of a query."""
    if isinstance(answer, BadQuery):
        return {"result": [], "error": answer}
    return {"result": [_candidate(one) for one in answer]}


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
    return record | ({"description": candidate.description} if candidate.description else {})


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
    levels: dict[str, float] = {}
    for one, level in scored.levels:
        if level is not Level.MISSING:
            levels[one] = min(level.value, levels.get(one, level.value))
    known += [(f"property:{one}", property_name(one), value) for one, value in levels.items()]
    return [
        {"id": id_, "name": name, "value": round(value, 4) if isinstance(value, float) else value}
        for id_, name, value in known
        if value is not None
    ]


def extended_rows(linker: EntityLinker, asked: Extension) -> dict[str, Row]:
    """The rows of entities, by their ids; empty lists for an unknown one."""
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
