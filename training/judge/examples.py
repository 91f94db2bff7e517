"""What the judge learns from: pairs of a mention and a name, drawn without end from entities and their near neighbours.

    alias       another name of the entity, beside names of other entities that are near by vector, or far off
    made        the name written in another way, beside names of another thing made of it (`differences`)
    given       mentions that a linker was asked, beside the candidates that it found, with the right answers

They are read from JSON Lines, one object a line:

    {"source": "umls", "names": ["heart attack", "myocardial infarction"], "near": ["heart failure"], "types": [...],
     "kinds": ["disease"]}
    {"set": "courts", "mention": "9th Cir.", "names": ["Ninth Circuit", "Tenth Circuit"], "right": [true, false]}

All sources have equal shares unless `SHARES` names them, and all sets.

A mention of a given set whose entity is not in the base has wrong candidates alone: so the judge learns absence.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pearl_qdrant.errors import FormatError
from pearl_qdrant.linking.mention_kinds import NamedEntity, other_brackets
from training.judge.differences import Named, Words, in_brackets, other, same, tried

TRIES = 6
SHARES = {"general": 3.5, "bio": 2.0, "world": 1.5, "wordnet": 1.2, "dict": 1.3, "phrases": 5.0}
"""Shares of the sources of `runs/judge_examples.py`."""
MADE_SHARE = 0.4
"""Share of the groups whose mentions are made."""
FAR_SHARE = 0.3
"""Share of the mentions that get a name by chance, too: what lies far off is no name of theirs either."""
BRACKETED_SHARE = 0.15
"""Share of their names that get something in brackets, so that what else could be there is learnt."""


@dataclass(frozen=True, slots=True)
class NameGroup:
    """An entity with what may be taken for it.

    Attributes:
        names: Its names, the canonical one first.
        near: Names of other entities, the nearest first.
        types: Its coarse types.
        kinds: Words that say what it is.
    """

    names: tuple[str, ...]
    near: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GivenMention:
    """A mention with the names of candidates; `right` says which of them are its entity's."""

    mention: str
    names: tuple[str, ...]
    right: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """A mention and a name, and whether both are names of one thing."""

    mention: str
    name: str
    is_same: bool


class PairSource:
    """Draws pairs.

    Args:
        groups: Entities of each source, by the source's name, with its share of the groups that are drawn.
        words: Words for made differences.
        given: Sets of mentions with candidates.
        given_share: Share of the mentions that come from these sets, all sets alike.
    """

    def __init__(
        self,
        groups: Sequence[tuple[Sequence[NameGroup], float]],
        words: Words | None,
        *,
        given: Sequence[Sequence[GivenMention]] = (),
        given_share: float = 0.0,
    ) -> None:
        self._groups = [of for of, _ in groups]
        self._shares = [share for _, share in groups]
        self._words = words
        self._given, self._given_share = given, given_share
        self._people = [
            NamedEntity("", group.names, group.types) for of in self._groups for group in of if "PERSON" in group.types
        ][:20_000]
        self._people += [NamedEntity("", group.names, group.types) for of in self._groups for group in of[:2000]]

    def draw(self, rng: random.Random) -> Iterator[Pair]:
        """Draw pairs without end."""
        while True:
            if self._given and rng.random() < self._given_share:
                yield from self._of_given(rng)
                continue
            group = rng.choice(rng.choices(self._groups, weights=self._shares)[0])
            if self._words is not None and rng.random() < MADE_SHARE:
                yield from self._made(group, rng)
            else:
                yield from self._of_aliases(group, rng)

    def _of_given(self, rng: random.Random) -> Iterator[Pair]:
        of_set = rng.choice(self._given)
        one = rng.choice(of_set)
        rows = list(range(len(one.names)))
        # The first candidates are what a linker asks about; one of the others now and then.
        for i in [*rows[:2], *rng.sample(rows[2:], min(1, len(rows[2:])))]:
            yield Pair(one.mention, one.names[i], one.right[i])
        for i in rows[2:]:
            if one.right[i]:
                yield Pair(one.mention, one.names[i], True)
        far = rng.choice(of_set).names
        if far and rng.random() < FAR_SHARE and (name := rng.choice(far)) not in one.names:
            yield Pair(one.mention, name, False)

    def _of_aliases(self, group: NameGroup, rng: random.Random) -> Iterator[Pair]:
        mention = rng.choice(group.names)
        others = [name for name in group.names if name != mention]
        if others:
            name = rng.choice(others) if rng.random() < 0.5 else others[0]
            if rng.random() < 0.1:
                made = tried(lambda: same(Named(mention, group.types, group.kinds), rng), TRIES)
                mention = made or mention
            yield Pair(mention, name, True)
        near = group.near
        for _ in range(min(2, len(near))):
            yield Pair(mention, near[min(int(rng.expovariate(0.5)), len(near) - 1)], False)
        if rng.random() < FAR_SHARE:
            far = rng.choice(rng.choices(self._groups, weights=self._shares)[0])
            if (name := rng.choice(far.names)) not in group.names:
                yield Pair(mention, name, False)

    def _made(self, group: NameGroup, rng: random.Random) -> Iterator[Pair]:
        assert self._words is not None
        words, people = self._words, self._people
        name = rng.choice(group.names)
        named = Named(name, group.types, group.kinds)
        if rng.random() < BRACKETED_SHARE and "(" not in name:
            named = in_brackets(named, words, rng)
            name = named.name
            if (wrong := other_brackets(name, rng)) is not None:
                yield Pair(wrong, name, False)
        if (made := tried(lambda: same(named, rng), TRIES)) is not None:
            yield Pair(made, name, True)
        if (wrong := tried(lambda: other(named, words, people, rng), TRIES)) is not None:
            yield Pair(name, wrong, False) if rng.random() < 0.25 else Pair(wrong, name, False)
            if made is not None and rng.random() < 0.3 and wrong.endswith(name):
                # A slip does not make another thing the same.
                yield Pair(wrong.replace(name, made), name, False)


Groups = list[tuple[list[NameGroup], float]]
"""Entities of each source, with the source's share."""


def read_examples(path: Path) -> tuple[Groups, list[list[GivenMention]]]:
    """The entities of each source, and the mentions of each given set. Raises FormatError if a line is no example."""
    groups: dict[str, list[NameGroup]] = {}
    given: dict[str, list[GivenMention]] = {}
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line)
                if "set" in row:
                    one = GivenMention(row["mention"], tuple(row["names"]), tuple(map(bool, row["right"])))
                    given.setdefault(row["set"], []).append(one)
                    continue
                names, *others = (tuple(row.get(key, ())) for key in ("names", "near", "types", "kinds"))
                if not names:
                    raise ValueError("no name")
                groups.setdefault(row["source"], []).append(NameGroup(names, *others))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise FormatError(str(path), number, f"is no example of the judge ({error!r})") from error
    return [(rows, SHARES.get(source, 1.0)) for source, rows in groups.items()], list(given.values())


def write_examples(path: Path, rows: Iterable[dict[str, object]]) -> None:
    """Write examples as JSON Lines."""
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
