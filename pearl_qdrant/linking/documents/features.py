"""The features of a document, one family after the other; `resolve` sets them in order.

Coherence: entities of the other mentions of a document that are the same as a candidate, or linked to it.

Links are those of the base itself: ids, joined by |, in the field `links_to` of a point (a column of a table of names).
Each other string of the document stands for its most probable entity. Only mentions that names leave open get these
features, and only their best candidates.

    same_entity     the highest probability with which another string means the candidate
    linked          sqrt(sum of p * l / (1/2 + sum of p)) over the other strings: p is the probability of the entity,
                    l is 1/2 for a link to or from the candidate, and 3/2 for both
    shared_links    the same, with the cosine of the two sets of links for l

The features depend on the probabilities of the other mentions, and so on theirs: they are set twice.

Learned names in documents: how often a mention meant each entity in labelled text, and how often none.

    log(1 + n / 0.3)        n: uses of the very same string, and 0.3 for each use of another form of it

It is 0 for an entity that the mention never meant. So one use says something, and many say more. Where the base has no
popularity, counts change the probabilities of names before (`linking.learned.counts`). Rejections count after the
document.

Partial names: a mention whose words are a part of a longer mention of the same document takes its entities.

    Bill Clinton ... Clinton                        the surname of a person, or the first name
    University of Cambridge ... the University      a part of any other name
    Kurdistan Democratic Party ... KDP              its initials
    Israel ... Israeli                              another form of its last word

Only mentions whose last word begins with a capital are parts or forms of others: `cancer` after `breast cancer` may be
any cancer. Of several longer mentions with the words (of another form: of several mentions), the nearest one before the
mention counts, else the first one after it. Its entities become candidates of the mention, each with the probability
that it has for the other one.

Similarity of the passage around a mention to the canonical name of each entity, and to the descriptions of namesakes.

Only mentions that names leave open get the feature, and only their best candidates; the others get the mean, so that it
says nothing of them.

Popularity between entities of different names: log(1 + popularity), where the base has it.

An entity whose popularity is unknown counts as the least popular candidate of the mention.

Types of entities that the words around a mention suggest: a city after `the mayor of`, a person before `was born`.

The feature is the log probability of the type of the entity, the most probable one of several, less that of the most
probable type; in [-inf, 0]. An entity whose types words cannot tell gets the expected value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from pearl_qdrant.linking.documents.mentions import (
    DocumentMention,
    EntityKey,
    best_of_open,
    log_popularity,
    log_sum_exp,
)
from pearl_qdrant.linking.documents.model import COLUMN, NIL_COLUMN, DocumentModel, FloatArray
from pearl_qdrant.linking.documents.word_types import TYPES
from pearl_qdrant.linking.mentions import clean_mention
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


OTHER_FORMS = 0.3
"""Uses that one use of another form of the name is worth."""

HALF = 0.3
"""The n of the formula by which counts are divided."""


def set_learned_names(mention: DocumentMention) -> None:
    """Set the feature of the candidates, and those of the decision."""
    known = nil = 0.0
    for count in mention.learned:
        n = count.as_written + OTHER_FORMS * count.other_forms
        if count.entity_id is None:
            nil += n
        elif (row := mention.row.get((count.kb, count.entity_id))) is not None:
            mention.values[row, COLUMN["learned"]] = math.log1p(n / HALF)
            known += n
    mention.of_decision[NIL_COLUMN["learned"]] = math.log1p(known / HALF)
    mention.of_decision[NIL_COLUMN["learned_nil"]] = math.log1p(nil / HALF)


def learned_share(mentions: Sequence[DocumentMention]) -> float:
    """The share of the mentions of a document of which something was learned, in [0, 1]."""
    return sum(bool(mention.learned) for mention in mentions) / max(1, len(mentions))


Part = Literal["start", "middle", "end", "acronym", "form"]

MOST_ENTITIES, LEAST_OF_A_PART = 3, 0.05
"""Entities that a longer mention gives to a shorter one, and how probable they are at least."""

_SMALL_WORDS = frozenset("of the and for in de du la".split())
_ACRONYM_LETTERS = range(2, 7)

STEM_LETTERS, STEM_SHARE = 4, 0.6
"""Letters that two forms of a word have in common at their start, at least, and their share of the longer one."""


def set_partial_names(mentions: Sequence[DocumentMention], model: DocumentModel) -> None:
    """Set the features of partial names, from the longest mention to the shortest, so that they can be chains.

    Args:
        mentions: The mentions of a document, in its order.
        model: Gives the probabilities of the longer mentions.
    """
    with_word: dict[str, list[int]] = {}
    for number, mention in enumerate(mentions):
        if len(mention.words) > 1:
            for word in {*mention.words, *_initials(mention.words)}:
                with_word.setdefault(word, []).append(number)
    for number in sorted(range(len(mentions)), key=lambda i: (-len(mentions[i].words), i)):
        mention = mentions[number]
        if not mention.words or mention.is_id or not _is_capitalised(mention):
            continue
        longer: tuple[int, Part] | None = None
        for other in with_word.get(mention.words[0], ()):
            part = part_of(mention, mentions[other])
            if part is not None and (longer is None or other < number):
                longer = other, part
        if longer is not None:
            _take_entities(mention, mentions[longer[0]], longer[1], model)
    _set_other_forms(mentions, model)


def part_of(short: DocumentMention, long: DocumentMention) -> Part | None:
    """Which part of a longer mention a mention is; None if it is none."""
    words, of = short.words, long.words
    n = len(words)
    if n < len(of):
        if of[-n:] == words:
            return "end"
        if of[:n] == words:
            return "start"
        if any(of[i : i + n] == words for i in range(1, len(of) - n)):
            return "middle"
    letters = clean_mention(short.scored.mention).replace(".", "").replace(" ", "")
    is_acronym = letters.isupper() and len(letters) in _ACRONYM_LETTERS and len(of) > 1
    return "acronym" if is_acronym and "".join(words) in _initials(of) else None


def _set_other_forms(mentions: Sequence[DocumentMention], model: DocumentModel) -> None:
    """Give the entities of each mention to mentions that are another form of it, unless they are parts of one."""
    of_stem: dict[tuple[str, ...], list[int]] = {}
    for number, mention in enumerate(mentions):
        if mention.words and len(mention.words[-1]) >= STEM_LETTERS:
            of_stem.setdefault((*mention.words[:-1], mention.words[-1][:STEM_LETTERS]), []).append(number)
    # The probabilities before any of them changes, so that two forms do not raise each other.
    taken: list[tuple[DocumentMention, DocumentMention]] = []
    for numbers in of_stem.values():
        for number in numbers:
            mention = mentions[number]
            if mention.is_id or mention.of_decision[NIL_COLUMN["part"]] or not _is_capitalised(mention):
                continue
            others = [
                i
                for i in numbers
                if is_other_form(mention.words[-1], mentions[i].words[-1]) and _is_capitalised(mentions[i])
            ]
            if others:
                before = [i for i in others if i < number]
                taken.append((mention, mentions[before[-1] if before else others[0]]))
    for mention, other, p in [(m, o, _probabilities(o, model)) for m, o in taken]:
        _take(mention, other, "form", p)


def is_other_form(word: str, other: str) -> bool:
    """Whether two different words begin with the same letters, most of both."""
    n = 0
    for a, b in zip(word, other, strict=False):
        if a != b:
            break
        n += 1
    return word != other and n >= max(STEM_LETTERS, STEM_SHARE * max(len(word), len(other)))


def _initials(words: Sequence[str]) -> set[str]:
    """The initials of all words, and of those that are not small."""
    return {"".join(w[0] for w in words), "".join(w[0] for w in words if w not in _SMALL_WORDS)}


def _probabilities(mention: DocumentMention, model: DocumentModel) -> FloatArray:
    """The probabilities of the entities of a mention so far."""
    if mention.is_id:
        only: FloatArray = np.eye(1, len(mention.entities))[0]
        return only
    return model.probabilities(mention.values, mention.of_decision)


def _take_entities(mention: DocumentMention, other: DocumentMention, part: Part, model: DocumentModel) -> None:
    """Give the most probable entities of another mention to a mention."""
    _take(mention, other, part, _probabilities(other, model))


def _take(mention: DocumentMention, other: DocumentMention, part: Part, probabilities: FloatArray) -> None:
    total = 0.0
    for at in np.argsort(-probabilities, kind="stable")[:MOST_ENTITIES].tolist():
        probability = float(probabilities[at])
        if probability >= LEAST_OF_A_PART:
            entity = other.entities[at]
            row = mention.add(entity)
            is_person = "PERSON" in (entity.point.types or (entity.point.predicted_type,))
            mention.values[row, COLUMN[_feature(part, is_person=is_person)]] = probability
            mention.values[row, COLUMN["popularity"]] = other.values[at, COLUMN["popularity"]]
            total += probability
    mention.of_decision[NIL_COLUMN["part"]] = total
    mention.of_decision[NIL_COLUMN["part_of_nil"]] = 1.0 - total


_PERSON: Mapping[Part, str] = {"start": "first_name", "middle": "surname", "end": "surname"}


def _feature(part: Part, *, is_person: bool) -> str:
    """The feature that a part of the name of an entity sets."""
    if part in ("acronym", "form"):
        return "acronym" if part == "acronym" else "other_form"
    return _PERSON[part] if is_person else "part_of_name"


def _is_capitalised(mention: DocumentMention) -> bool:
    """Whether the last word of a mention begins with a capital, as names do."""
    words = clean_mention(mention.scored.mention).split()
    return bool(words) and words[-1][0].isupper()


Compare = Callable[[Sequence[tuple[int, Sequence[NamePoint]]]], Sequence[FloatArray]]
"""Cosines of passages to entities: for each offset of a mention with some entities, one cosine each."""


def set_passages(mentions: Sequence[DocumentMention], model: DocumentModel, compare: Compare) -> None:
    """Set the feature for the best candidates of open mentions.

    Args:
        mentions: The mentions of a document.
        model: Gives the probabilities so far.
        compare: Compares passages with entities.
    """
    chosen: list[tuple[DocumentMention, list[int]]] = []
    for mention in mentions:
        if not mention.is_compared or len(mention.entities) < 2:
            continue
        logits = mention.values @ model.features
        # Whether any candidate is right does not matter here: only which of them.
        rows = best_of_open(mention, np.exp(logits - log_sum_exp(logits)))
        if rows:
            chosen.append((mention, rows))
    requests = [(mention.start, [mention.entities[i].point for i in rows]) for mention, rows in chosen]
    for (mention, rows), cosines in zip(chosen, compare(requests) if requests else (), strict=True):
        mention.values[:, COLUMN["passage"]] = cosines.mean()
        mention.values[rows, COLUMN["passage"]] = cosines


def set_popularity(mention: DocumentMention) -> None:
    """Set the feature `popularity` of all candidates; 0 for all if the base has none."""
    known = [e.point.popularity for e in mention.entities if e.point.popularity is not None]
    if known:
        least = log_popularity(min(known))
        mention.values[:, COLUMN["popularity"]] = [
            least if e.point.popularity is None else log_popularity(e.point.popularity) for e in mention.entities
        ]


_NUMBER = {name: i for i, name in enumerate(TYPES)}


def set_word_types(mention: DocumentMention) -> None:
    """Set the feature of all candidates, those that longer mentions added too; 0 if the words are unknown."""
    scores = mention.type_scores
    if scores is None or not mention.entities:
        return
    highest = float(scores.max())
    expected = float(np.exp(scores) @ scores)
    values = []
    for entity in mention.entities:
        point = entity.point
        known = [_NUMBER[name] for name in point.types or (point.predicted_type,) if name in _NUMBER]
        values.append((max(float(scores[i]) for i in known) if known else expected) - highest)
    mention.values[:, COLUMN["word_type"]] = values
