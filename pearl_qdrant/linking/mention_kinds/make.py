"""Makes mentions of every kind from a base: rewrites of names of one entity, and mentions without an entity.

A mention is kept only if its right answer is certain: no other entity may have a name of the same spelling key.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.mention_kinds import rewrites, siblings
from pearl_qdrant.linking.mention_kinds.foreign_names import COMMON_WORDS, OTHER_FIELDS
from pearl_qdrant.linking.mention_kinds.kinds import KINDS
from pearl_qdrant.linking.mention_kinds.owners import NameOwners, spelling_key
from pearl_qdrant.linking.mention_kinds.slips import slip

TRIES = 12
"""Names tried for each wanted mention of a kind; bases have few names of some kinds."""

MAX_KNOWN_OF_FIELD = 0.1
"""A field is another field if the base has at most this share of its names."""

Rewrite = Callable[[str, tuple[str, ...], random.Random], "str | None"]


@dataclass(frozen=True, slots=True)
class NamedEntity:
    """An entity with its names.

    Attributes:
        entity_id: Its id.
        names: Its names, the canonical one first.
        types: Its coarse types.
    """

    entity_id: str
    names: tuple[str, ...]
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MadeMention:
    """A mention of a known kind with its right answer.

    Attributes:
        kind: Name of the kind.
        mention: The string.
        entity_id: The right entity; None for NIL.
        without: Hashed ids of entities to treat as if they were not in the base.
        own_key: Spelling key of the entity's name to treat so; "" for none.
        is_canonical: Whether the mention is made from a canonical name.
    """

    kind: str
    mention: str
    entity_id: str | None
    without: frozenset[int] = frozenset()
    own_key: str = ""
    is_canonical: bool = True

    def excludes(self, entity_id: str, name: str) -> bool:
        """Whether a name of an entity is treated as if it were not in the base."""
        if self.without and hash(entity_id) in self.without:
            return True
        return bool(self.own_key) and entity_id == self.entity_id and spelling_key(name) == self.own_key


def make_mentions(
    entities: Sequence[NamedEntity], owners: NameOwners, *, per_kind: int | dict[str, int], seed: int = 0
) -> list[MadeMention]:
    """Make mentions of every kind; of a kind that the base has few names for, as many as it gives.

    Args:
        entities: A sample of the base, at least one.
        owners: All names of the base.
        per_kind: Mentions of each kind, or of each named kind.
        seed: Seed of all choices.

    Returns:
        Distinct mentions, in the order of `KINDS`.
    """
    made: list[MadeMention] = []
    for kind in KINDS:
        wanted = per_kind if isinstance(per_kind, int) else per_kind.get(kind.name, 0)
        rng = random.Random(f"{seed} {kind.name}")
        made += _take(_stream(kind.name, entities, owners, rng, TRIES * wanted), wanted)
    return made


def _take(stream: Iterator[MadeMention], n: int) -> list[MadeMention]:
    kept: dict[str, MadeMention] = {}
    for one in stream if n else ():
        kept.setdefault(one.mention, one)
        if len(kept) >= n:
            break
    return list(kept.values())


def _stream(
    kind: str, entities: Sequence[NamedEntity], owners: NameOwners, rng: random.Random, tries: int
) -> Iterator[MadeMention]:
    """Mentions of one kind from at most `tries` names."""
    if kind == "nil other field":
        yield from _other_fields(owners, rng)
        return
    if kind == "nil common word":
        words = [word for word in COMMON_WORDS if not owners.of_name(word)]
        rng.shuffle(words)
        yield from (MadeMention(kind, word, None) for word in words)
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
    kind: str,
    entity: NamedEntity,
    name: str,
    entities: Sequence[NamedEntity],
    owners: NameOwners,
    rng: random.Random,
) -> MadeMention | None:
    """A mention of one kind from a name that belongs to one entity; None if the kind does not apply to it."""
    is_canonical = name == entity.names[0]
    if kind == "exact":
        return MadeMention(kind, name, entity.entity_id, is_canonical=is_canonical)
    if kind == "alias":
        if is_canonical or len({spelling_key(one) for one in entity.names}) < 2:
            return None
        return MadeMention(kind, name, entity.entity_id, own_key=spelling_key(name), is_canonical=False)
    if kind == "nil removed":
        return MadeMention(kind, name, None, without=owners.sharing_names_with(entity.entity_id))
    if kind in _SIBLINGS:
        other = _SIBLINGS[kind](name, entity.types, entities, rng)
        return MadeMention(kind, other, None) if other and other != name and not owners.of_name(other) else None
    changed = _REWRITES[kind](name, entity.types, rng)
    if changed is None or changed == name or not changed.strip():
        return None
    if owners.of_name(changed) - {hash(entity.entity_id)}:
        return None
    return MadeMention(kind, changed, entity.entity_id, is_canonical=is_canonical)


def _other_fields(owners: NameOwners, rng: random.Random) -> Iterator[MadeMention]:
    names = []
    for field in OTHER_FIELDS.values():
        unknown = [name for name in field if not owners.of_name(name)]
        if len(field) - len(unknown) <= MAX_KNOWN_OF_FIELD * len(field):
            names += unknown
    rng.shuffle(names)
    yield from (MadeMention("nil other field", name, None) for name in names)


def _two_slips(name: str, types: tuple[str, ...], rng: random.Random) -> str | None:
    if len(name) < 8:
        return None
    once = slip(name, rng)
    return None if once is None else slip(once, rng)


def _untyped(rewrite: Callable[[str, random.Random], str | None]) -> Rewrite:
    return lambda name, types, rng: rewrite(name, rng)


_REWRITES: dict[str, Rewrite] = {
    "case": _untyped(rewrites.other_case),
    "punctuation": _untyped(rewrites.other_punctuation),
    "no spaces": _untyped(rewrites.without_spaces),
    "one slip": _untyped(slip),
    "two slips": _two_slips,
    "plural": _untyped(rewrites.plural),
    "order": _untyped(rewrites.inverted),
    "affix": rewrites.affixed,
    "spelling": _untyped(rewrites.respelled),
    "initials": rewrites.initials,
    "in words": rewrites.in_words,
}

_SIBLINGS: dict[str, Callable[[str, tuple[str, ...], Sequence[NamedEntity], random.Random], str | None]] = {
    "nil sibling": lambda name, types, entities, rng: siblings.sibling(name, entities, rng),
    "nil brackets": lambda name, types, entities, rng: siblings.other_brackets(name, rng),
    "nil number": lambda name, types, entities, rng: siblings.other_number(name, rng),
    "nil first name": siblings.other_first_name,
    "nil word more": siblings.one_word_more,
}
