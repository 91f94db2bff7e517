"""What two names say of each other beside their words: numbers, words cut short, parts between commas, opposites.

Route 66 / Route 67                                each has a number that the other lacks
N. Engl. J. Med. / New England Journal of Medicine every word is cut short
School of Law, Yale University / Yale University   a part between commas is the name
left lung / right lung, hypertension / hypotension they exclude each other by a word
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise
from typing import NamedTuple

from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.lexical.words import SMALL_WORDS, any_exclude, variant_words, with_prefixes
from pearl_qdrant.linking.ranking.string_features import StringFeatures, unshared

_BRACKETS = re.compile(r"[(\[]([^()\[\]]*)[)\]]")
_DIGITS = re.compile(r"\d+")
_CODE = re.compile(r"(?=[a-z]*\d)(?=\d*[a-z])[a-z0-9]{4,}|\d{5,}")
"""A product number, a gene: letters and digits, or five digits."""

_SMALL = SMALL_WORDS.union("the a an and in di die e las los do da".split())
"""Words that names in cut words leave out, legal forms among them."""

MOST_WORDS = 12  # words of a name beyond which only sets of words are compared
_NONE: frozenset[str] = frozenset()

_FINAL_ROMAN = {" V": "5", " X": "10"}
"""Letters that are numbers for another name that has one there: `Fund V`, `Fund IV`; for the rest they stay letters."""


class NameParts(NamedTuple):
    """A name taken apart."""

    outside: str  # the text outside brackets
    folded: str  # the same, folded
    words: tuple[str, ...]  # folded words outside brackets, the part after a comma first where there is one
    normal: tuple[str, ...]  # the same words in their normal spelling and order, without small ones
    bracket: frozenset[str]  # folded words in brackets
    numbers: frozenset[str]  # the numbers outside brackets, also a V or X at the end


def name_parts(name: StringFeatures) -> NameParts:
    """Take a name apart; the last few are kept, as one mention is compared with many names."""
    return _name_parts(name.text, name.folded, name.content)


@lru_cache(maxsize=100)
def _name_parts(text: str, folded: str, content: tuple[str, ...]) -> NameParts:
    bracket, outside = _NONE, text
    if "(" in text or "[" in text:
        stripped = _BRACKETS.sub(" ", text)
        if stripped.strip():
            bracket = frozenset(fold_name(" ".join(_BRACKETS.findall(text))).split())
            outside, folded = stripped, fold_name(stripped)
            content = tuple([word for word in variant_words(folded.split()) if word not in SMALL_WORDS])
    words = tuple(folded.split()[:MOST_WORDS])
    if outside.count(",") == 1:
        first, _, rest = outside.partition(",")
        inverted = tuple((fold_name(rest) + " " + fold_name(first)).split()[:MOST_WORDS])
        words = inverted if len(inverted) == len(words) else words
    numbers = numbers_of(f"{folded} {_FINAL_ROMAN.get(outside[-2:], '')}")
    return NameParts(outside, folded, words, content[:MOST_WORDS], bracket, numbers)


def numbers_of(folded: str) -> frozenset[str]:
    """The numbers of a folded text, Roman ones among them."""
    return frozenset([number.lstrip("0") or "0" for number in _DIGITS.findall(folded)])


def codes_of(text: str) -> frozenset[str]:
    """The codes of letters and digits of a text outside brackets."""
    found = [fold_name(word).replace(" ", "") for word in re.split(r"[\s,;/()\[\]]+", text.casefold()) if word]
    return frozenset([code for word in found for code in _CODE.findall(word)])


def number_differs(mention: StringFeatures, name: StringFeatures) -> float:
    """Whether each has a number outside brackets that the other lacks, and no code is shared; or equal numbers belong
    to other words: `A2 LT4`, `A4 LT2`.
    """
    a, b = name_parts(mention), name_parts(name)
    ours, theirs = a.numbers, b.numbers
    if a.folded == b.folded:
        return 0.0
    if ours <= theirs or theirs <= ours:
        return float(len(ours) > 1 and ours == theirs and _are_swapped(a.folded.split(), b.folded.split()))
    return float(codes_of(a.outside).isdisjoint(codes_of(b.outside)))


def _are_swapped(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    """Whether numbers stand behind the same words, and not the same number behind each."""
    one, other = ({a: b for a, b in pairwise(words) if b.isdigit() and not a.isdigit()} for words in (ours, theirs))
    return one.keys() == other.keys() and one != other and sorted(one.values()) == sorted(other.values())


def are_cut_words(mention: StringFeatures, name: StringFeatures) -> float:
    """Whether every word of one side is a word of the other in its place, cut short or whole."""
    a, b = name_parts(mention), name_parts(name)
    if not _may_be_cut(a, b):
        return 0.0
    # A code has no words that can be cut short: `SK1` is not `SPHK1`.
    is_cut = not name.text.isalnum() and are_cut(a.words, b.words)
    return float(is_cut or (not mention.text.isalnum() and are_cut(b.words, a.words)))


def equal_part(mention: StringFeatures, name: StringFeatures) -> float:
    """Whether a part of the mention between commas or semicolons, of at least two words, is the name, as it stands or
    cut short.
    """
    if "," not in mention.text and ";" not in mention.text:
        return 0.0
    b = name_parts(name)
    return float(any(part == b.normal or are_cut(part, b.words) for part in _list_parts(mention.text)))


@lru_cache(maxsize=100)
def _list_parts(text: str) -> tuple[tuple[str, ...], ...]:
    """Words of the parts of a text between commas and semicolons, as `NameParts.normal`; of those with two or more."""
    parts = [variant_words(fold_name(part).split()) for part in re.split("[,;]", text)]
    kept = [tuple([word for word in part if word not in SMALL_WORDS]) for part in parts]
    return tuple([part for part in kept if len(part) > 1])


def _may_be_cut(a: NameParts, b: NameParts) -> bool:
    """Whether the first words have the same first letter, with or without small ones: a cheap test."""
    if a.words and b.words and a.words[0][0] == b.words[0][0]:
        return True
    return bool(a.normal and b.normal) and a.normal[0][0] == b.normal[0][0]


def are_cut(a: Sequence[str], b: Sequence[str]) -> bool:
    """Whether one side is the other with its words cut short, with or without small words and legal forms: the `E.` of
    `E. coli` is none of these, the `e` of Italian names is.
    """
    if _is_cut(a, b):
        return True
    if _SMALL.isdisjoint(a) and _SMALL.isdisjoint(b):
        return False
    kept, other = ([word for word in words if word not in _SMALL] for words in (a, b))
    return _is_cut(kept, other)


def _is_cut(short: Sequence[str], long: Sequence[str]) -> bool:
    """Whether the words of one side, two or more, are those of the other, cut short, at least one of them (ISO 4). A
    word that stands alone, but for small ones, begins as the other does: `Bund AG` is not `Baumund AG`.
    """
    if len(short) != len(long) or len(short) < 2:
        return False
    is_cut, has_others = False, sum(word not in _SMALL for word in short) > 1
    for a, b in zip(short, long, strict=True):
        if a == b:
            continue
        may_lack = (has_others or a in _SMALL) and 1 < len(a) < len(b)
        if a[0] != b[0] or a.isdigit() or not (b.startswith(a) or (may_lack and is_within(a, b))):
            return False
        is_cut = True
    return is_cut


def is_within(short: str, long: str) -> bool:
    """Whether the letters of one word are in another, in their order."""
    letters = iter(long)
    return all(letter in letters for letter in short)


_NEGATING = frozenset("not no non without anti former ex".split())  # words with which a name is another thing
_LONGEST_ACRONYM = 5  # of 107 pairs of such words in sets that others made 2 meant the same
_NO_GROUP: frozenset[int] = frozenset()


@lru_cache(maxsize=1)
def _exclusive() -> tuple[tuple[frozenset[str], ...], dict[str, frozenset[int]]]:
    """Groups of words that exclude each other, `exclusive_words.txt`: names that have two of one group are two things.
    And the numbers of the groups of each word.
    """
    lines = files("pearl_qdrant.lexical").joinpath("exclusive_words.txt").read_text("utf-8").split("\n")
    some = [group.split() for line in lines for group in line.split("/") if group]
    groups = tuple(frozenset(group) | frozenset(variant_words(group)) for group in some)
    of_word = {
        word: frozenset(i for i, group in enumerate(groups) if word in group) for word in frozenset().union(*groups)
    }
    return groups, of_word


def are_other_acronyms(mention: StringFeatures, name: StringFeatures) -> bool:
    """Whether two different names are short words in capitals, which few slips are in: `CNO`, `CCNO`."""
    a, b = mention.text, name.text
    if max(len(a), len(b)) > _LONGEST_ACRONYM or mention.folded == name.folded:
        return False
    return a.isalpha() and b.isalpha() and a.isupper() and b.isupper()


def are_opposites(mention: StringFeatures, name: StringFeatures) -> bool:
    """Whether a word of one excludes a word of the other, which that one lacks; or each has another single letter, or
    one alone has a negation.
    """
    a, b = name_parts(mention).words, name_parts(name).words
    if a == b:
        return False
    groups, of_word = _exclusive()
    for number in _groups_of(a, of_word) & _groups_of(b, of_word):
        mine, other = groups[number].intersection(a), groups[number].intersection(b)
        if mine - other and other - mine:
            return True
    ours, theirs = unshared(_prefixed(a), _prefixed(b))
    if any_exclude(ours, theirs) or (a and b and _are_letters(ours, theirs, a, b)):
        return True
    return (len(ours) < 2 or len(theirs) < 2) and not (_NEGATING.isdisjoint(ours) and _NEGATING.isdisjoint(theirs))


@lru_cache(maxsize=100)
def _prefixed(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(with_prefixes(words))


def _groups_of(words: Sequence[str], of_word: dict[str, frozenset[int]]) -> frozenset[int]:
    if of_word.keys().isdisjoint(words):
        return _NO_GROUP
    return frozenset().union(*(of_word.get(word, _NO_GROUP) for word in words))


def _are_letters(ours: Sequence[str], theirs: Sequence[str], a: Sequence[str], b: Sequence[str]) -> bool:
    """Whether two names differ in a single letter, which tells them apart: `hepatitis A`; not the article."""
    if len(ours) != 1 or len(theirs) != 1 or a[0] == "a" or b[0] == "a":
        return False
    (mine,), (other,) = ours, theirs
    return len(mine) == len(other) == 1 and mine.isalpha() and other.isalpha()


def opposite(mention: StringFeatures, name: StringFeatures) -> float:
    """Whether the names exclude each other: as opposites, or as other acronyms. Names of nothing in common do not."""
    if are_other_acronyms(mention, name):
        return 1.0
    if mention.content_set.isdisjoint(name.content_set) and not _may_share_a_stem(mention, name):
        return 0.0  # most candidates
    return float(are_opposites(mention, name))


def _may_share_a_stem(mention: StringFeatures, name: StringFeatures) -> bool:
    ours, theirs = mention.content[:1], name.content[:1]
    has_same_start = bool(ours and theirs) and ours[0][:1] == theirs[0][:1]
    return has_same_start or mention.joined[-4:] == name.joined[-4:]
