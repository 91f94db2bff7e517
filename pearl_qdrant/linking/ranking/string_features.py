"""String features of a pair of mention and name that n-grams do not capture.

Each feature is a number in [0, 1], and 0 if one side has no letters or digits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from pearl_qdrant.lexical.keys import SMALL_WORDS, spelling_key
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.lexical.words import variant_words

_BRACKETS = re.compile(r"(?<!\s)\s*[(\[][^()\[\]]*[)\]]")  # the lookbehind avoids quadratic time in a run of spaces

_SMALL = frozenset("the of and in de a an for la le el at on to di du des der von und et y".split())
"""Words that an acronym may skip."""

_ACRONYM = range(2, 9)
"""Possible lengths of an acronym."""

_LONGEST_CODE = 8
_CODE = re.compile(r"\b(?=[A-Z0-9-]*[A-Z][A-Z0-9-]*[A-Z0-9])[A-Z0-9][A-Z0-9-]{0,6}[A-Za-z0-9]?\b")
"""A short word in capitals, with digits or not: IMD73B, DFNA13, TBCD."""

_IN_CAPITALS = re.compile("[A-Z]{2} ")
"""A first word in capitals, which may be initials."""

_NOT_PLAIN = re.compile(r"[0-9]|[^\x00-\x7f]|(?:^| ).(?: |$)")
"""What a folded name with a number or a single letter has; a letter of another script may be a digit, too."""

_CAPITAL = re.compile("[A-Z][A-Z0-9-]")
"""What every match of `_CODE` has; names rarely do."""

_NONE: frozenset[str] = frozenset()

_LONG = 500  # characters; longer strings are not cached, because a thousand of them would fill many MB


class StringFeatures(NamedTuple):
    """A string prepared for comparisons; a tuple, because it is made a third as fast as a frozen dataclass.

    Attributes:
        text: The string.
        folded: The result of `fold_name`.
        core: The same without text in brackets, unless nothing else is left.
        joined: `folded` without spaces: its spelling key.
        words_key: Its key of sorted words.
        content: Its words in their normal spelling, without small ones.
        content_set: The same as a set.
        first: The first word.
        words: All words.
        numbers: The words that are numbers.
        codes: Content words in which every character counts: numbers, single letters, short words in capitals.
        initials: First letters of the words, with and without small words; empty for a single word.
    """

    text: str
    folded: str
    core: str
    joined: str
    words_key: str
    content: tuple[str, ...]
    content_set: frozenset[str]
    first: str
    words: frozenset[str]
    numbers: frozenset[str]
    codes: frozenset[str]
    initials: frozenset[str]


def string_features(text: str, folded: str | None = None) -> StringFeatures:
    """Prepare a string; the last 1,000 strings that are not long are cached.

    Args:
        folded: Its folded form, where the caller has it.
    """
    return _cached(text, folded) if len(text) <= _LONG else new_string_features(text, folded)


def new_string_features(text: str, folded: str | None) -> StringFeatures:
    """`string_features` without the cache: names that a search finds rarely come again."""
    folded = fold_name(text) if folded is None else folded
    core = fold_name(_BRACKETS.sub("", text)) if "(" in text or "[" in text else folded
    words = folded.split()
    variants = variant_words(words)
    content = tuple([word for word in variants if word not in SMALL_WORDS]) or tuple(variants)
    if _IN_CAPITALS.match(text) and words[0] in SMALL_WORDS and not text.isupper():
        content = (words[0], *content)  # no title and no article: `DR Congo`, `LA Lakers`
    if len(words) > 1 and len(words[-1]) == 1 and words[-1] in SMALL_WORDS:
        content += (words[-1],)  # what joins two words is no last one: neuropeptide Y
    # This runs for every name that a search finds: what most names lack is excluded by one test.
    is_plain = _NOT_PLAIN.search(folded) is None
    numbers = _NONE if is_plain else frozenset([word for word in words if word.isdigit()]) or _NONE
    word_set = frozenset(words)
    return StringFeatures(
        text,
        folded,
        core or folded,
        folded.replace(" ", "") if is_plain else spelling_key(folded),
        " ".join(sorted(content)) if len(content) > 1 else content[0] if content else "",
        content,
        word_set if content == tuple(words) else frozenset(content),
        words[0] if words else "",
        word_set,
        numbers,
        _NONE if is_plain and _CAPITAL.search(text) is None else _codes(text, content, numbers),
        _initials(_upright(text, words)) if len(words) > 1 else _NONE,
    )


_cached = lru_cache(maxsize=1000)(new_string_features)  # not larger: garbage collection visits four objects per entry


def _upright(text: str, words: Sequence[str]) -> Sequence[str]:
    """Words in their order, which a comma has inverted where the last word is a small one: `Korea, Republic of`."""
    if words[-1] not in _SMALL or text.count(",") != 1:
        return words
    n_first = len(fold_name(text.partition(",")[0]).split())
    return [*words[n_first:], *words[:n_first]]


def _initials(words: Sequence[str]) -> frozenset[str]:
    """First letters of the words, with and without small words, where there are as many as an acronym has."""
    if _SMALL.isdisjoint(words):
        return frozenset(("".join([word[0] for word in words]),)) if len(words) in _ACRONYM else _NONE
    found = ("".join([word[0] for word in words]), "".join([word[0] for word in words if word not in _SMALL]))
    return frozenset([one for one in found if len(one) in _ACRONYM])


def _codes(text: str, content: Sequence[str], numbers: frozenset[str]) -> frozenset[str]:
    """The words of `content` that are numbers or single letters, or are part of a short word in capitals."""
    found = [word for word in content if len(word) == 1 and not word.isdigit()]
    if numbers:
        found += numbers.intersection(content)
    # In a text of capitals alone they say nothing, unless it is a single short word.
    if not text.islower() and (len(text) <= _LONGEST_CODE or not text.isupper()):
        for code in _CODE.findall(text):
            found += variant_words(fold_name(code).split())
    return frozenset(found) if found else _NONE


def unshared(a: Sequence[str], b: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words that each side has more often than the other: `protein kinase kinase` has one more."""
    ours, theirs = [], list(b)
    for word in a:
        if word in theirs:
            theirs.remove(word)
        else:
            ours.append(word)
    return ours, theirs


