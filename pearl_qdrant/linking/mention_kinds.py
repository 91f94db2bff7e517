"""Everyday mentions made from a base: rewrites of names of one entity, and mentions without an entity, by kind.

The share of each kind in the mixture that ranking and calibration are fitted on is an estimate of what programs send:
most mentions are names of the base as they stand or nearly so, a fifth has no entity. No public log of queries gives
these shares, so figures are reported by kind. Slips and names in a few words have more than they probably have in use,
because there the answer depends on the fit most.

A function that rewrites a name returns None where the kind does not apply to it. Slips of one character are as people,
scanners and ears make them, never in a number. The words are in `mention_words.json`; the names of other fields there
are well known, and the words around a name (`contexts`, by coarse type of the entity; those of "" fit any name) name no
entity. A mention is kept only if its right answer is certain: no other entity may have a name of the same spelling key.
"""

from __future__ import annotations

import json
import random
import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.learned.names import spelling_key
from pearl_qdrant.store.schema import NamePoint

_Slip = Callable[[str, random.Random], "str | None"]
_DATA: dict[str, Any] = json.loads(files(__package__).joinpath("mention_words.json").read_text("utf-8"))


def _both_ways(pairs: Sequence[str]) -> dict[str, str]:
    there = dict(pair.split("/") for pair in pairs)
    return {**there, **{b: a for a, b in there.items()}}


_SPELLINGS, _OPPOSITES = _both_ways(_DATA["spellings"]), _both_ways(_DATA["opposites"])
CONTEXTS: dict[str, list[str]] = _DATA["contexts"]
OTHER_FIELDS: dict[str, list[str]] = _DATA["other_fields"]
COMMON_WORDS: list[str] = _DATA["common_words"]  # words and phrases of everyday language that are seldom names
_ROMAN_AFTER = frozenset("type stage class grade phase group part factor war level category chapter volume".split())
_LEGAL_FORMS = ("Inc.", "Ltd", "Corp.", "Corporation", "Company", "LLC", "plc")
_TITLES = ("Dr. ", "Mr. ", "Mrs. ", "Prof. ", "Sir ")
_BEFORE = "New East West North South Upper Lower Little Port Mount Lake Fort Greater Saint".split()
"""Words before the name of a place that make another place."""
_BRACKETS = re.compile(r"\(([^()]*)\)\s*$")


class NamedEntity(NamedTuple):
    """An entity with its names, the canonical one first, and its coarse types."""

    entity_id: str
    names: tuple[str, ...]
    types: tuple[str, ...] = ()


def other_case(name: str, rng: random.Random) -> str | None:
    """Lower case, upper case, title case, or the first letter alone in upper case."""
    forms = {name.lower(), name.upper(), name.title(), name[:1].upper() + name[1:].lower()} - {name}
    return rng.choice(sorted(forms)) if forms else None


def other_punctuation(name: str, rng: random.Random) -> str | None:
    """Without accents, with other hyphens, without punctuation, or with full stops in an acronym."""
    bare = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    forms = {bare, name.replace("-", " "), re.sub(r"[.,'’()\[\]]", "", name), re.sub(r"[-/]", "", name)}
    if re.fullmatch(r"[A-Z]{2,5}", name):
        forms.add(".".join(name) + ".")
    if name.count(" ") == 1:
        forms.add(name.replace(" ", "-"))
    forms = {" ".join(form.split()) for form in forms} - {name, ""}
    return rng.choice(sorted(forms)) if forms else None


def without_spaces(name: str, rng: random.Random) -> str | None:
    """All spaces left out, or one of them in a longer name."""
    words = name.split()
    if not 2 <= len(words) <= 5:
        return None
    if len(words) > 2 and rng.random() < 0.5:
        at = rng.randrange(len(words) - 1)
        return " ".join([*words[:at], words[at] + words[at + 1], *words[at + 2 :]])
    return "".join(words)


def plural(name: str, rng: random.Random) -> str | None:
    """The plural of the last word, or its possessive."""
    if not name[-1:].isalpha() or len(name) < 4:
        return None
    if rng.random() < 0.3:
        return f"{name}'s" if not name.endswith("s") else f"{name}'"
    last = name[-2:].lower()
    if last[1] == "s":
        return None
    if last[1] == "y" and last[0] not in "aeiou":
        return name[:-1] + "ies"
    return name + ("es" if last in ("ch", "sh") or last[1] in "xz" else "s")


