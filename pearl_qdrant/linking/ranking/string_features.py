"""Features of a pair of mention and name that n-grams do not capture: of the strings, of edits, of words without
counterpart. Each is a number in [0, 1], and 0 if one side has no letters or digits.

    myocardial infraction / myocardial infarction     one edit, all words have a counterpart
    hepatitis Z / hepatitis B                         a word replaced by another one: probably a sibling
    a case of measles / measles                       words added around the name

Distances are of optimal string alignment (insertions, deletions, substitutions, swaps of neighbours) on the spelling
keys, so that spaces, hyphens, case and accents do not count.

Source of the distance: Damerau 1964, "A technique for computer detection and correction of spelling errors"; rapidfuzz.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from rapidfuzz.distance import OSA

from pearl_qdrant.lexical.first_names import are_two_names
from pearl_qdrant.lexical.keys import SKIPPED_WORDS, fits_initials, initials, spelling_key
from pearl_qdrant.lexical.ngrams import fold_name, latin
from pearl_qdrant.lexical.words import SMALL_WORDS, exclude_each_other, is_common, is_odd, rarest, variant_words

_BRACKETS = re.compile(r"(?<!\s)\s*[(\[][^()\[\]]*[)\]]")  # the lookbehind avoids quadratic time in a run of spaces

_LONGEST_CODE = 8
_CODE = re.compile(r"\b(?=[A-Z0-9-]*[A-Z][A-Z0-9-]*[A-Z0-9])[A-Z0-9][A-Z0-9-]{0,6}[A-Za-z0-9]?\b")
"""A short word in capitals, with digits or not: IMD73B, DFNA13, TBCD."""

_IN_CAPITALS = re.compile("[A-Z]{2} ")  # a first word in capitals, which may be initials

_NOT_PLAIN = re.compile(r"[0-9]|[^\x00-\x7f]|(?:^| ).(?: |$)")
"""What a folded name with a number or a single letter has; a letter of another script may be a digit, too."""

_CAPITAL = re.compile("[A-Z][A-Z0-9-]")  # what every match of `_CODE` has; names rarely do
_NONE: frozenset[str] = frozenset()
_LONG = 500  # characters; longer strings are not cached, because a thousand of them would fill many MB


class StringFeatures(NamedTuple):
    """A string prepared for comparisons; a tuple, because it is made a third as fast as a frozen dataclass."""

    text: str  # the string
    folded: str  # the result of `fold_name`
    core: str  # the same without text in brackets, unless nothing else is left
    joined: str  # `folded` without spaces: its spelling key
    words_key: str  # its key of sorted words
    content: tuple[str, ...]  # its words in their normal spelling, without small ones
    content_set: frozenset[str]  # the same as a set
    words: frozenset[str]  # all words
    numbers: frozenset[str]  # the words that are numbers
    # content words in which every character counts: numbers, single letters, short words in capitals
    codes: frozenset[str]
    initials: frozenset[str]  # first letters of the words, with and without small words; empty for a single word.


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
        word_set,
        numbers,
        _NONE if is_plain and _CAPITAL.search(text) is None else _codes(text, content, numbers),
        initials(_upright(text, words)) if len(words) > 1 else _NONE,
    )


_cached = lru_cache(maxsize=1000)(new_string_features)  # not larger: garbage collection visits four objects per entry


def _upright(text: str, words: Sequence[str]) -> Sequence[str]:
    """Words in their order, which a comma has inverted where the last word is a small one: `Korea, Republic of`."""
    if words[-1] not in SKIPPED_WORDS or text.count(",") != 1:
        return words
    n_first = len(fold_name(text.partition(",")[0]).split())
    return [*words[n_first:], *words[:n_first]]


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


def shared_letters(one: StringFeatures, other: StringFeatures) -> float:
    """Share of the letters of a string that are in words of the other, in [0, 1]."""
    words = one.folded.split()
    n = sum(map(len, words))
    return sum([len(word) for word in words if word in other.words]) / n if n else 0.0


def is_acronym(mention: StringFeatures, name: StringFeatures) -> float:
    """Whether one side is the initials of the other, or has them as a word; 0.5 without the first word of a name."""
    if _has_initials(mention, name) or _has_initials(name, mention):
        return 1.0
    return 0.5 * fits_initials(name.folded, mention.joined)


def _has_initials(short: StringFeatures, long: StringFeatures) -> bool:
    """Whether a string is the initials of a longer one, or has at least three of them as a word."""
    if not long.initials:
        return False
    if short.joined in long.initials:
        return True
    return not long.initials.isdisjoint(short.words) and any(len(i) > 2 for i in long.initials & short.words)


FAR = 0.5  # edit similarity below which two strings are equally unlike

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
    """Whether a mention is a name but for one wrong character in a long word, or two in long strings. Both are folded.
    Words with digits and short words are too often what tells two entities apart.
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


