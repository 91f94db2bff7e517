"""What mention and name say about each other as strings, beyond their n-grams.

Each fact is a number in [0, 1]; all are 0 where a side has no letters or digits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from pearl_qdrant.lexical.ngrams import fold_name

_BRACKETS = re.compile(r"(?<!\s)\s*[(\[][^()\[\]]*[)\]]")  # tried once a run of white space, not at each of its blanks

_SMALL = frozenset("the of and in de a an for la le el at on to di du des der von und et y".split())
"""Words that an acronym passes over."""

_ACRONYM = range(2, 9)
"""Letters of an acronym."""

_LONG = 500  # characters: a thousand such strings taken apart would fill many MB


@dataclass(frozen=True, slots=True)
class StringFeatures:
    """A string taken apart once.

    Attributes:
        folded: As `fold_name` gives it.
        core: The same without what stands in brackets, if anything is left.
        joined: `folded` without blanks.
        first: Its first word.
        words: Its words.
        numbers: Those that are numbers.
        initials: First letters of its words, with and without the small ones; empty for one word.
    """

    folded: str
    core: str
    joined: str
    first: str
    words: frozenset[str]
    numbers: frozenset[str]
    initials: frozenset[str]


def string_features(text: str) -> StringFeatures:
    """Take a string apart; of the last ones that were not long it is remembered."""
    return _remembered(text) if len(text) <= _LONG else _take_apart(text)


@lru_cache(maxsize=1000)  # each holds four objects that the garbage collector walks through
def _remembered(text: str) -> StringFeatures:
    return _take_apart(text)


def _take_apart(text: str) -> StringFeatures:
    folded = fold_name(text)
    core = fold_name(_BRACKETS.sub("", text)) if "(" in text or "[" in text else folded
    words = folded.split()
    initials = {"".join(w[0] for w in words), "".join(w[0] for w in words if w not in _SMALL)}
    return StringFeatures(
        folded,
        core or folded,
        folded.replace(" ", ""),
        words[0] if words else "",
        frozenset(words),
        frozenset(w for w in words if w.isdigit()),
        frozenset(i for i in initials if len(words) > 1 and len(i) in _ACRONYM),
    )


def equal_core(mention: StringFeatures, name: StringFeatures) -> float:
    """Whether they are the same but for brackets, blanks and all that folding takes away."""
    if not mention.joined or not name.joined:
        return 0.0
    same = mention.joined == name.joined or name.folded == mention.core or mention.folded == name.core
    return float(same or mention.core == name.core)


def missing_numbers(mention: StringFeatures, name: StringFeatures) -> float:
    """Whether the mention has a number that the name has not."""
    return float(bool(mention.numbers - name.numbers))


def extra_numbers(mention: StringFeatures, name: StringFeatures) -> float:
    """Whether the name has a number that the mention has not."""
    return float(bool(name.numbers - mention.numbers))


def equal_numbers(mention: StringFeatures, name: StringFeatures) -> float:
    """Whether both have the same numbers, at least one."""
    return float(bool(mention.numbers) and mention.numbers == name.numbers)


def is_acronym(mention: StringFeatures, name: StringFeatures) -> float:
    """Whether one of them is made of the other's first letters, or holds such a word."""
    for short, long in ((mention, name), (name, mention)):
        if short.joined in long.initials or any(len(i) > 2 and i in short.words for i in long.initials):
            return 1.0
    return 0.0


def equal_first_word(mention: StringFeatures, name: StringFeatures) -> float:
    """Whether both begin with the same word."""
    return float(bool(mention.first) and mention.first == name.first)