def inverted(name: str, rng: random.Random) -> str | None:
    """The last word first with a comma; "X of Y" as "Y X"; or the part after a comma in front."""
    words = name.split()
    if "," in name:
        first, _, rest = name.partition(",")
        return f"{rest.strip()} {first.strip()}" if rest.strip() and "," not in rest else None
    if not 2 <= len(words) <= 6 or any(not w[0].isalnum() for w in words):
        return None
    if len(words) == 3 and words[1].lower() == "of":
        return rng.choice((f"{words[2]} {words[0]}", f"{words[2]}, {words[0]} of"))
    if {w.lower() for w in words} & {"of", "and", "or", "in", "with", "the", "to", "by"}:
        return None
    at = rng.choice((1, len(words) - 1))
    return f"{' '.join(words[at:])}, {' '.join(words[:at])}"


def affixed(name: str, types: tuple[str, ...], rng: random.Random) -> str | None:
    """With or without an article, a legal form (organisations) or a title (people)."""
    lowered = name.lower()
    if lowered.startswith("the ") and len(name) > 6:
        return name[4:]
    if "PERSON" in types:
        return rng.choice(_TITLES) + name
    if "ORG" in types and rng.random() < 0.6:
        bare = re.sub(r",? (inc|ltd|corp|corporation|company|llc|plc|co)\.?$", "", name, flags=re.IGNORECASE)
        return bare if bare != name else f"{name} {rng.choice(_LEGAL_FORMS)}"
    return rng.choice(("the ", "The ", "a ")) + name


def respelled(name: str, rng: random.Random) -> str | None:
    """British for American spelling or the reverse, Greek letters, Roman or Arabic numerals, Latin ligatures."""
    words = re.split(r"(\W+)", name)
    places = []
    for i, word in enumerate(words):
        lowered = word.lower()
        before = words[i - 2].lower() if i >= 2 else ""
        if lowered in _SPELLINGS:
            places.append((i, _SPELLINGS[lowered]))
        elif lowered.endswith("s") and lowered[:-1] in _SPELLINGS:
            places.append((i, _SPELLINGS[lowered[:-1]] + "s"))
        elif lowered in _DATA["greek"]:
            places.append((i, _DATA["greek"][lowered]))
        elif lowered in _DATA["numerals"] and (before in _ROMAN_AFTER or lowered in ("ii", "iii")):
            places.append((i, _DATA["numerals"][lowered]))
    if not places:
        return None
    at, other = rng.choice(places)
    kept = other.capitalize() if words[at][:1].isupper() and words[at][1:].islower() and other.islower() else other
    return "".join([*words[:at], kept, *words[at + 1 :]])


def initials(name: str, types: tuple[str, ...], rng: random.Random) -> str | None:
    """The first names of a person as initials; the initials of a longer name."""
    words = [word for word in re.findall(r"[^\W\d_]+", name) if word.lower() not in ("of", "and", "the", "in", "for")]
    if "PERSON" in types and 2 <= len(words) <= 3:
        return " ".join([*(f"{word[0].upper()}." for word in words[:-1]), words[-1]])
    if len(words) < 3 or len(words) > 6:
        return None
    short = "".join(word[0].upper() for word in words)
    return ".".join(short) + "." if rng.random() < 0.2 else short


def in_words(name: str, types: tuple[str, ...], rng: random.Random) -> str | None:
    """The name inside a few more words."""
    if len(name) < 4:
        return None
    of_type = [template for one in types for template in CONTEXTS.get(one, ())]
    return rng.choice(of_type or CONTEXTS[""]).format(name)


_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"

KEYBOARD: dict[str, str] = {
    letter: "".join(sorted({c for row in _ROWS[max(0, y - 1) : y + 2] for c in row[max(0, x - 1) : x + 2]} - {letter}))
    for y, letters in enumerate(_ROWS)
    for x, letter in enumerate(letters)
}
"""Neighbours of each letter on a QWERTY keyboard."""

MIN_LETTERS = 4  # letters of a word that gets a slip: in `cat` one letter makes another word
_WORD = re.compile(rf"[^\W\d_]{{{MIN_LETTERS},}}")


