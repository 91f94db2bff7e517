"""The features of a document that `model.py` lists, one family after the other; `linking.set_features` orders them.

Coherence: links are those of the base itself: ids joined by | in the field `links_to` of a point. Each other string
stands for its most probable entity, with probability p; l is 1/2 for a link one way, and 3/2 for links both ways:

    same_entity     the highest p with which another string means the candidate
    linked          sqrt(sum of p * l / (1/2 + sum of p))
    shared_links    the same, with the cosine of the two sets of links for l

They depend on the probabilities of the other mentions, and so on theirs: they are set twice. Coherence and passages are
set only for mentions that names leave open, and for their best candidates; to the others a passage says the mean.

Learned names: n counts 0.3 for each use of another form. So one use says something, and many say more. Rejections count
after the document.

Partial names: a mention whose words are a part of a longer mention takes its entities, with their probabilities there.

    Bill Clinton ... Clinton                        the surname of a person, or the first name
    University of Cambridge ... the University      a part of any other name
    Kurdistan Democratic Party ... KDP              its initials
    Israel ... Israeli                              another form of its last word

Only mentions whose last word begins with a capital are parts or forms of others: `cancer` after `breast cancer` may be
any cancer. Of several longer mentions (of another form: of several mentions) the nearest one before counts, else the
first one after.

A popularity that is unknown counts as the least of the mention; an entity whose types words cannot tell gets the
expected value of that feature.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, cast

import numpy as np

from pearl_qdrant.linking.documents.model import (
    COLUMN,
    NIL_COLUMN,
    OPEN,
    OPEN_POPULAR,
    DocumentMention,
    DocumentModel,
    EntityKey,
    best_of_open,
    keep_own_name,
)
from pearl_qdrant.linking.documents.word_types import TYPES
from pearl_qdrant.linking.mentions import clean_mention
from pearl_qdrant.linking.ranking.model import FloatArray, log_sum_exp
from pearl_qdrant.pieces import pause, pausing
from pearl_qdrant.records import LINKS_FIELD
from pearl_qdrant.store.schema import NamePoint

LEAST_PROBABILITY = 0.1  # entities of other mentions less probable than this do not count
LEAST_STRINGS, LEAST_LINKS = 3, 3
"""Distinct strings of a document from which on coherence counts; entities with fewer links share none."""


class Anchor(NamedTuple):
    """The folded words of a string of the document, its most probable entity with its probability, and its links."""

    words: tuple[str, ...]
    key: EntityKey
    probability: float
    links: frozenset[str]


Relations = dict[EntityKey, dict[EntityKey, tuple[float, float]]]
"""Of a candidate and the entity of an anchor: the weight of their links, and the cosine of their sets of links."""


def links_of(point: NamePoint) -> frozenset[str]:
    """The ids that an entity is linked to, empty if the base has none."""
    return _parsed(point.extra.get(LINKS_FIELD) or "")


@lru_cache(maxsize=4096)
def _parsed(text: str) -> frozenset[str]:
    return frozenset(one.strip() for one in text.split("|")) - {""}


def is_coherent(mentions: Sequence[DocumentMention]) -> bool:
    """Whether coherence can say something: there are several strings, and the base has links. A base without popularity
    keeps what names decide, so that coherence can only add to it.
    """
    if len({mention.words for mention in mentions}) < LEAST_STRINGS:
        return False
    firsts = [mention.entities[0].point for mention in mentions if mention.entities]
    return any(point.extra.get(LINKS_FIELD) for point in firsts) or all(point.popularity is None for point in firsts)


def set_coherence(mentions: Sequence[DocumentMention], model: DocumentModel) -> None:
    """Set the features of coherence for the best candidates of open mentions of a document."""
    # What was open at first is set in each pass; the features of the passes before must not close it.
    open_rows: list[list[int]] | None = None
    relations: Relations = {}
    for _ in range(2):  # the second time by the probabilities of the first
        probabilities = [model.probabilities(mention.values, mention.of_decision) for mention in mentions]
        by_words: dict[tuple[str, ...], Anchor] = {}  # one for each distinct string, by its first mention
        for mention, p in zip(mentions, probabilities, strict=True):
            if mention.words not in by_words and mention.entities:
                at = 0 if mention.is_id else int(p.argmax())
                probability = 1.0 if mention.is_id else float(p[at])
                if probability >= LEAST_PROBABILITY:
                    entity = mention.entities[at]
                    by_words[mention.words] = Anchor(mention.words, entity.key, probability, links_of(entity.point))
        anchors = list(by_words.values())
        if len(anchors) < 2:
            return
        if open_rows is None:
            open_rows = [
                best_of_open(mention, p, OPEN_POPULAR if mention.has_popularity else OPEN)
                for mention, p in zip(mentions, probabilities, strict=True)
            ]
        known: dict[tuple[tuple[str, ...], EntityKey], tuple[float, float, float]] = {}
        for mention, rows in zip(mentions, open_rows, strict=True):
            for row in pausing(rows):
                entity = mention.entities[row]
                one = mention.words, entity.key
                if one not in known:
                    known[one] = coherence(entity.point, mention.words, anchors, relations)
                mention.values[row, _COLUMNS] = known[one]
            if rows:
                first = mention.values[int((mention.values @ model.features).argmax())]
                mention.of_decision[_NIL_COLUMNS] = first[_COLUMNS]
                keep_own_name(mention, model)


_NAMES = ("same_entity", "linked", "shared_links")
_COLUMNS, _NIL_COLUMNS = [COLUMN[name] for name in _NAMES], [NIL_COLUMN[name] for name in _NAMES]


def coherence(
    point: NamePoint, words: tuple[str, ...], anchors: Sequence[Anchor], known: Relations
) -> tuple[float, float, float]:
    """The features `same_entity`, `linked` and `shared_links` of the entity of a point. The anchor of the folded words
    of its mention does not count; `known` keeps what two entities of the document have in common.
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
        if anchor.key not in of_key:
            of_key[anchor.key] = _relation(key, links, anchor)
        link_weight, cosine = of_key[anchor.key]
        linked += anchor.probability * link_weight
        shared += anchor.probability * cosine
    return same, math.sqrt(linked / total), math.sqrt(shared / total)


