"""Finds spans that no shape suggests, but that are names of the base as written.

`spans.py` rejects most runs of words, because each of its spans is encoded and searched: a span has no stop word at its
ends, few words and no brackets. Names may have all of that: `left ventricle`, `carcinoma not otherwise specified`,
`Panic! at the Disco`. Here every run of up to ten words is a window, and the base is asked which windows are names. It
compares strings only, which costs a thousandth of a link.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple
from unicodedata import is_normalized, normalize

from pearl_qdrant.lexical.words import is_common as is_frequent
from pearl_qdrant.linking.mention_detection.name_policy import NameCase
from pearl_qdrant.linking.mention_detection.spans import (
    ARTICLES,
    COMMON_WORDS,
    MAX_CHARACTERS,
    Gap,
    Span,
    SpanFinder,
    as_name,
)

KnownNames = Callable[[Sequence[str]], set[str]]
"""Returns those of some strings that are names of the base, exactly as written."""

MAX_WORDS = 10  # words of a window, small words included
MAX_TOKENS = 16  # words and joined parts of words, such as the four of "IL-2/IL-3"
WINDOWS_AT_ONCE = 5_000  # windows that the base is asked for at once, a few MB
_NO_END = frozenset(
    "a an the and or that this these those which who whom whose what where when why how is are was were be been being"
    " am has have had having do does did me my we us our you your he him his she her it its they them their will"
    " would shall should can could may might must but if than then so because there here".split()
)
"""A window does not end with one of these in lower case."""

_NO_START = _NO_END | frozenset("i of in for to with by on at from as into".split())
"""A window does not start with one of these in lower case, but for an article in a name that is written with it, and
for a name with a rare word where a text has no case: as satwah. It may end with a preposition: susceptibility to."""

_CLOSING = {")": "(", "]": "[", "}": "{"}
_FINAL = ".!?'\u2019%*+"  # signs that may end a name: Yahoo!, Inc., 5'
_INITIAL = "([{.#@$'+-"
"""Signs that may start a name: (R)-warfarin, .NET, 'n' Roll."""

_PARAGRAPH = re.compile(r"\n\s*\n|\r(?!\n)\s*\r|[\x00-\x08\x0b\x0c\x0e-\x1f\t]")


class _Window(NamedTuple):
    """A run of words: number of its passage, offsets, first and last word, and the strings that it may be stored as."""

    passage: int
    start: int
    end: int
    first: int
    last: int
    forms: tuple[str, ...]


def find_name_windows(
    finders: Sequence[SpanFinder],
    known_names: KnownNames,
    known_spellings: KnownNames,
    *,
    without: Sequence[set[tuple[int, int]]],
    case: NameCase,
) -> list[list[Span]]:
    """The windows of some texts, cut into words, that are names of the base, in the order of their starts.

    Letter case may differ in three ways: the first letter at the start of a sentence; a lower-case text and a name with
    a capital first letter; or with all words capitalised. The last two do not hold for windows of common words alone,
    nor for those that start with an article. Returns n lists, `without` the places of spans that are known already.
    Where a text has no letter case, a name with capitals inside is not known as the text writes it: `known_spellings`
    counts.
    """
    found: list[list[Span]] = [[] for _ in finders]
    windows = (
        (finder, window)
        for n, finder in enumerate(finders)
        for window in _windows(n, finder, case)
        if (window.start, window.end) not in without[n]
    )
    while some := list(islice(windows, WINDOWS_AT_ONCE)):
        forms = list(dict.fromkeys(form for _, window in some for form in window.forms))
        known = known_names(forms)
        if case.has_periods:
            known |= {name[:-1] for name in known_names([f"{form}." for form in forms])}
        others = [w.forms[0] for f, w in some if _is_bare(f, w) and known.isdisjoint(w.forms)]
        known |= known_spellings(list(dict.fromkeys(others)))
        for finder, window in some:
            if not known.isdisjoint(window.forms):
                found[window.passage].append(finder.span_at(window.first, window.last, window.start, window.end))
    return found


def _is_bare(finder: SpanFinder, window: _Window) -> bool:
    """Whether a window is without letter case, and without signs around it but for brackets that it closes. Folding
    removes signs, so that all of a window's places would be the same name.
    """
    first, last = finder.words[window.first], finder.words[window.last]
    if finder.cased[window.first] or window.start != first.start or first.shape[0] in "eckht" or last.shape[0] == "e":
        return False
    written = finder.text[window.start : window.end]
    is_closed = all(written.count(opening) == written.count(closing) for closing, opening in _CLOSING.items())
    return is_closed and (window.end == last.end or written[-1] in _CLOSING)


def _windows(number: int, finder: SpanFinder, case: NameCase) -> Iterator[_Window]:
    """All windows of a passage."""
    text, words = finder.text, finder.words
    is_composed = is_normalized("NFC", text)
    # Once for each word, not for each window.
    is_small = [word in _NO_START and not finder.capital[i] for i, word in enumerate(finder.lowered)]
    no_end = [_is_no_end(finder, i) for i in range(len(words))]
    is_common = [word in COMMON_WORDS and not finder.capital[i] for i, word in enumerate(finder.lowered)]
    ends_block = [
        word.is_unspaced
        or word.end - word.start > MAX_CHARACTERS
        or _PARAGRAPH.search(text, word.end, words[i + 1].start if i + 1 < len(words) else len(text)) is not None
        for i, word in enumerate(words)
    ]
    for i, first in enumerate(words):
        if first.is_unspaced:
            yield from _unspaced_windows(number, finder, i)
            continue
        is_plain = not is_small[i] or first.has_capital or finder.lowered[i] in ARTICLES
        if not (is_plain or not finder.cased[i]) or not finder.may_cut(i - 1):
            continue
        n_words, all_common, all_frequent = 1, True, not is_plain
        for j in range(i, min(i + MAX_TOKENS, len(words))):
            last = words[j]
            if n_words > MAX_WORDS or last.end - first.start > MAX_CHARACTERS or last.is_unspaced:
                break
            all_common = all_common and is_common[j]
            all_frequent = all_frequent and (is_common[j] or is_frequent(finder.lowered[j]))
            if j > i and not all_frequent and not no_end[j] and finder.may_cut(j):
                for start, end in _with_signs(text, first.start, last.end):
                    forms = _forms(finder, i, text[start:end], all_common=all_common, is_small=is_small[i])
                    if case.is_capitals:
                        forms = (forms[0].upper(),)
                    elif not case.has_case:
                        forms = (forms[0].lower(),)
                    forms += tuple(form[:-1] for form in forms if form.endswith("s"))
                    if not is_composed:
                        forms += tuple(normalize("NFC", form) for form in forms)
                    yield _Window(number, start, end, i, j, forms)
            if ends_block[j]:
                break
            n_words += last.gap is not Gap.JOINED


def _unspaced_windows(number: int, finder: SpanFinder, i: int) -> Iterator[_Window]:
    """The windows of several scripts without spaces that start at word i, as names of films in Japanese have them."""
    for j in range(i + 1, min(i + MAX_TOKENS, len(finder.words))):
        start, end = finder.words[i].start, finder.words[j].end
        is_close = finder.words[j].is_unspaced and finder.words[j].start == finder.words[j - 1].end
        if not is_close or end - start > MAX_CHARACTERS:
            return
        yield _Window(number, start, end, i, j, (finder.text[start:end],))


def _is_no_end(finder: SpanFinder, i: int) -> bool:
    """Whether no name ends with word i. `a` may be a letter where case says nothing: hepatitis a."""
    word, before = finder.lowered[i], finder.words[i - 1] if i else None
    if word not in _NO_END or finder.capital[i]:
        return False
    if word != "a" or before is None:
        return True
    is_letter = i + 1 == len(finder.words) or finder.words[i].gap is not Gap.SPACE or finder.stop[i + 1]
    return before.gap is not Gap.JOINED and not (is_letter and not finder.cased[i])


def _with_signs(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The place of a run of words, and the places with the signs directly before or after it."""
    before, after = text[start - 1 : start], text[end : end + 1]
    yield start, end
    if after and (after in _FINAL or (after in _CLOSING and _CLOSING[after] in text[start:end])):
        yield start, end + 1
    if before and before in _INITIAL:
        yield start - 1, end


def _forms(finder: SpanFinder, first: int, written: str, *, all_common: bool, is_small: bool) -> tuple[str, ...]:
    """The strings that a window may be stored as; `is_small`: it starts with an article or another small word."""
    written = as_name(written)
    is_initial_capital = finder.initial[first] and written[0].isupper()
    lowered = written[0].lower() + written[1:] if is_initial_capital else written
    if all_common:
        return (lowered,)
    if is_small:
        return (written,) if lowered == written else (written, lowered)
    if not finder.cased[first]:
        small = written.lower()
        return tuple(dict.fromkeys((written, small, small[0].upper() + small[1:], _title(small))))
    if lowered.islower():
        return tuple(dict.fromkeys((lowered, lowered[0].upper() + lowered[1:], _title(lowered))))
    return (written,) if lowered == written else (written, lowered)


def _title(lowered: str) -> str:
    """The words of a string with a capital each."""
    return " ".join(word[0].upper() + word[1:] for word in lowered.split(" "))