def slip(name: str, rng: random.Random) -> str | None:
    """The name with one slip inside one of its longer words; None if it has none, or nothing changes."""
    words = list(_WORD.finditer(name))
    if not words:
        return None
    for _ in range(8):
        # A long word is mistyped more often.
        word = rng.choices(words, weights=[len(w.group()) for w in words])[0]
        changed = rng.choices(_SLIPS, weights=_SLIP_WEIGHTS)[0](word.group(), rng)
        if changed is not None and changed.casefold() != word.group().casefold():
            return name[: word.start()] + changed + name[word.end() :]
    return None


def _typed(word: str, rng: random.Random) -> str | None:
    at = rng.randrange(len(word))
    near = KEYBOARD.get(word[at].lower())
    if near is None:
        return None
    letter = rng.choice(near)
    letter = letter.upper() if word[at].isupper() else letter
    return rng.choice((word[:at] + letter + word[at + 1 :], word[:at] + letter + word[at:]))


def _random_letter(word: str, rng: random.Random) -> str:
    at = rng.randrange(len(word))
    return word[:at] + rng.choice(_LETTERS) + word[at + 1 :]


def _misread(pairs: Sequence[Sequence[str]], word: str, rng: random.Random) -> str | None:
    lowered = word.lower()
    places = [(m.start(), a, b) for a, b in pairs for m in re.finditer(re.escape(a), lowered)]
    if not places or len(lowered) != len(word):
        return None
    at, a, b = rng.choice(places)
    return word[:at] + b + word[at + len(a) :]


def _at(n_end: int, make: Callable[[str, int], str]) -> _Slip:
    """A slip at a random place, but for the last `n_end` ones."""
    return lambda word, rng: make(word, rng.randrange(len(word) - n_end))


_SLIPS: tuple[_Slip, ...] = (
    _typed,
    _at(0, lambda word, at: word[:at] + word[at + 1 :]),  # left out
    _at(0, lambda word, at: word[: at + 1] + word[at].lower() + word[at + 1 :]),  # doubled
    _at(1, lambda word, at: word[:at] + word[at + 1] + word[at] + word[at + 2 :]),  # swapped
    _random_letter,
    lambda word, rng: _misread(_DATA["ocr"], word, rng),  # scanned
    lambda word, rng: _misread(_DATA["sounds"], word, rng),  # heard: spellings of one sound, doubled letters
)
_SLIP_WEIGHTS = (3, 3, 1, 3, 1, 1, 2)  # typing makes most slips; by and large as in corpora of misspellings


def other_brackets(name: str, rng: random.Random) -> str | None:
    """Something else in the brackets at the end: `Firewalker (film)`, `Firewalker (album)`."""
    found = _BRACKETS.search(name)
    if found is None:
        return None
    inside = found[1]
    if (number := re.search(r"\d{1,4}", inside)) and rng.random() < 0.6:
        other = inside[: number.start()] + _other_number(number[0], rng) + inside[number.end() :]
    else:
        other = rng.choice([word for word in _DATA["in_brackets"] if word not in inside.lower()])
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
    return f"{name} {rng.choice(_DATA['heads'])}"


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
        elif word.lower() in _OPPOSITES:
            other = _OPPOSITES[word.lower()]
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


class Kind(NamedTuple):
    """A kind of mention: its name, as in reports, its share in the mixture, in (0, 1), and what it is."""

    name: str
    share: float
    meaning: str