def are_initials(short: Sequence[str], long: Sequence[str]) -> bool:
    """Whether one word is the initials of at least two others."""
    return len(short) == 1 and len(long) > 1 and short[0] == "".join([word[0] for word in long])


def equal_core(mention: StringFeatures, name: StringFeatures) -> float:
    """Whether the two are equal except for brackets, spaces and everything that `fold_name` removes."""
    if not mention.joined or not name.joined:
        return 0.0
    same = mention.joined == name.joined or name.folded == mention.core or mention.folded == name.core
    return float(same or mention.core == name.core)


def missing_numbers(mention: StringFeatures, name: StringFeatures) -> float:
    """Whether the mention has a number that the name does not have."""
    return float(bool(mention.numbers - name.numbers))


def extra_numbers(mention: StringFeatures, name: StringFeatures) -> float:
    """Whether the name has a number that the mention does not have."""
    return float(bool(name.numbers - mention.numbers))


def equal_numbers(mention: StringFeatures, name: StringFeatures) -> float:
    """Whether both have the same numbers, at least one."""
    return float(bool(mention.numbers) and mention.numbers == name.numbers)


def is_acronym(mention: StringFeatures, name: StringFeatures) -> float:
    """Whether one side is the initials of the other, or has them as a word."""
    return float(_has_initials(mention, name) or _has_initials(name, mention))


def _has_initials(short: StringFeatures, long: StringFeatures) -> bool:
    """Whether a string is the initials of a longer one, or has at least three of them as a word."""
    if not long.initials:
        return False
    if short.joined in long.initials:
        return True
    return not long.initials.isdisjoint(short.words) and any(len(i) > 2 for i in long.initials & short.words)


def equal_first_word(mention: StringFeatures, name: StringFeatures) -> float:
    """Whether both start with the same word."""
    return float(bool(mention.first) and mention.first == name.first)