def _relation(key: EntityKey, links: frozenset[str], anchor: Anchor) -> tuple[float, float]:
    """The weight of the links between an entity and an anchor, and the cosine of their sets of links."""
    if key[0] != anchor.key[0]:
        return 0.0, 0.0
    n_links = (anchor.key[1] in links) + (key[1] in anchor.links)
    cosine = 0.0
    if len(links) >= LEAST_LINKS and len(anchor.links) >= LEAST_LINKS:
        cosine = len(links & anchor.links) / math.sqrt(len(links) * len(anchor.links))
    return (0.0, 0.5, 1.5)[n_links], cosine


OTHER_FORMS, HALF = 0.3, 0.3
"""Uses that one use of another form of the name is worth, and the number by which uses are divided."""


def set_learned_names(mention: DocumentMention) -> None:
    """Set what was learned of a mention, for its candidates and for the decision."""
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


Part = Literal["start", "middle", "end", "acronym", "form"]
Words = tuple[str, ...]  # the folded words of a mention

MOST_ENTITIES, LEAST_OF_A_PART = 3, 0.05
"""Entities that a longer mention gives to a shorter one, and how probable they are at least."""

_SMALL_WORDS = frozenset("of the and for in de du la".split())
_ACRONYM_LETTERS = range(2, 7)
STEM_LETTERS, STEM_SHARE = 4, 0.6
"""Letters that two forms of a word have in common at their start, at least, and their share of the longer one."""


def set_partial_names(mentions: Sequence[DocumentMention], model: DocumentModel) -> None:
    """Set the features of partial names, from the longest mention to the shortest, so that they can be chains."""
    find = part_finder(mentions)
    for number in sorted(range(len(mentions)), key=lambda i: (-len(mentions[i].words), i)):
        mention = mentions[number]
        if not mention.words or mention.is_id or not _is_capitalised(mention):
            continue
        pause()
        if (longer := find(number)) is not None:
            _take(mention, mentions[longer[0]], longer[1], _probabilities(mentions[longer[0]], model))
    _set_other_forms(mentions, model)


def part_finder(mentions: Sequence[DocumentMention]) -> Callable[[int], tuple[int, Part] | None]:
    """Finds the longer mention of which one is a part, with the part: the nearest one before it, else the first after.
    Each distinct string is compared with each once, so that many mentions take no more time than their strings.
    """
    with_word: dict[str, list[Words]] = {}
    numbers: dict[Words, list[int]] = {}
    for number, mention in enumerate(mentions):
        if len(mention.words) > 1:
            if mention.words not in numbers:
                for word in {*mention.words, *_initials(mention.words)}:
                    with_word.setdefault(word, []).append(mention.words)
            numbers.setdefault(mention.words, []).append(number)

    @lru_cache(maxsize=1024)
    def longer_than(words: Words, letters: str) -> list[tuple[list[int], Part]]:
        found = []
        for other in with_word.get(words[0], ()):
            pause()
            if (part := part_of(words, letters, other)) is not None:
                found.append((numbers[other], part))
        return found

    def find(number: int) -> tuple[int, Part] | None:
        longer = longer_than(mentions[number].words, clean_mention(mentions[number].scored.mention))
        places = [(of, bisect_left(of, number), part) for of, part in longer]
        before = [(of[at - 1], part) for of, at, part in places if at]
        return max(before, default=None) or min(((of[0], part) for of, _, part in places), default=None)

    return find


def part_of(words: Words, name: str, of: Words) -> Part | None:
    """Which part of a longer mention, by its words, a mention is, by its words and as it is written; None if none."""
    n = len(words)
    if n < len(of):
        if of[-n:] == words:
            return "end"
        if of[:n] == words:
            return "start"
        if any(of[i : i + n] == words for i in range(1, len(of) - n)):
            return "middle"
    letters = name.replace(".", "").replace(" ", "")
    is_acronym = letters.isupper() and len(letters) in _ACRONYM_LETTERS and len(of) > 1
    return "acronym" if is_acronym and "".join(words) in _initials(of) else None