KINDS: tuple[Kind, ...] = (
    Kind("exact", 0.10, "a name as it stands; the most frequent kind in tables and in what programs send"),
    Kind("case", 0.04, "other letter case: `aids`, `NEW YORK`"),
    Kind("punctuation", 0.04, "accents, hyphens and full stops: `Malmo`, `IL 2`, `N.A.S.A.`"),
    Kind("no spaces", 0.03, "spaces left out: `chickenpox`, `newyork`; domains and hashtags"),
    Kind("one slip", 0.12, "one wrong character: a neighbour on the keyboard, a swap, OCR, a sound; 1 in 10 queries"),
    Kind("two slips", 0.04, "two of them"),
    Kind("plural", 0.04, "plural or possessive: `lung cancers`, `Apple's`"),
    Kind("order", 0.04, "inverted words: `diabetes mellitus, type 2`, `Einstein, Albert`"),
    Kind("affix", 0.04, "articles, legal forms and titles: `the Beatles`, `Apple Inc.`, `Dr. Einstein`"),
    Kind("spelling", 0.04, "British or American, Greek letters, numerals: `anaemia`, `IL-1β`, `type II`"),
    Kind("initials", 0.03, "abbreviated words: `A. Einstein`, `COPD`; short forms fit many names"),
    Kind("in words", 0.11, "inside a few more words: `a case of measles`, `patients with asthma`"),
    Kind("alias", 0.11, "a real alias that the base does not have: the hardest kind, and the least frequent in tables"),
    Kind("nil removed", 0.08, "a name whose entity is not in the base"),
    Kind("nil sibling", 0.04, "like an entity of the base but another one: `hepatitis Z`, `type 9 diabetes`"),
    Kind("nil brackets", 0.01, "something else in brackets: `Ian Clark (river)`, `Libido (1974 film)`"),
    Kind("nil number", 0.01, "another number: `Route 67`"),
    Kind("nil first name", 0.01, "another person of the same family name: `B. Mathur`"),
    Kind("nil word more", 0.01, "a name with one word more, which is another thing: `Stripe Press`"),
    Kind("nil other field", 0.03, "a name of another field"),
    Kind("nil common word", 0.03, "a word of everyday language that is no name of the base"),
)
"""All kinds; the shares sum to 1."""


