"""How a base writes its names: as words (`aspirin`, `Diabetes mellitus`), or as proper names (`Leipzig`).

It is measured from a sample of the base when a linker first annotates, not from a passage, for each coarse type:

- Persons, places, organisations, works and events have proper names.
- Other types are written as words if many canonical names have a lower-case word (`Diabetes mellitus`). Where case says
  nothing (single words, Title Case, all capitals), the types that the model's head predicts for the names decide.
- Where canonical names start with small letters too, a capital means something: `Turkey` beside `turkey`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from pearl_qdrant.linking.mention_detection.stop_words import CONNECTORS
from pearl_qdrant.records import Candidate

SAMPLE = 4_000
"""Points read of each collection. Their ids are hashes, so the first ones are a random sample."""

PROPER_TYPES = frozenset("PERSON NORP ORG GPE LOC FAC EVENT WORK_OF_ART LAW".split())
"""Coarse types whose names are capitalised in running text."""

_WORDS = 0.3
"""Names are words if this share of them has a lower-case word where proper names have capitals. Of the bases that were
looked at, those of diseases, anatomy, cells and chemicals have over 0.8, those of places and works below 0.1."""

_SMALL_STARTS = 0.1
"""Share of canonical names with a small first letter from which a capital one means something."""

_LEAST = 5
"""Names of a type from which it is judged by itself, and not with all the others."""

_LETTERS = re.compile(r"[^\W\d_]+")


class Writing(Enum):
    """How a name is written."""

    WORD = "word"  # a word of the language; its capital says nothing, if it has one
    CAPITAL = "capital"  # written with a capital in a base that writes others without
    PROPER = "proper"  # a proper name


class NamedPoint(Protocol):
    """What is read of a name; `NamePoint` is one."""

    @property
    def name(self) -> str: ...
    @property
    def is_canonical(self) -> bool: ...
    @property
    def types(self) -> tuple[str, ...]: ...
    @property
    def predicted_type(self) -> str | None: ...


@dataclass(slots=True)
class _Counts:
    """Counts of the canonical names of one type."""

    names: int = 0
    small_starts: int = 0
    long: int = 0  # names of several words
    with_small_word: int = 0
    predicted: int = 0
    predicted_proper: int = 0

    def add(self, point: NamedPoint) -> None:
        words = _LETTERS.findall(point.name)
        if not words:
            return
        self.names += 1
        self.small_starts += words[0][0].islower()
        later = [word for word in words[1:] if len(word) > 3 and word.lower() not in CONNECTORS]
        self.long += bool(later)
        self.with_small_word += any(word[0].islower() for word in later)
        if point.predicted_type is not None:
            self.predicted += 1
            self.predicted_proper += point.predicted_type in PROPER_TYPES

    def are_words(self, *, has_case: bool, has_type: bool) -> bool:
        if has_case and self.small_starts >= _WORDS * self.names > 0:
            return True
        if has_case and self.long >= _LEAST and self.with_small_word >= _WORDS * self.long:
            return True
        return 2 * self.predicted_proper < self.predicted if self.predicted else has_type


@dataclass(frozen=True, slots=True)
class NameCase:
    """How the names of some collections are written; made by `of_points`.

    Attributes:
        words: The coarse types, "" for none, whose names are written as words.
        capitals_count: Those of them where a capital means something.
        known: All types that were seen often enough.
        others: What holds for the other types: "untyped" and "typed" if such names are words, "capitals count".
        has_case: Whether some names have capitals and others small letters.
        is_capitals: Whether nearly all names are in capitals.
    """

    words: frozenset[str] = frozenset()
    capitals_count: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    has_case: bool = True
    is_capitals: bool = False

    @classmethod
    def of_points(cls, points: Iterable[NamedPoint]) -> NameCase:
        """Measure a sample of names."""
        by_type: Mapping[str, _Counts] = defaultdict(_Counts)
        everything = _Counts()
        n_lower = n_upper = n_names = 0
        for point in points:
            n_names += 1
            n_lower += point.name != point.name.upper()
            n_upper += point.name != point.name.lower()
            if point.is_canonical and PROPER_TYPES.isdisjoint(point.types):
                everything.add(point)
                by_type[point.types[0] if point.types else ""].add(point)
        has_case = n_lower >= 0.05 * n_names and n_upper >= 0.02 * n_names  # acronyms and names of people are in all
        known = {name: counts for name, counts in by_type.items() if counts.names >= _LEAST}
        words = {n for n, counts in known.items() if counts.are_words(has_case=has_case, has_type=bool(n))}
        capitals = {n for n, c in known.items() if has_case and c.small_starts >= _SMALL_STARTS * c.names}
        kinds = {"untyped": False, "typed": True}
        others = {n for n, has_type in kinds.items() if everything.are_words(has_case=has_case, has_type=has_type)}
        if has_case and everything.small_starts >= _SMALL_STARTS * everything.names > 0:
            others.add("capitals count")
        is_capitals = n_names > n_lower < 0.05 * n_names
        return cls(frozenset(words), frozenset(capitals), frozenset(known), frozenset(others), has_case, is_capitals)

    def writing_of(self, candidate: Candidate) -> Writing:
        """How the name of a candidate is written."""
        name = candidate.name
        if self.has_case and name == name.lower():
            return Writing.WORD
        if not PROPER_TYPES.isdisjoint(candidate.types):
            return Writing.PROPER
        key = candidate.types[0] if candidate.types else ""
        is_known = key in self.known
        if not (key in self.words if is_known else ("typed" if key else "untyped") in self.others):
            return Writing.PROPER
        counts = key in self.capitals_count if is_known else "capitals count" in self.others
        return Writing.CAPITAL if counts and name != name.lower() else Writing.WORD
