"""Features of edits: how many characters a name is away from the mention, and which words have no counterpart.

    myocardial infraction / myocardial infarction     one edit, all words have a counterpart
    hepatitis Z / hepatitis B                         a word replaced by another one: probably a sibling
    a case of measles / measles                       words added around the name

Distances are of optimal string alignment (insertions, deletions, substitutions, swaps of neighbours) on the spelling
keys, so that spaces, hyphens, case and accents do not count.

Source of the distance: Damerau 1964, "A technique for computer detection and correction of spelling errors"; rapidfuzz.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rapidfuzz.distance import OSA

from pearl_qdrant.lexical.words import exclude_each_other, is_word, rarest
from pearl_qdrant.linking.ranking.string_features import StringFeatures, are_initials, unshared

FAR = 0.5
"""Edit similarity below which two strings are equally unlike."""

ONE_EDIT_LETTERS, TWO_EDIT_LETTERS = 5, 9
"""Letters from which one or two edits are probably slips: fewer letters make other names."""

_LOOK_ALIKE = str.maketrans("015i8", "olslb")
"""Digits, and the letters that optical recognition reads as them; no two digits become one."""

_SLIP_SHARE = 4  # letters of a word for each slip that is allowed in its counterpart


def edit_similarity(a: str, b: str) -> float:
    """1 minus the distance over the longer length, in [0, 1]; 0 below `FAR`."""
    similarity: float = OSA.normalized_similarity(a, b, score_cutoff=FAR)
    return similarity


def is_two_edits_away(mention: str, name: str) -> bool:
    """Whether two folded strings are at most two edits apart."""
    return abs(len(mention) - len(name)) <= 2 and OSA.distance(mention, name, score_cutoff=2) <= 2


def is_probably_slip(mention: str, name: str) -> bool:
    """Whether a mention is a name but for one wrong character in a long word, or two in long strings.

    Words with digits and short words are too often what tells two entities apart.

    Args:
        mention, name: Two folded strings.
    """
    if abs(len(mention) - len(name)) > 2 or (distance := OSA.distance(mention, name, score_cutoff=2)) > 2:
        return False
    other_words = set(mention.split()) ^ set(name.split())
    if not all(len(word) >= ONE_EDIT_LETTERS and word.isalpha() for word in other_words):
        return False
    if len(other_words) == 2 and exclude_each_other(*other_words):
        return False
    shortest = min(len(mention), len(name))
    return distance == 1 or (distance == 2 and shortest >= TWO_EDIT_LETTERS)


def slips(mention: StringFeatures, name: StringFeatures, similarity: float) -> int:
    """Edits between the spelling keys, if they are one or two and the strings are long enough for slips; else 0.

    Args:
        similarity: Their `edit_similarity`.
    """
    if similarity <= FAR or similarity == 1.0 or mention.numbers != name.numbers:
        return 0
    distance = round((1 - similarity) * max(len(mention.joined), len(name.joined)))
    shortest = min(len(mention.joined), len(name.joined))
    if distance == 1 and shortest >= ONE_EDIT_LETTERS:
        return 1
    return 2 if distance == 2 and shortest >= TWO_EDIT_LETTERS else 0


def is_short_slip(mention: StringFeatures, name: StringFeatures, similarity: float) -> bool:
    """Whether the spelling keys of three or four letters are one edit apart.

    Args:
        similarity: Their `edit_similarity`.
    """
    if similarity <= FAR or similarity == 1.0 or mention.numbers != name.numbers:
        return False
    longest, shortest = max(len(mention.joined), len(name.joined)), min(len(mention.joined), len(name.joined))
    return 2 < shortest < ONE_EDIT_LETTERS and round((1 - similarity) * longest) == 1


def is_unknown(mention: StringFeatures, name: StringFeatures, known: Mapping[str, float]) -> bool:
    """Whether the base has none of the words that the mention has and the name has not: then they are no other names.

    Args:
        known: How frequent the mention's words are in the base, in [0, 1]; 0 for a word that the base does not have.
    """
    return not any(known.get(word, 0.0) for word in mention.content if word not in name.content_set)


def is_other_word(mention: StringFeatures, name: StringFeatures) -> bool:
    """Whether a word of the mention that is a slip of one of the name is itself a word that texts have: Iraq, Iran."""
    ours = [word for word in mention.content if word not in name.content_set and is_word(word)]
    if not ours:
        return False
    theirs = [word for word in name.content if word not in mention.content_set]
    return bool(theirs) and len(_without_slips(ours, theirs)[0]) < len(ours)


def is_swap(mention: StringFeatures, name: StringFeatures) -> bool:
    """Whether the spelling keys have the same letters in another order."""
    return len(mention.joined) == len(name.joined) and sorted(mention.joined) == sorted(name.joined)


def sorted_similarity(mention: StringFeatures, name: StringFeatures, similarity: float) -> float:
    """Edit similarity of the sorted words above that of the words as they stand, in [0, 1].

    They differ by their order, or by a legal form or title (`ibm corp`).
    """
    is_one_word = len(mention.content) < 2 or len(name.content) < 2
    if is_one_word and mention.words_key != name.words_key:
        return 0.0
    return max(0.0, edit_similarity(mention.words_key, name.words_key) - max(similarity, FAR)) / (1 - FAR)


class WordChanges(NamedTuple):
    """Words of mention and name without a counterpart; each field in [0, 1].

    Attributes:
        replaced: Share of equal words where both sides have another word: `left lung`, `right lung`.
        replaced_rare: There: the rarity in English of the mention's rarest such word (`lexical.words`).
        only_added: Whether only the mention has such words.
        added_plain: If so: whether they are frequent in English and rare in the base: `a case of X`.
        only_missing: Whether only the name has such words.
        missing_rare: If so: the rarity of the rarest one.
        any_replaced: Whether both sides have a word without a counterpart; no feature of candidates.
        is_code: Whether a code differs: a number, a single letter, a short word in capitals.
        is_acronym: Whether one side has the initials of the other's words in their place: `CD Cuenca`, `Club Deportivo
            Cuenca`; then no word counts as replaced.
    """

    replaced: float = 0.0
    replaced_rare: float = 0.0
    only_added: float = 0.0
    added_plain: float = 0.0
    only_missing: float = 0.0
    missing_rare: float = 0.0
    any_replaced: float = 0.0
    is_code: bool = False
    is_acronym: bool = False


UNCHANGED = WordChanges()
"""Every word has a counterpart."""


def word_changes(mention: StringFeatures, name: StringFeatures, known: Mapping[str, float]) -> WordChanges:
    """Compare the words of a mention and a name.

    Args:
        known: How frequent the mention's words are in the base, in [0, 1]; 0 for a word that the base does not have.
    """
    if mention.content == name.content:
        return UNCHANGED
    ours, theirs = unshared(mention.content, name.content)
    if not ours and not theirs:
        return UNCHANGED
    if ours and theirs and "".join(ours) == "".join(theirs):
        return UNCHANGED
    if are_initials(ours, theirs) or are_initials(theirs, ours):
        return WordChanges(is_acronym=True)
    is_code = not (mention.codes.isdisjoint(ours) and name.codes.isdisjoint(theirs))
    if ours and theirs:
        ours, theirs = _without_slips(ours, theirs)
        if ours and theirs and _is_slip("".join(ours), "".join(theirs)):
            ours, theirs = [], []  # a slip and a space: `chicken poks`, `sard0al`
    if ours and theirs:
        n_equal = len(mention.content) - len(ours)
        share = n_equal / (n_equal + max(len(ours), len(theirs)))
        return WordChanges(share, rarest(ours), any_replaced=1.0, is_code=is_code)
    if ours:
        plain = (1 - _most_known(ours, known)) * (1 - rarest(ours))
        return WordChanges(only_added=1.0, added_plain=plain, is_code=is_code)
    if theirs:
        return WordChanges(only_missing=1.0, missing_rare=rarest(theirs), is_code=is_code)
    return WordChanges(is_code=is_code)


def _most_known(words: Sequence[str], known: Mapping[str, float]) -> float:
    """How frequent the most frequent of some words is in the base."""
    return max([known.get(word, 0.0) for word in words])


def _without_slips(ours: Sequence[str], theirs: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words that have no counterpart with a slip on the other side."""
    left_theirs, left_ours = list(theirs), []
    for word in ours:
        n = len(word)
        allowed = 0 if word[0].isdigit() else n // _SLIP_SHARE
        for other in left_theirs if allowed else ():
            # Two cheap tests spare most comparisons: of words that are one edit apart, one end is equal.
            if abs(n - len(other)) > allowed or (allowed == 1 and word[0] != other[0] and word[-1] != other[-1]):
                continue
            if OSA.distance(word, other, score_cutoff=allowed) <= allowed and not exclude_each_other(word, other):
                left_theirs.remove(other)
                break
        else:
            left_ours.append(word)
    return left_ours, left_theirs


def _is_slip(word: str, other: str) -> bool:
    """Whether two words differ by at most one edit for each four letters of the longer one."""
    n, n_other = len(word), len(other)
    allowed = max(n, n_other) // _SLIP_SHARE
    if not allowed or abs(n - n_other) > allowed or other[0].isdigit():
        return False
    return OSA.distance(word, other, score_cutoff=allowed) <= allowed and not exclude_each_other(word, other)


def rarity(mention: StringFeatures) -> float:
    """Rarity in English of the rarest content word of the mention; 1 without words."""
    return rarest(mention.content) if mention.content else 1.0


def is_misread(mention: StringFeatures, name: StringFeatures) -> bool:
    """Whether the mention has digits where the name has letters that look alike: `Sard0al`, `1imited`."""
    if not mention.numbers or mention.numbers == name.numbers or len(mention.joined) < ONE_EDIT_LETTERS:
        return False
    if len(mention.joined) != len(name.joined):
        return False
    return mention.joined.translate(_LOOK_ALIKE) == name.joined.translate(_LOOK_ALIKE)


def margin(similarity: float, others: float) -> float:
    """How much nearer a name is than the nearest name of another entity, in [0, 1]; 0 if it is not the nearest.

    Args:
        similarity: Edit similarity of this name.
        others: The highest one of another entity.
    """
    return min(max(0.0, similarity - max(others, FAR)) / (1 - FAR), 1.0)