class NameOwners:
    """Maps all names of a base to their entities, and these to names, by hashes, which differ between processes."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        entities, names = array("q"), array("q")
        for entity_id, name in pairs:
            entities.append(hash(entity_id))
            names.append(hash(spelling_key(name)))
        owner_of, name_of = np.frombuffer(entities, dtype=np.int64), np.frombuffer(names, dtype=np.int64)
        by_name, by_entity = np.argsort(name_of, kind="stable"), np.argsort(owner_of, kind="stable")
        self._names, self._owners = name_of[by_name], owner_of[by_name]
        self._entities, self._names_of = owner_of[by_entity], name_of[by_entity]

    def __len__(self) -> int:
        return len(self._names)

    def of_name(self, name: str) -> frozenset[int]:
        """Hashed ids of the entities with a name of this spelling key."""
        return self._of_hash(hash(spelling_key(name)))

    def sharing_names_with(self, entity_id: str) -> frozenset[int]:
        """Hashed ids of all entities that share a name with this one, its own included."""
        key = hash(entity_id)
        names = self._names_of[slice(*np.searchsorted(self._entities, [key, key + 1]))]
        return frozenset({key}.union(*(self._of_hash(int(name)) for name in names)))

    def _of_hash(self, key: int) -> frozenset[int]:
        first, last = np.searchsorted(self._names, key, "left"), np.searchsorted(self._names, key, "right")
        return frozenset(self._owners[first:last].tolist())


TRIES = 12  # names tried for each wanted mention of a kind; bases have few names of some kinds
MAX_KNOWN_OF_FIELD = 0.1  # a field is another field if the base has at most this share of its names


@dataclass(frozen=True, slots=True)
class MadeMention:
    """A mention of a known kind with its right answer."""

    kind: str
    mention: str
    entity_id: str | None  # the right entity; None for NIL
    without: frozenset[int] = frozenset()  # hashed ids of entities to treat as if they were not in the base
    own_key: str = ""  # spelling key of the entity's name to treat so; "" for none

    def excludes(self, entity_id: str, name: str) -> bool:
        """Whether a name of an entity is treated as if it were not in the base."""
        if self.without and hash(entity_id) in self.without:
            return True
        return bool(self.own_key) and entity_id == self.entity_id and spelling_key(name) == self.own_key

    def excludes_point(self, point: NamePoint) -> bool:
        """The same of a stored name."""
        return self.excludes(point.entity_id, point.name)


def make_mentions(
    entities: Sequence[NamedEntity], owners: NameOwners, *, per_kind: int | dict[str, int], seed: int = 0
) -> list[MadeMention]:
    """Distinct mentions of every kind, in the order of `KINDS`, from a sample of the entities and all names of a base.
    Of a kind that the base has few names for there are fewer than `per_kind`, which may be one number a kind.
    """
    made: list[MadeMention] = []
    for kind in KINDS:
        wanted = per_kind if isinstance(per_kind, int) else per_kind.get(kind.name, 0)
        stream = _stream(kind.name, entities, owners, random.Random(f"{seed} {kind.name}"), TRIES * wanted)
        kept: dict[str, MadeMention] = {}
        while len(kept) < wanted and (one := next(stream, None)) is not None:
            kept.setdefault(one.mention, one)
        made += kept.values()
    return made


def _stream(
    kind: str, entities: Sequence[NamedEntity], owners: NameOwners, rng: random.Random, tries: int
) -> Iterator[MadeMention]:
    """Mentions of one kind from at most `tries` names."""
    unknown = []
    if kind == "nil other field":
        for field in OTHER_FIELDS.values():
            names = [name for name in field if not owners.of_name(name)]
            if len(field) - len(names) <= MAX_KNOWN_OF_FIELD * len(field):
                unknown += names
    elif kind == "nil common word":
        unknown = [word for word in COMMON_WORDS if not owners.of_name(word)]
    if kind in ("nil other field", "nil common word"):
        rng.shuffle(unknown)
        yield from (MadeMention(kind, word, None) for word in unknown)
        return
    for _ in range(tries):
        entity = rng.choice(entities)
        # Half canonical names, half aliases, where the entity has aliases.
        name = entity.names[0] if len(entity.names) == 1 or rng.random() < 0.5 else rng.choice(entity.names[1:])
        if len(owners.of_name(name)) != 1 or not fold_name(name) or name != name.strip():
            continue
        if (one := _from_name(kind, entity, name, entities, owners, rng)) is not None:
            yield one


def _from_name(
    kind: str, entity: NamedEntity, name: str, entities: Sequence[NamedEntity], owners: NameOwners, rng: random.Random
) -> MadeMention | None:
    """A mention of one kind from a name that belongs to one entity; None if the kind does not apply to it."""
    if kind == "exact":
        return MadeMention(kind, name, entity.entity_id)
    if kind == "alias":
        if name == entity.names[0] or len({spelling_key(one) for one in entity.names}) < 2:
            return None
        return MadeMention(kind, name, entity.entity_id, own_key=spelling_key(name))
    if kind == "nil removed":
        return MadeMention(kind, name, None, without=owners.sharing_names_with(entity.entity_id))
    other = _MAKERS[kind](name, entity.types, entities, rng)
    if other is None or other == name or not other.strip():
        return None
    if kind.startswith("nil"):
        return None if owners.of_name(other) else MadeMention(kind, other, None)
    return None if owners.of_name(other) - {hash(entity.entity_id)} else MadeMention(kind, other, entity.entity_id)


def _two_slips(name: str, rng: random.Random) -> str | None:
    once = slip(name, rng) if len(name) >= 8 else None
    return None if once is None else slip(once, rng)


_MAKERS: dict[str, Callable[[str, tuple[str, ...], Sequence[NamedEntity], random.Random], str | None]] = {
    "case": lambda name, types, entities, rng: other_case(name, rng),
    "punctuation": lambda name, types, entities, rng: other_punctuation(name, rng),
    "no spaces": lambda name, types, entities, rng: without_spaces(name, rng),
    "one slip": lambda name, types, entities, rng: slip(name, rng),
    "two slips": lambda name, types, entities, rng: _two_slips(name, rng),
    "plural": lambda name, types, entities, rng: plural(name, rng),
    "order": lambda name, types, entities, rng: inverted(name, rng),
    "affix": lambda name, types, entities, rng: affixed(name, types, rng),
    "spelling": lambda name, types, entities, rng: respelled(name, rng),
    "initials": lambda name, types, entities, rng: initials(name, types, rng),
    "in words": lambda name, types, entities, rng: in_words(name, types, rng),
    "nil sibling": lambda name, types, entities, rng: sibling(name, entities, rng),
    "nil brackets": lambda name, types, entities, rng: other_brackets(name, rng),
    "nil number": lambda name, types, entities, rng: other_number(name, rng),
    "nil first name": other_first_name,
    "nil word more": one_word_more,
}