SYLLABIC = 1.5  # Latin letters for each character from which these are syllables or words: Han, Kana, Hangul


def may_have_slips(of_mention: StringFeatures, name: str) -> bool:
    """Whether the words that a mention has beside a folded name may be words with a slip: long, none that texts have
    (`anterior` for `inferior`), and not of characters that are syllables or words, of which one is another one.
    """
    ours, _ = unshared(of_mention.folded.split(), name.split())
    return all(
        len(word) >= ONE_EDIT_LETTERS and is_odd(word) and len(latin(word)) < SYLLABIC * len(word) for word in ours
    )


def has_common_end(of_mention: StringFeatures, name: str) -> bool:
    """Whether a mention is a folded name with common words behind it: `Acme Corp competitor`."""
    words, own = of_mention.folded.split(), name.split()
    return len(words) > len(own) > 0 and words[: len(own)] == own and all(map(is_common, words[len(own) :]))


def slips(mention: StringFeatures, name: StringFeatures, similarity: float) -> int:
    """Edits between the spelling keys, if they are one or two and the strings are long enough for slips; else 0."""
    if mention.numbers != name.numbers:
        return 0
    distance = round((1 - similarity) * max(len(mention.joined), len(name.joined)))
    shortest = min(len(mention.joined), len(name.joined))
    if distance == 1 and shortest >= ONE_EDIT_LETTERS:
        return 1
    return 2 if distance == 2 and shortest >= TWO_EDIT_LETTERS else 0


def sorted_similarity(mention: StringFeatures, name: StringFeatures, similarity: float) -> float:
    """Edit similarity of the sorted words above that of the words as they stand, in [0, 1]. They differ by their order,
    or by a legal form or title (`ibm corp`).
    """
    is_one_word = len(mention.content) < 2 or len(name.content) < 2
    if is_one_word and mention.words_key != name.words_key:
        return 0.0
    return max(0.0, edit_similarity(mention.words_key, name.words_key) - max(similarity, FAR)) / (1 - FAR)


class WordChanges(NamedTuple):
    """Words of mention and name without a counterpart; each field in [0, 1]."""

    replaced: float = 0.0  # share of equal words where both sides have another word: `left lung`, `right lung`
    replaced_rare: float = 0.0  # there: the rarity in English of the mention's rarest such word (`lexical.words`)
    only_added: float = 0.0  # whether only the mention has such words
    only_missing: float = 0.0  # whether only the name has such words
    missing_rare: float = 0.0  # if so: the rarity of the rarest one
    any_replaced: float = 0.0  # whether both sides have a word without a counterpart; no feature of candidates.
    is_code: bool = False  # whether a code differs: a number, a single letter, a short word in capitals
    # whether one side has the initials of the other's words in their place: `CD Cuenca`, `Club Deportivo Cuenca`;
    # then no word counts as replaced.
    is_acronym: bool = False


UNCHANGED = WordChanges()  # every word has a counterpart


def other_known_name(one: StringFeatures, two: StringFeatures) -> bool:
    """Whether each has a word that the other lacks, and these are two names (`first_names.are_two_names`)."""
    # as they are written: the normal spelling of `Louise` is `louize`
    ours, theirs = unshared(one.folded.split(), two.folded.split())
    return any(are_two_names(a, b) for a in ours for b in theirs)


def word_changes(mention: StringFeatures, name: StringFeatures, *, has_slips: bool = True) -> WordChanges:
    """Compare the words of a mention and a name; without `has_slips` no word is another one with a slip."""
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
    if ours and theirs and has_slips:
        ours, theirs = _without_slips(ours, theirs)
        if ours and theirs and _is_slip("".join(ours), "".join(theirs)):
            ours, theirs = [], []  # a slip and a space: `chicken poks`, `sard0al`
    if ours and theirs:
        n_equal = len(mention.content) - len(ours)
        share = n_equal / (n_equal + max(len(ours), len(theirs)))
        return WordChanges(share, rarest(ours), any_replaced=1.0, is_code=is_code)
    if ours:
        return WordChanges(only_added=1.0, is_code=is_code)
    if theirs:
        return WordChanges(only_missing=1.0, missing_rare=rarest(theirs), is_code=is_code)
    return WordChanges(is_code=is_code)


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


def is_misread(mention: StringFeatures, name: StringFeatures) -> bool:
    """Whether the mention has digits where the name has letters that look alike: `Sard0al`, `1imited`."""
    if not mention.numbers or mention.numbers == name.numbers or len(mention.joined) < ONE_EDIT_LETTERS:
        return False
    if len(mention.joined) != len(name.joined):
        return False
    return mention.joined.translate(_LOOK_ALIKE) == name.joined.translate(_LOOK_ALIKE)
