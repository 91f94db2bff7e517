"""Everyday mentions made from a base: rewrites of names of one entity, and mentions without an entity, by kind.

The share of each kind in the mixture that ranking and calibration are fitted on is an estimate of what programs send:
most mentions are names of the base as they stand or nearly so, a fifth has no entity. No public log of queries gives
these shares, so figures are reported by kind. Slips and names in a few words have more than they probably have in use,
because there the answer depends on the fit most.

A mention is kept only if its right answer is certain: no other entity may have a name of the same spelling key.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.learned.counts import spelling_key
from pearl_qdrant.linking.mention_kinds import rewrites
from pearl_qdrant.linking.mention_kinds.rewrites import COMMON_WORDS, OTHER_FIELDS, NamedEntity, slip


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
    """A mention of a known kind with its right answer.

    Attributes:
        entity_id: The right entity; None for NIL.
        without: Hashed ids of entities to treat as if they were not in the base.
        own_key: Spelling key of the entity's name to treat so; "" for none.
    """

    kind: str
    mention: str
    entity_id: str | None
    without: frozenset[int] = frozenset()
    own_key: str = ""

    def excludes(self, entity_id: str, name: str) -> bool:
        """Whether a name of an entity is treated as if it were not in the base."""
        if self.without and hash(entity_id) in self.without:
            return True
        return bool(self.own_key) and entity_id == self.entity_id and spelling_key(name) == self.own_key


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
    "case": lambda name, types, entities, rng: rewrites.other_case(name, rng),
    "punctuation": lambda name, types, entities, rng: rewrites.other_punctuation(name, rng),
    "no spaces": lambda name, types, entities, rng: rewrites.without_spaces(name, rng),
    "one slip": lambda name, types, entities, rng: slip(name, rng),
    "two slips": lambda name, types, entities, rng: _two_slips(name, rng),
    "plural": lambda name, types, entities, rng: rewrites.plural(name, rng),
    "order": lambda name, types, entities, rng: rewrites.inverted(name, rng),
    "affix": lambda name, types, entities, rng: rewrites.affixed(name, types, rng),
    "spelling": lambda name, types, entities, rng: rewrites.respelled(name, rng),
    "initials": lambda name, types, entities, rng: rewrites.initials(name, types, rng),
    "in words": lambda name, types, entities, rng: rewrites.in_words(name, types, rng),
    "nil sibling": lambda name, types, entities, rng: rewrites.sibling(name, entities, rng),
    "nil brackets": lambda name, types, entities, rng: rewrites.other_brackets(name, rng),
    "nil number": lambda name, types, entities, rng: rewrites.other_number(name, rng),
    "nil first name": rewrites.other_first_name,
    "nil word more": rewrites.one_word_more,
}
