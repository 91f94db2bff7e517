"""Partial names: a mention whose words are a part of a longer mention of the same document takes its entities.

    Bill Clinton ... Clinton                        the surname of a person, or the first name
    University of Cambridge ... the University      a part of any other name
    Kurdistan Democratic Party ... KDP              its initials
    Israel ... Israeli                              another form of its last word

Only mentions whose last word begins with a capital are parts or forms of others: `cancer` after `breast cancer` may be
any cancer. Of several longer mentions with the words (of another form: of several mentions), the nearest one before the
mention counts, else the first one after it. Its entities become candidates of the mention, each with the probability
that it has for the other one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from pearl_qdrant.linking.documents.mentions import DocumentMention
from pearl_qdrant.linking.documents.model import COLUMN, NIL_COLUMN, DocumentModel, FloatArray
from pearl_qdrant.linking.mentions import clean_mention

Part = Literal["start", "middle", "end", "acronym", "form"]

MOST_ENTITIES, LEAST_PROBABILITY = 3, 0.05
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
        if probability >= LEAST_PROBABILITY:
            entity = other.entities[at]
            row = mention.add(entity)
            is_person = "PERSON" in (entity.point.types or (entity.point.predicted_type,))
            mention.values[row, COLUMN[_feature(part, is_person=is_person)]] = probability
            mention.values[row, COLUMN["popularity"]] = other.values[at, COLUMN["popularity"]]
            total += probability
    mention.of_decision[NIL_COLUMN["part"]] = total
    mention.of_decision[NIL_COLUMN["part_of_nil"]] = 1.0 - total


_PERSON: Mapping[Part, str] = {
    "start": "first_name",
    "middle": "surname",
    "end": "surname",
}


def _feature(part: Part, *, is_person: bool) -> str:
    """The feature that a part of the name of an entity sets."""
    if part in ("acronym", "form"):
        return "acronym" if part == "acronym" else "other_form"
    return _PERSON[part] if is_person else "part_of_name"


def _is_capitalised(mention: DocumentMention) -> bool:
    """Whether the last word of a mention begins with a capital, as names do."""
    words = clean_mention(mention.scored.mention).split()
    return bool(words) and words[-1][0].isupper()
