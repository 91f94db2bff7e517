"""What two names do not share that tells two things apart: brackets, numbers, opposites, first names.

Libido (1974 film) / Libido (1973 film)            brackets differ
South Star Shipping / North Star Shipping          opposites
B. Mathur / Abhishek Mathur                        a first name that contradicts
Hurt / Hurt (Acoustic)                             brackets that only one has
Ada Berg Jr. / Ada Berg the Elder                  generations differ
Paul Richter / Paula Richter                       each has another known name
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from rapidfuzz.distance import JaroWinkler

from pearl_qdrant.lexical.first_names import NICKNAMES
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.lexical.words import without_legal_forms
from pearl_qdrant.linking.ranking.name_parts import (
    are_opposites,
    are_other_acronyms,
    codes_of,
    name_parts,
    numbers_of,
)
from pearl_qdrant.linking.ranking.string_features import StringFeatures

_DIGITS = re.compile(r"\d+")

YOUNGER, ELDER = "jr", "sr"
GENERATIONS = {
    **dict.fromkeys("jr jnr junior fils filho hijo".split(), YOUNGER),
    **dict.fromkeys("the younger,der jungere".split(","), YOUNGER),
    **dict.fromkeys("sr snr senior pere".split(), ELDER),
    **dict.fromkeys("the elder,der altere".split(","), ELDER),
}
"""What stands after the folded name of a person of one of several generations; numbers (`II`) are numbers."""

_UMLAUTS = str.maketrans(dict(zip("äöüøåÄÖÜØÅ", "ae oe ue oe aa Ae Oe Ue Oe Aa".split(), strict=True)))
TITLES = frozenset("mr mrs ms dr prof sir lady dame lord saint st president king queen".split())

OTHER_PLACE = frozenset(
    "new north south east west northern southern eastern western upper lower inner outer central".split()
)
"""Words before the name of a place that make another place, though a few places have such an alias."""

_SLIP = 0.88  # Jaro-Winkler similarity from which two first names are spellings of one


class NameDifferences(NamedTuple):
    """What two names do not share."""

    bracket_differs: bool = False  # both have brackets, with other words in them
    bracket_number: bool = False  # both have brackets, with another number in them
    bracket_added: bool = False  # only one has brackets, and what they say is not in the other name
    number_differs: bool = False  # each has a number that the other lacks, outside brackets or anywhere
    code_differs: bool = False  # both have codes of letters and digits, and none is shared
    # each has a word that excludes one of the other (`left`, `right`; `hypertension`, `hypotension`), or another
    # single letter or acronym, or one alone has a negation.
    opposite: bool = False
    first_name_differs: bool = False  # the same family name, and first names that contradict each other
    generation_differs: bool = False  # `Jr.` on one side alone, or another one


NO_DIFFERENCE = NameDifferences()
_OTHER_ACRONYM = NameDifferences(opposite=True)


class _Parts(NamedTuple):
    """A name taken apart."""

    words: tuple[str, ...]  # as in `linking.ranking.name_parts`
    bracket: frozenset[str]  # folded words in brackets
    # numbers outside brackets, also Roman ones and a V or X at the end; bracket_numbers: digits in brackets.
    numbers: frozenset[str]
    bracket_numbers: frozenset[str]
    codes: frozenset[str]  # codes of letters and digits


_NONE: frozenset[str] = frozenset()


@lru_cache(maxsize=100)
def _parts(name: StringFeatures) -> _Parts:
    """Take a name apart."""
    text, (outside, _, words, _, bracket, numbers) = name.text, name_parts(name)
    has_digits = _DIGITS.search(text) is not None
    return _Parts(
        words,
        bracket,
        numbers,
        frozenset().union(*(numbers_of(word) for word in bracket)) if has_digits and bracket else _NONE,
        codes_of(outside) if has_digits else _NONE,
    )


def name_differences(one: StringFeatures, two: StringFeatures, *, is_person: bool) -> NameDifferences:
    """What two names do not share, in either order; `is_person`: whether they are names of persons."""
    if are_other_acronyms(one, two) and with_umlauts(one) != with_umlauts(two):
        return _OTHER_ACRONYM
    if one.folded == two.folded:
        return NO_DIFFERENCE
    a, b = _parts(one), _parts(two)
    if a == b:
        return NO_DIFFERENCE
    is_disjoint = not set(a.words).intersection(b.words)
    is_shared_code = not a.codes.isdisjoint(b.codes)
    first_name, generation = (False, False) if is_disjoint or a.words == b.words else _persons(a.words, b.words)
    brackets = a.bracket or b.bracket
    return NameDifferences(
        a.bracket != b.bracket and bool(a.bracket and b.bracket) and _other_words(a.bracket, b.bracket),
        bool(a.bracket_numbers and b.bracket_numbers) and a.bracket_numbers != b.bracket_numbers,
        bool(a.bracket) != bool(b.bracket) and not _says(brackets, b.words if a.bracket else a.words),
        not is_shared_code and not a.numbers <= b.numbers and not b.numbers <= a.numbers,
        not is_shared_code and bool(a.codes and b.codes),
        bool(are_opposites(one, two) or are_opposites(two, one)),
        first_name and is_person,
        generation,
    )


def _other_words(a: frozenset[str], b: frozenset[str]) -> bool:
    """Whether no word in brackets is one of the other brackets, nor its initials, nor like it."""
    mine, other = [word for word in a if not word.isdigit()], [word for word in b if not word.isdigit()]
    if not mine or not other or not a.isdisjoint(b) or _are_initials(mine, other) or _are_initials(other, mine):
        return False
    return not any(JaroWinkler.similarity(x, y) >= _SLIP for x in mine for y in other)


def _are_initials(short: Sequence[str], long: Sequence[str]) -> bool:
    return len(short) == 1 and sorted(short[0]) == sorted(word[0] for word in long)


def _says(bracket: frozenset[str], words: Sequence[str]) -> bool:
    """Whether brackets repeat the name: its words, or its initials."""
    initials = "".join([word[0] for word in words])
    return bracket <= set(words) or "".join(bracket) == initials


def _persons(a: Sequence[str], b: Sequence[str]) -> tuple[bool, bool]:
    """Whether first names, and whether generations differ."""
    (a, of_mine), (b, of_other) = split_generation(a), split_generation(b)
    # Most leave out `Sr.`: a person is asked (`model.doubt`).
    generation = of_mine != of_other and YOUNGER in (of_mine, of_other)
    mine, other = _without_titles(a), _without_titles(b)
    if not (2 <= len(mine) <= 4 and 2 <= len(other) <= 4):
        return False, generation
    if mine[-1] != other[-1]:
        mine, other = (mine, other) if len(mine[-1]) <= 2 else (other, mine)
        if mine[0] != other[-1] or len(mine[-1]) > 2:
            return False, generation
        mine = [*mine[1:], mine[0]]  # the family name first: `Trump D`
    given, of_name = mine[:-1], other[:-1]
    return sorted(given) != sorted(of_name) and not _fit(given, of_name), generation


def _without_titles(words: Sequence[str]) -> list[str]:
    return [word for word in words if word not in TITLES] if len(words) > 1 else list(words)


def split_generation(words: Sequence[str], least: int = 2) -> tuple[Sequence[str], str]:
    """The folded words of a name without a generation at the end, at least some words; and the generation, or ""."""
    for n in (2, 1):
        found = GENERATIONS.get(" ".join(words[-n:]), "")
        if found and len(words) - n >= (least if n == 1 else 1):
            return words[:-n], found
    return words, ""


def generation_of(name: StringFeatures) -> str:
    """The generation that a name says, also before its end (`Ada Berg Jr. Day`), or ""."""
    words = name_parts(name).words
    inner = (GENERATIONS[word] for word in words[1:] if word in _ALWAYS_GENERATIONS)
    return split_generation(words, 1)[1] or next(inner, "")


_ALWAYS_GENERATIONS = frozenset("jr sr junior".split())


def with_umlauts(strings: StringFeatures) -> str:
    """The name with umlauts as two letters, no spaces and legal forms: `Köln`, `Koeln`; `OpenAI`, `Open AI Inc`."""
    return _with_umlauts(strings.text, strings.folded)


@lru_cache(maxsize=10_000)
def _with_umlauts(text: str, folded: str) -> str:
    folded = folded if text.isascii() else fold_name(text.translate(_UMLAUTS))
    return "".join(without_legal_forms(folded.split()))


def _fit(a: Sequence[str], b: Sequence[str]) -> bool:
    """Whether first names may be those of one person: equal, initials, short forms, some left out."""
    if len(a) == 1 and len(a[0]) == len(b) > 1 and a[0] == "".join([word[0] for word in b]):
        return True
    if len(b) == 1 and len(b[0]) == len(a) > 1 and b[0] == "".join([word[0] for word in a]):
        return True
    short, long = (a, b) if len(a) <= len(b) else (b, a)
    if len(short) == 1 and any(short[0] == word for word in long):
        return True
    return all(_is_one_name(x, y) for x, y in zip(short, long, strict=False))


def _is_one_name(a: str, b: str) -> bool:
    if a.startswith(b) or b.startswith(a):
        return True
    if len(a) == 1 or len(b) == 1:
        return False
    if NICKNAMES.get(a, a) == NICKNAMES.get(b, b):
        return True
    return JaroWinkler.similarity(a, b) >= _SLIP
