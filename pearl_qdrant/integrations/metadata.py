"""What all connectors write beside a document: plain values that every framework can store, filter and serialise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pearl_qdrant.records import Annotation, Candidate

ENTITY_IDS = "entity_ids"
"""The key with the ids of a document's entities, each once, in the order of their first mention."""

ENTITY_NAMES = "entity_names"
"""The key with their canonical names, in the same order."""

MENTIONS = "entity_mentions"
"""The key with every mention as a dictionary, as of `mention_metadata`."""


def document_metadata(
    annotations: Iterable[Annotation], *, mentions: bool = False, existing: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What to store with a document. Returns `ENTITY_IDS` and `ENTITY_NAMES`; with `mentions` also `MENTIONS`.

    Args:
        annotations: The mentions of its text, as `EntityLinker.annotate` returns them.
        mentions: Whether to list the mentions, too.
        existing: The document's metadata. The entities that another tagger wrote there stay, before the found ones.
    """
    linked = [one for one in annotations if one.link.entity_id is not None]
    before = existing or {}
    names = dict(zip(before.get(ENTITY_IDS, ()), chain(before.get(ENTITY_NAMES, ()), repeat("")), strict=False))
    for one in linked:
        names.setdefault(str(one.link.entity_id), str(one.link.canonical_name))
    found: dict[str, Any] = {ENTITY_IDS: list(names), ENTITY_NAMES: list(names.values())}
    if mentions:
        earlier = list(before.get(MENTIONS, ()))
        found[MENTIONS] = [*earlier, *(one for one in map(mention_metadata, linked) if one not in earlier)]
    return found


def mention_metadata(annotation: Annotation) -> dict[str, Any]:
    """A mention of a text as plain values."""
    link = annotation.link
    return {
        "text": annotation.text,
        "start": annotation.start,
        "end": annotation.end,
        "entity_id": link.entity_id,
        "kb": link.kb,
        "canonical_name": link.canonical_name,
        "probability": link.probability,
        "assertion": annotation.assertion,
    }


def candidate_metadata(candidate: Candidate) -> dict[str, Any]:
    """A candidate as plain values; what the base does not say is left out."""
    found: dict[str, Any] = {
        "entity_id": candidate.entity_id,
        "kb": candidate.kb,
        "canonical_name": candidate.canonical_name,
        "name": candidate.name,
        "types": types_of(candidate),
        "probability": candidate.probability,
        "score": candidate.score,
        "dense_score": candidate.dense_score,
        "lexical_score": candidate.lexical_score,
        "description": candidate.description,
        "popularity": candidate.popularity,
    }
    return {key: value for key, value in found.items() if value is not None}


def candidate_text(candidate: Candidate) -> str:
    """A candidate as a text to read: its canonical name, and its description where the base has one."""
    return ": ".join(part for part in (candidate.canonical_name, candidate.description) if part)


def types_of(candidate: Candidate) -> list[str]:
    """Coarse and native types, each once."""
    return list(dict.fromkeys([*candidate.types, *candidate.kb_types]))