def _set_other_forms(mentions: Sequence[DocumentMention], model: DocumentModel) -> None:
    """Give the entities of each mention to mentions that are another form of it, unless they are parts of one."""
    of_stem: dict[Words, dict[str, list[int]]] = {}  # by their last words
    for number, mention in enumerate(mentions):
        if mention.words and len(mention.words[-1]) >= STEM_LETTERS and _is_capitalised(mention):
            of_word = of_stem.setdefault((*mention.words[:-1], mention.words[-1][:STEM_LETTERS]), {})
            of_word.setdefault(mention.words[-1], []).append(number)
    # The probabilities before any of them changes, so that two forms do not raise each other.
    taken: list[tuple[DocumentMention, DocumentMention]] = []
    for of_word in of_stem.values():
        forms = {word: [n for other, n in of_word.items() if is_other_form(word, other)] for word in pausing(of_word)}
        for number, word in sorted((number, word) for word, numbers in of_word.items() for number in numbers):
            mention = mentions[number]
            if mention.is_id or mention.of_decision[NIL_COLUMN["part"]] or not forms[word]:
                continue
            before = [numbers[at - 1] for numbers in forms[word] if (at := bisect_left(numbers, number))]
            taken.append((mention, mentions[max(before) if before else min(numbers[0] for numbers in forms[word])]))
    for mention, other, p in [(m, o, _probabilities(o, model)) for m, o in pausing(taken)]:
        _take(mention, other, "form", p)


def is_other_form(word: str, other: str) -> bool:
    """Whether two different words begin with the same letters, most of both."""
    n = max(STEM_LETTERS, math.ceil(STEM_SHARE * max(len(word), len(other))))
    return word != other and len(word) >= n and word[:n] == other[:n]


def _initials(words: Sequence[str]) -> set[str]:
    """The initials of all words, and of those that are not small."""
    return {"".join(w[0] for w in words), "".join(w[0] for w in words if w not in _SMALL_WORDS)}


def _probabilities(mention: DocumentMention, model: DocumentModel) -> FloatArray:
    """The probabilities of the entities of a mention so far."""
    if mention.is_id:
        return cast("FloatArray", np.eye(1, len(mention.entities))[0])
    return model.probabilities(mention.values, mention.of_decision)


def _take(mention: DocumentMention, other: DocumentMention, part: Part, probabilities: FloatArray) -> None:
    """Give the most probable entities of another mention to a mention."""
    total = 0.0
    for at in np.argsort(-probabilities, kind="stable")[:MOST_ENTITIES].tolist():
        probability = float(probabilities[at])
        if probability >= LEAST_OF_A_PART:
            entity = other.entities[at]
            row = mention.add(entity)
            is_person = "PERSON" in (entity.point.types or (entity.point.predicted_type,))
            feature = _FEATURE[part] if part in ("acronym", "form") or is_person else "part_of_name"
            mention.values[row, COLUMN[feature]] = probability
            mention.values[row, COLUMN["popularity"]] = other.values[at, COLUMN["popularity"]]
            total += probability
    mention.of_decision[NIL_COLUMN["part"]] = total
    mention.of_decision[NIL_COLUMN["part_of_nil"]] = 1.0 - total


_FEATURE: Mapping[Part, str] = {
    "start": "first_name", "middle": "surname", "end": "surname", "acronym": "acronym", "form": "other_form",
}  # fmt: skip
"""The feature that a part of the name of a person sets; that of another name is `part_of_name`."""


def _is_capitalised(mention: DocumentMention) -> bool:
    """Whether the last word of a mention begins with a capital, as names do."""
    words = clean_mention(mention.scored.mention).split()
    return bool(words) and words[-1][0].isupper()


Compare = Callable[[Sequence[tuple[int, Sequence[NamePoint]]]], Sequence[FloatArray]]
"""Cosines of passages to entities: for each offset of a mention with some entities, one cosine each."""


def set_passages(mentions: Sequence[DocumentMention], model: DocumentModel, compare: Compare) -> None:
    """Set the feature of passages for the best candidates of open mentions."""
    chosen: list[tuple[DocumentMention, list[int]]] = []
    for mention in pausing(mentions):
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


def unit_of_popularity(mentions: Sequence[DocumentMention]) -> float:
    """The least popularity above 0 of all candidates of a document, 1 if there is none. What a base counts (links,
    people, thousands of people) must not matter: popularity is compared with this.
    """
    known = (entity.point.popularity or 0.0 for mention in mentions for entity in mention.entities)
    return min((value for value in known if value > 0), default=1.0)


def set_popularity(mention: DocumentMention, unit: float) -> None:
    """Set the feature `popularity` of all candidates; 0 for all if the base has none."""
    known = [e.point.popularity for e in mention.entities if e.point.popularity is not None]
    if known:
        popularity = [min(known) if e.point.popularity is None else e.point.popularity for e in mention.entities]
        mention.values[:, COLUMN["popularity"]] = [math.log1p(one / unit) for one in popularity]


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
