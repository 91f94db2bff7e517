"""Whether two names exclude each other by a word: `left lung`, `right lung`; `hypertension`, `hypotension`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files

from pearl_qdrant.lexical.words import any_exclude, variant_words, with_prefixes
from pearl_qdrant.linking.ranking.name_parts import name_parts
from pearl_qdrant.linking.ranking.string_features import StringFeatures, unshared

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
