"""Coherence: entities of the other mentions of a document that are the same as a candidate, or linked to it.

Links are those of the base itself: ids, joined by |, in the field `links_to` of a point (a column of a table of names).
Each other string of the document stands for its most probable entity. Only mentions that names leave open get these
features, and only their best candidates.

    same_entity     the highest probability with which another string means the candidate
    linked          sqrt(sum of p * l / (1/2 + sum of p)) over the other strings: p is the probability of the entity,
                    l is 1/2 for a link to or from the candidate, and 3/2 for both
    shared_links    the same, with the cosine of the two sets of links for l

The features depend on the probabilities of the other mentions, and so on theirs: they are set twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from pearl_qdrant.linking.documents.mentions import DocumentMention, EntityKey, best_of_open
from pearl_qdrant.linking.documents.model import COLUMN, NIL_COLUMN, DocumentModel, FloatArray
from pearl_qdrant.records import LINKS_FIELD
from pearl_qdrant.store.schema import NamePoint

PASSES = 2
"""How often the features are set; the second time by the probabilities of the first."""

LEAST_PROBABILITY = 0.1
"""Entities of other mentions less probable than this do not count."""

LEAST_STRINGS = 3
"""Distinct strings of a document from which on coherence counts."""

LEAST_LINKS = 3
"""Entities with fewer links share none."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """The most probable entity of a string of the document.

    Attributes:
        words: The folded words of the string.
        key: The entity.
        probability: Of it, in (0, 1].
        links: The ids that it is linked to.
    """

    words: tuple[str, ...]
    key: EntityKey
    probability: float
    links: frozenset[str]


Relations = dict[EntityKey, dict[EntityKey, tuple[float, float]]]
"""Of a candidate and the entity of an anchor: the weight of their links, and the cosine of their sets of links."""


def links_of(point: NamePoint) -> frozenset[str]:
    """The ids that an entity is linked to, empty if the base has none."""
    text = point.extra.get(LINKS_FIELD)
    return _parsed(text) if text else frozenset()


@lru_cache(maxsize=4096)
def _parsed(text: str) -> frozenset[str]:
    return frozenset(one.strip() for one in text.split("|")) - {""}


def is_coherent(mentions: Sequence[DocumentMention]) -> bool:
    """Whether coherence can say something: there are several strings, and the base has links.

    A base without popularity keeps what names decide, so that coherence can only add to it.
    """
    if len({mention.words for mention in mentions}) < LEAST_STRINGS:
        return False
    firsts = [mention.entities[0].point for mention in mentions if mention.entities]
    return any(point.extra.get(LINKS_FIELD) for point in firsts) or all(point.popularity is None for point in firsts)


def set_coherence(mentions: Sequence[DocumentMention], model: DocumentModel) -> None:
    """Set the features of coherence for the best candidates of open mentions.

    Args:
        mentions: The mentions of a document.
        model: Gives the probabilities of all entities.
    """
    # What was open at first is set in each pass; the features of the passes before must not close it.
    open_rows: list[list[int]] | None = None
    relations: Relations = {}
    for _ in range(PASSES):
        probabilities = [model.probabilities(mention.values, mention.of_decision) for mention in mentions]
        anchors = _anchors(mentions, probabilities)
        if len(anchors) < 2:
            return
        if open_rows is None:
            open_rows = [best_of_open(mention, p) for mention, p in zip(mentions, probabilities, strict=True)]
        known: dict[tuple[tuple[str, ...], EntityKey], tuple[float, float, float]] = {}
        for mention, rows in zip(mentions, open_rows, strict=True):
            for row in rows:
                entity = mention.entities[row]
                at = mention.words, entity.key
                if at not in known:
                    known[at] = coherence(entity.point, mention.words, anchors, relations)
                mention.values[row, _COLUMNS] = known[at]
            if rows:
                first = mention.values[int((mention.values @ model.features).argmax())]
                mention.of_decision[_NIL_COLUMNS] = first[_COLUMNS]


_NAMES = ("same_entity", "linked", "shared_links")
_COLUMNS = [COLUMN[name] for name in _NAMES]
_NIL_COLUMNS = [NIL_COLUMN[name] for name in _NAMES]


def coherence(
    point: NamePoint, words: tuple[str, ...], anchors: Sequence[Anchor], known: Relations
) -> tuple[float, float, float]:
    """The features `same_entity`, `linked` and `shared_links` of an entity.

    Args:
        point: One of its names.
        words: Folded words of the mention; the anchor of the same words does not count.
        anchors: The entities of the document.
        known: What two entities have in common, as far as it was computed for this document.
    """
    same = linked = shared = 0.0
    total = 0.5
    key, links = (point.kb, point.entity_id), links_of(point)
    of_key = known.setdefault(key, {})
    for anchor in anchors:
        if anchor.words == words:
            continue
        total += anchor.probability
        if anchor.key == key:
            same = max(same, anchor.probability)
            continue
        relation = of_key.get(anchor.key)
        if relation is None:
            relation = of_key[anchor.key] = _relation(key, links, anchor)
        linked += anchor.probability * relation[0]
        shared += anchor.probability * relation[1]
    return same, math.sqrt(linked / total), math.sqrt(shared / total)


def _relation(key: EntityKey, links: frozenset[str], anchor: Anchor) -> tuple[float, float]:
    """The weight of the links between an entity and an anchor, and the cosine of their sets of links."""
    if key[0] != anchor.key[0]:
        return 0.0, 0.0
    n_links = (anchor.key[1] in links) + (key[1] in anchor.links)
    cosine = 0.0
    if len(links) >= LEAST_LINKS and len(anchor.links) >= LEAST_LINKS:
        cosine = len(links & anchor.links) / math.sqrt(len(links) * len(anchor.links))
    return _LINK_WEIGHT[n_links], cosine


_LINK_WEIGHT = (0.0, 0.5, 1.5)
"""For no link, a link one way, and links both ways."""


def _anchors(mentions: Sequence[DocumentMention], probabilities: Sequence[FloatArray]) -> list[Anchor]:
    """One anchor for each distinct string, by its first mention."""
    found: dict[tuple[str, ...], Anchor] = {}
    for mention, p in zip(mentions, probabilities, strict=True):
        if mention.words in found or not len(mention.entities):
            continue
        at = 0 if mention.is_id else int(p.argmax())
        probability = 1.0 if mention.is_id else float(p[at])
        if probability >= LEAST_PROBABILITY:
            entity = mention.entities[at]
            found[mention.words] = Anchor(mention.words, entity.key, probability, links_of(entity.point))
    return list(found.values())
