"""Features of what two names do not share, by sort: brackets, numbers, opposites, first names, cut words.

    Libido (1974 film) / Libido (1973 film)            brackets differ
    South Star Shipping / North Star Shipping          opposites
    B. Mathur / Abhishek Mathur                        a first name that contradicts
    N. Engl. J. Med. / New England Journal of Medicine every word is cut short
    Stripe Press / Stripe                              a word that makes another thing of a name
    School of Law, Yale University / Yale University   a part between commas is the name

Each feature is a number in [0, 1].
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from rapidfuzz.distance import JaroWinkler

from pearl_qdrant.lexical.keys import skeleton
from pearl_qdrant.lexical.words import word_rarity
from pearl_qdrant.linking.ranking.name_parts import (
    are_cut_words,
    codes_of,
    equal_part,
    name_parts,
    numbers_of,
    numbers_outside,
)
from pearl_qdrant.linking.ranking.opposites import are_opposites, are_other_acronyms
from pearl_qdrant.linking.ranking.string_features import StringFeatures, string_features

_BRACKETS = re.compile(r"[(\[]([^()\[\]]*)[)\]]")
_DIGITS = re.compile(r"\d+")
_SEQUELS = frozenset("1 2 3 4 5 6 7 8 9 ii iii iv vi vii viii ix".split())
_GENERATIONS = frozenset("jr junior ii iii iv".split())
TITLES = frozenset("mr mrs ms dr prof sir lady dame lord saint st president king queen".split())

OTHER_PLACE = frozenset(
    "new north south east west northern southern eastern western upper lower inner outer central".split()
)
"""Words before the name of a place that make another place, though a few places have such an alias."""

_MOST_WORDS = 12  # words of a name beyond which only sets of words are compared
_HARMLESS = 0.2  # `added_same` from which a word more is mostly the same thing: `Inc.`, `FC`
_SMALL_DIGITS = 3
_SOUNDS_OF_A_NAME = 3  # consonants from which two words of the same sounds are one name
_SLIP = 0.88  # Jaro-Winkler similarity from which two first names are spellings of one


class NameDifferences(NamedTuple):
    """What a mention and a name do not share; each in [0, 1]."""

    bracket_differs: float = 0.0  # both have brackets, with other words in them
    bracket_number: float = 0.0  # both have brackets, with another number in them
    bracket_added: float = 0.0  # only the mention has brackets, and what they say is not in the name
    bracket_missing: float = 0.0  # only the name has brackets
    number_differs: float = 0.0  # each has a number that the other lacks, outside brackets or anywhere
    # one has a number under 100 outside brackets, and the other has none: `syndrome 3`, `syndrome`
    small_number: float = 0.0
    sequel: float = 0.0  # only the mention has a number up to 9 at the end, in digits or Roman: `Scary Movie 5`
    code_shared: float = 0.0  # both have a code of letters and digits
    code_differs: float = 0.0  # both have codes, and none is shared
    # each has a word that excludes one of the other (`left`, `right`; `hypertension`, `hypotension`), or another
    # single letter or acronym, or one alone has a negation.
    opposite: float = 0.0
    first_name_differs: float = 0.0  # the same family name, and first names that contradict each other
    last_name_differs: float = 0.0  # the same first name, and family names that are no spellings of one
    initials_fit: float = 0.0  # the same family name, and initials of the first names
    generation_differs: float = 0.0  # `Jr.` or `II` on one side alone, or another one
    cut_words: float = 0.0  # every word of one side is a word of the other in its place, cut short or whole
    # only the mention has further words: how much they make another thing of a name, or how little
    # (`lexical/added_words.tsv`)
    added_apart: float = 0.0
    added_same: float = 0.0
    missing_same: float = 0.0  # the latter of words that only the name has
    # only the mention has further words, and the last one is an English word with a capital: `Stripe Press`, `Camp
    # Mountain Magazine`
    added_head: float = 0.0
    # a part of the mention between commas or semicolons, of at least two words, is the name, as it stands or cut
    # short
    equal_part: float = 0.0
    # only the mention has further words, one of them after the name of a person; no feature of candidates.
    family_name_differs: float = 0.0


_NO_DIFFERENCE = NameDifferences()
_OTHER_ACRONYM = NameDifferences(opposite=1.0)


class _Parts(NamedTuple):
    """A name taken apart."""

    words: tuple[str, ...]  # these and `normal` as in `linking.ranking.name_parts`
    normal: tuple[str, ...]
    bracket: frozenset[str]  # folded words in brackets
    # numbers outside brackets, also Roman ones and a V or X at the end; bracket_numbers: digits in brackets.
    numbers: frozenset[str]
    bracket_numbers: frozenset[str]
    codes: frozenset[str]  # codes of letters and digits


_NONE: frozenset[str] = frozenset()


@lru_cache(maxsize=100)
def _parts(name: StringFeatures) -> _Parts:
    """Take a name apart."""
    text, (outside, _, words, normal, bracket) = name.text, (parts := name_parts(name))
    has_digits = _DIGITS.search(text) is not None
    return _Parts(
        words,
        normal,
        bracket,
        numbers_outside(parts),
        frozenset().union(*(numbers_of(word) for word in bracket)) if has_digits and bracket else _NONE,
        codes_of(outside) if has_digits else _NONE,
    )


@lru_cache(maxsize=1)
def _added_words() -> dict[tuple[str, bool], float]:
    rows = files("pearl_qdrant.lexical").joinpath("added_words.tsv").read_text("utf-8").splitlines()[1:]
    cells = [row.split("\t") for row in rows]
    found = {(word, place == "after"): float(value) / 4 for word, place, value in cells}
    return found | dict.fromkeys([(word, False) for word in OTHER_PLACE], -1.0)


def name_differences(
    mention: StringFeatures, name: StringFeatures, *, canonical_name: str = "", is_person: bool
) -> NameDifferences:
    """What a mention and a name do not share.

    Args:
        canonical_name: That of the entity; what it has in brackets tells the entity from others, also by other names.
        is_person: Whether the name is that of a person, by its type.
    """
    if are_other_acronyms(mention, name):
        return _OTHER_ACRONYM
    if mention.folded == name.folded:
        return _NO_DIFFERENCE
    a, b = _parts(mention), _parts(name)
    if a.bracket and not b.bracket and "(" in canonical_name:
        parts = _parts(string_features(canonical_name))
        b = b._replace(bracket=parts.bracket, bracket_numbers=parts.bracket_numbers)
    if a == b:
        return _NO_DIFFERENCE
    shared = set(a.normal).intersection(b.normal)
    further = _further_words(a, b, shared, is_person) if shared else _NO_FURTHER_WORDS
    brackets = _brackets(a, b) if a.bracket or b.bracket else _ZEROS
    numbers = _numbers_and_codes(a, b) if a.numbers or b.numbers or a.codes else _ZEROS
    is_same, is_opposite = not shared or a.words == b.words, are_opposites(mention, name)
    is_cut = 0.0 if is_opposite else are_cut_words(mention, name)
    has_part = equal_part(mention, name)
    if not (shared or is_opposite or is_cut or has_part) and brackets is numbers is _ZEROS and b.words:
        return _NO_DIFFERENCE
    return NameDifferences(
        *brackets,
        *numbers[:2],
        float(a.words[:-1] == b.words and _is_sequel(a.words[1:], mention.text)),
        *numbers[2:],
        float(is_opposite),
        *(_ZEROS if is_same else _persons(a.words, b.words, is_person)),
        is_cut,
        *further[:-1],
        has_part,
        further[-1],
    )


_ZEROS = (0.0, 0.0, 0.0, 0.0)
_NO_FURTHER_WORDS = (0.0, 0.0, 0.0, 0.0, 0.0)


def _brackets(a: _Parts, b: _Parts) -> tuple[float, float, float, float]:
    """`bracket_differs`, `bracket_number`, `bracket_added`, `bracket_missing`."""
    return (
        float(a.bracket != b.bracket and bool(a.bracket and b.bracket) and _other_words(a.bracket, b.bracket)),
        float(bool(a.bracket_numbers and b.bracket_numbers) and a.bracket_numbers != b.bracket_numbers),
        float(bool(a.bracket) and not b.bracket and not _says(a.bracket, b.words)),
        float(bool(b.bracket) and not a.bracket),
    )


def _numbers_and_codes(a: _Parts, b: _Parts) -> tuple[float, float, float, float]:
    """`number_differs`, `small_number`, `code_shared`, `code_differs`."""
    if not a.codes.isdisjoint(b.codes):
        return 0.0, 0.0, 1.0, 0.0
    has_small = any(len(number) < _SMALL_DIGITS for number in a.numbers or b.numbers)
    return (
        float(not a.numbers <= b.numbers and not b.numbers <= a.numbers),
        float(has_small and bool(a.numbers) != bool(b.numbers)),
        0.0,
        float(bool(a.codes and b.codes)),
    )


def _is_sequel(words: Sequence[str], text: str) -> bool:
    """Whether the last of some words is a number up to 9: `Rocky II`, not `Schalke 04`."""
    return bool(words) and words[-1] in _SEQUELS and not text.endswith(f"0{words[-1]}")


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


def _further_words(a: _Parts, b: _Parts, shared: set[str], is_person: bool) -> tuple[float, float, float, float, float]:
    """`added_apart`, ..., `added_head`, `family_name_differs`."""
    n_ours, n_theirs = len(a.normal) - len(shared), len(b.normal) - len(shared)
    if n_theirs > 0 >= n_ours:
        theirs = _values(b.normal, shared)
        return (0.0, 0.0, max(0.0, min(theirs)), 0.0, 0.0) if theirs else _NO_FURTHER_WORDS
    if n_theirs > 0 or n_ours <= 0 or not (ours := _values(a.normal, shared)):
        return _NO_FURTHER_WORDS
    same, last = max(0.0, min(ours)), a.words[-1]
    is_head = a.normal[-1] not in shared and same < _HARMLESS and word_rarity(a.normal[-1]) < 1.0
    is_after = is_person and last not in b.words and last not in _GENERATIONS
    return max(0.0, -min(ours)), same, 0.0, float(is_head), float(is_after)


def _values(words: Sequence[str], shared: set[str]) -> list[float]:
    """What each further word says, in [-1, 1]: less than 0 if it makes another thing of a name."""
    table = _added_words()
    known = [i for i, word in enumerate(words) if word in shared]
    first, last = known[0], known[-1]
    more, is_after = (words[last + 1 :], True) if not first else (words[:first], False)
    if 1 < len(more) < 4 and len(more) + len(known) == len(words) and all(len(word) > 1 for word in more):
        value = table.get(("".join([word[0] for word in more]), is_after), 0.0)
        if value >= _HARMLESS:  # `Football Club` is what `FC` is
            return [min(1.0, value)]
    values = []
    for i, word in enumerate(words):
        if word not in shared:  # between two shared words it is mostly a middle name
            value = 0.0 if first < i < last else table.get((word, i > last), 0.0)
            values.append(min(1.0, max(-1.0, value)))
    return values


def _persons(a: Sequence[str], b: Sequence[str], is_person: bool) -> tuple[float, float, float, float]:
    """`first_name_differs`, `last_name_differs`, `initials_fit`, `generation_differs`."""
    mine, of_mine = _without_generation(a)
    other, of_other = _without_generation(b)
    generation = float(of_mine != of_other) if of_mine or of_other else 0.0
    if not (2 <= len(mine) <= 4 and 2 <= len(other) <= 4):
        return 0.0, 0.0, 0.0, generation
    if mine[-1] != other[-1]:
        # The family name first: `Trump D`.
        if mine[0] == other[-1] and len(mine[-1]) <= 2:
            mine = [*mine[1:], mine[0]]
        else:
            is_other = is_person and _is_one_name(mine[0], other[0]) and not _is_one_name(mine[-1], other[-1])
            return 0.0, float(is_other and not _sound_alike(mine[-1], other[-1])), 0.0, generation
    given, of_name = mine[:-1], other[:-1]
    if sorted(given) == sorted(of_name):
        return 0.0, 0.0, 0.0, generation
    if _fit(given, of_name):
        has_initials = any(len(word) == 1 for word in (*given, *of_name)) or len(given[0]) == 2
        return 0.0, 0.0, float(has_initials and not mine[-1].isdigit()), generation
    return float(is_person), 0.0, 0.0, generation


def _without_generation(words: Sequence[str]) -> tuple[list[str], str]:
    """Words without titles and generation; and the generation, which is none for `Sr.`: most leave that out."""
    kept = [word for word in words if word not in TITLES] if len(words) > 1 else list(words)
    if len(kept) > 2 and kept[-1] in ("sr", "senior"):
        return kept[:-1], ""
    if len(kept) > 2 and kept[-1] in _GENERATIONS:
        return kept[:-1], kept[-1][:2]
    return kept, ""


NICKNAMES: dict[str, str] = {
    short: long
    for names in (
        "james jim jimmy jamie/william bill billy will willie liam/robert bob bobby rob robbie/richard dick rick rich/"
        "john jack johnny jon/edward ed eddie ted ned/henry harry hank/margaret peggy maggie meg/alexander alex alec "
        "alick sandy sasha/elizabeth liz beth betty eliza lizzie/charles charlie chuck/francis frank fran/anthony tony/"
        "thomas tom tommy/michael mike mick/patrick pat paddy/katherine kate kathy katie/daniel dan danny/david dave/"
        "joseph joe joey/samuel sam sammy/benjamin ben benny/nicholas nick nicky/christopher chris kit/matthew matt/"
        "andrew andy drew/lawrence larry/gerald jerry gerry/ronald ron ronnie/donald don donnie/stephen steve stevie/"
        "kenneth ken kenny/susan sue suzy/deborah debbie/barbara barb/rebecca becky/jennifer jenny jen/timothy tim/"
        "gregory greg/philip phil/frederick fred freddie/albert al bert/walter walt/leonard len lenny/peter pete"
    ).split("/")
    for long, *shorts in (names.split(),)
    for short in shorts
}
"""Short forms of first names; of those of several names, one."""

FIRST_NAMES = frozenset((*NICKNAMES, *NICKNAMES.values()))  # the first names of this list


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


def _sound_alike(a: str, b: str) -> bool:
    """Whether two words may be one in two transliterations: `qadhafi`, `gaddafi`."""
    of_a = skeleton(a)
    return len(of_a) >= _SOUNDS_OF_A_NAME and of_a == skeleton(b)
