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

from rapidfuzz.distance import OSA

from pearl_qdrant.lexical.spelling_variants import variant_word
from pearl_qdrant.linking.mention_detection.stop_words import COMMON_WORDS
from pearl_qdrant.linking.ranking.string_features import StringFeatures

FAR = 0.5
"""Edit similarity below which two strings are equally unlike."""

ONE_EDIT_LETTERS, TWO_EDIT_LETTERS = 5, 9
"""Letters from which one or two edits are probably slips: fewer letters make other names."""

_COMMON = frozenset(map(variant_word, COMMON_WORDS))

_SLIP_SHARE = 4  # letters of a word for each slip that is allowed in its counterpart
_LEAST_CONTAINED = 3  # letters and digits

_NO_EDITS = (0.0, 0.0, 0.0, 0.0)
_NO_CHANGES = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def edit_similarity(a: str, b: str) -> float:
    """1 minus the distance over the longer length, in [0, 1]; 0 below `FAR`."""
    similarity: float = OSA.normalized_similarity(a, b, score_cutoff=FAR)
    return similarity


def edits(mention: StringFeatures, name: StringFeatures, similarity: float) -> tuple[float, float, float, float]:
    """Similarity above `FAR`, its square, one edit, two edits; each in [0, 1].

    Args:
        mention, name: The two strings.
        similarity: Their `edit_similarity`.
    """
    if similarity <= FAR:
        return _NO_EDITS
    above = (similarity - FAR) / (1 - FAR)
    longest = max(len(mention.joined), len(name.joined))
    distance = round((1 - similarity) * longest)
    shortest = min(len(mention.joined), len(name.joined))
    one = distance == 1 and shortest >= ONE_EDIT_LETTERS and mention.numbers == name.numbers
    two = distance == 2 and shortest >= TWO_EDIT_LETTERS and mention.numbers == name.numbers
    return above, above * above, float(one), float(two)


def sorted_similarity(mention: StringFeatures, name: StringFeatures, similarity: float) -> float:
    """Edit similarity of the sorted words above that of the words as they stand, in [0, 1]: another order of words."""
    if len(mention.content) < 2 or len(name.content) < 2:
        return 0.0
    return max(0.0, edit_similarity(mention.words_key, name.words_key) - max(similarity, FAR)) / (1 - FAR)


def word_changes(
    mention: StringFeatures, name: StringFeatures, known: Mapping[str, float]
) -> tuple[float, float, float, float, float, float, float, float]:
    """Words without a counterpart, as eight features in [0, 1].

    Args:
        mention, name: The two strings.
        known: How frequent the mention's words are in the base, in [0, 1]; 0 for a word that the base does not have.

    Returns:
        replaced: Share of equal words where both sides have another word: `left lung`, `right lung`.
        replaced_any: Whether both sides have a word without a counterpart.
        replaced_known: If so: how frequent the most frequent such word of the mention is in the base. A word that the
            base has is another word and no slip.
        only_added: Whether only the mention has such words.
        only_missing: Whether only the name has such words.
        added_common: Whether only the mention has them, and all are words of everyday language: `a case of X`.
        added_known: If only the mention has them: how frequent the most frequent one is in the base.
        changed_code: Whether a code differs: a number, a single letter, a short word in capitals.
    """
    if mention.content == name.content:
        return _NO_CHANGES
    left_ours = [word for word in mention.content if word not in name.content_set]
    left_theirs = [word for word in name.content if word not in mention.content_set]
    if not left_ours and not left_theirs:
        return _NO_CHANGES
    if left_ours and left_theirs:
        if "".join(left_ours) == "".join(left_theirs):
            return _NO_CHANGES
        is_code = not (mention.codes.isdisjoint(left_ours) and name.codes.isdisjoint(left_theirs))
        left_ours, left_theirs = _without_slips(left_ours, left_theirs)
        if left_ours and left_theirs and _is_slip("".join(left_ours), "".join(left_theirs)):
            left_ours, left_theirs = [], []  # a slip and a space: `chicken poks`, `sard0al`
    else:
        is_code = not (mention.codes.isdisjoint(left_ours) and name.codes.isdisjoint(left_theirs))
    code = float(is_code)
    if left_ours and left_theirs:
        n_equal = len(mention.content) - len(left_ours)
        share = n_equal / (n_equal + max(len(left_ours), len(left_theirs)))
        return share, 1.0, max(known.get(word, 0.0) for word in left_ours), 0.0, 0.0, 0.0, 0.0, code
    if left_ours:
        is_common = _COMMON.issuperset(left_ours)
        return 0.0, 0.0, 0.0, 1.0, 0.0, float(is_common), max(known.get(word, 0.0) for word in left_ours), code
    return 0.0, 0.0, 0.0, 0.0, float(bool(left_theirs)), 0.0, 0.0, code


def _without_slips(ours: Sequence[str], theirs: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words that have no counterpart with a slip on the other side."""
    left_theirs, left_ours = list(theirs), []
    for word in ours:
        allowed = 0 if word[0].isdigit() else len(word) // _SLIP_SHARE
        match = (
            next((other for other in left_theirs if OSA.distance(word, other) <= allowed), None) if allowed else None
        )
        if match is None:
            left_ours.append(word)
        else:
            left_theirs.remove(match)
    return left_ours, left_theirs


def _is_slip(word: str, other: str) -> bool:
    """Whether two words differ by at most one edit for each four letters of the longer one."""
    allowed = max(len(word), len(other)) // _SLIP_SHARE
    return bool(allowed) and not other[0].isdigit() and OSA.distance(word, other, score_cutoff=allowed) <= allowed


def is_common(mention: StringFeatures) -> float:
    """Whether all content words of the mention are words of everyday language."""
    return float(bool(mention.content) and _COMMON.issuperset(mention.content))


def is_contained(mention: StringFeatures, name: StringFeatures) -> float:
    """Whether the name stands in the mention as whole words, beside others: `a case of measles`."""
    is_part = len(name.joined) >= _LEAST_CONTAINED and len(name.folded) < len(mention.folded)
    return float(is_part and f" {name.folded} " in f" {mention.folded} ")


def margin(similarity: float, others: float) -> float:
    """How much nearer a name is than the nearest name of another entity, in [0, 1]; 0 if it is not the nearest.

    Args:
        similarity: Edit similarity of this name.
        others: The highest one of another entity.
    """
    return min(max(0.0, similarity - max(others, FAR)) / (1 - FAR), 1.0)
