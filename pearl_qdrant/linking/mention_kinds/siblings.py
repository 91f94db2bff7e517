"""Mentions that are like a name of the base and mean another thing, which the base does not have."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pearl_qdrant.linking.mention_kinds.rewrites import OPPOSITES

if TYPE_CHECKING:
    from pearl_qdrant.linking.mention_kinds.make import NamedEntity

_BRACKETS = re.compile(r"\(([^()]*)\)\s*$")

_IN_BRACKETS = (
    "film song album novel band footballer politician river village company magazine musician actor painter comics "
    "video game play opera surname disambiguation software genus island lake singer writer mythology planet journal "
    "poet cricketer bishop town series boxer computing chemistry"
).split()

_HEADS = (
    "Bridge Airport Press Records Foundation River Castle Times Review Festival Museum Hospital Theatre Stadium "
    "Library Cathedral Island Lake Railway Hotel Park Tower Avenue Orchestra Magazine Award Treaty Conference School "
    "Station College University Institute Council Society Herald Massacre Marathon Prison Zoo Harbour Market Street "
    "Square Bay Valley Beach Convention Protocol Chronicle Symphony Scandal Uprising Formation Sandstone Creek Dam"
).split()

_BEFORE = "New East West North South Upper Lower Little Port Mount Lake Fort Greater Saint".split()
"""Words before the name of a place that make another place."""


def other_brackets(name: str, rng: random.Random) -> str | None:
    """Something else in the brackets at the end: `Firewalker (film)`, `Firewalker (album)`."""
    found = _BRACKETS.search(name)
    if found is None:
        return None
    inside = found[1]
    if (number := re.search(r"\d{1,4}", inside)) and rng.random() < 0.6:
        other = inside[: number.start()] + _other_number(number[0], rng) + inside[number.end() :]
    else:
        other = rng.choice([word for word in _IN_BRACKETS if word not in inside.lower()])
    return f"{name[: found.start()]}({other})"


def other_number(name: str, rng: random.Random) -> str | None:
    """Another number in the name: `Route 66`, `Route 67`; `ASR1603`, `ASR1606`."""
    bare = _BRACKETS.sub("", name)
    numbers = list(re.finditer(r"\d{1,5}", bare))
    if not numbers:
        return None
    at = rng.choice(numbers)
    return name[: at.start()] + _other_number(at[0], rng) + name[at.end() :]


def _other_number(number: str, rng: random.Random) -> str:
    """A number of as many digits, mostly a near one."""
    while True:
        other = str(max(1, int(number) + rng.choice((-10, -3, -2, -1, 1, 1, 2, 3, 4, 7, 10, 20, 100))))
        other = other.zfill(len(number)) if number.startswith("0") else other
        if other != number:
            return other


def other_first_name(
    name: str, types: Sequence[str], entities: Sequence[NamedEntity], rng: random.Random
) -> str | None:
    """Another person of the same family name: `Laura Trump`; or an initial that is not theirs: `B. Mathur`."""
    words = name.split()
    if "PERSON" not in types or not 2 <= len(words) <= 3 or not words[-1].isalpha():
        return None
    for _ in range(30):
        other = rng.choice(entities)
        parts = other.names[0].split()
        if "PERSON" in other.types and len(parts) >= 2 and parts[0].isalpha() and parts[0][:2] != words[0][:2]:
            if len(parts[0]) < 3 or parts[0][0] == words[0][0]:
                continue
            first = f"{parts[0][0]}." if rng.random() < 0.3 else parts[0]
            if len(words) == 3 and rng.random() < 0.4:
                return f"{words[0]} {first} {words[2]}"
            return f"{first} {words[-1]}"
    return None


def one_word_more(name: str, types: Sequence[str], entities: Sequence[NamedEntity], rng: random.Random) -> str | None:
    """A name with one word more, which is another thing: `Paris Hilton`, `Stripe Press`, `New London`."""
    if "(" in name or not {"GPE", "LOC", "ORG", "FAC", "PERSON"}.intersection(types) or len(name.split()) > 4:
        return None
    if "GPE" in types and rng.random() < 0.25:
        return f"{rng.choice(_BEFORE)} {name}"
    if "PERSON" not in types and " " not in name and rng.random() < 0.25:
        person = rng.choice(entities)
        first = person.names[0].split()[0]
        if "PERSON" in person.types and first.isalpha() and len(first) > 2:
            return f"{first} {name}"
    return f"{name} {rng.choice(_HEADS)}"


def sibling(name: str, entities: Sequence[NamedEntity], rng: random.Random) -> str | None:
    """Another thing of the same kind: another number, the opposite, another letter, another word of the base."""
    words = name.split()
    if len(words) < 2:
        return None
    changes: list[tuple[int, str]] = []
    for i, word in enumerate(words):
        if re.fullmatch(r"\d{1,4}", word):
            changes += [(i, str(int(word) + rng.randint(1, 60)))] * 3
        elif re.fullmatch(r"[A-Z]", word) and i:
            changes += [(i, rng.choice([c for c in "BCDEFGHJKLMNPQRSTUWYZ" if c != word]))] * 2
        elif word.lower() in OPPOSITES:
            other = OPPOSITES[word.lower()]
            changes += [(i, other.capitalize() if word[0].isupper() else other)] * 3
    from_another = rng.choice(rng.choice(entities).names).split()
    content = [i for i, word in enumerate(words) if len(word) > 3 and word.isalpha()]
    if content and len(from_another) > 1:
        at = rng.choice(content)
        other = rng.choice(from_another)
        is_far = other.isalpha() and len(other) > 3 and other[:3].lower() != words[at][:3].lower()
        if is_far and other.lower() not in (word.lower() for word in words):
            changes.append((at, other))
    if not changes:
        return None
    at, other = rng.choice(changes)
    return " ".join([*words[:at], other, *words[at + 1 :]])
