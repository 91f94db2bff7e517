"""Finds abbreviations that a passage defines: `tumor necrosis factor (TNF)` and `TNF (tumor necrosis factor)`.

The short form is one or two words, in brackets after the long form or directly before a long form in brackets. It is
matched from its end. The long form is the words whose initials it is, small words with or without a letter. If there
are none, each of its letters and digits must occur in the long form in order, the first one at the start of a word; the
long form is then the shortest that matches. It has at most min(n + 5, 2 n) words for n characters.

Source: Schwartz and Hearst 2003, "A simple algorithm for identifying abbreviation definitions in biomedical text".
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pearl_qdrant.lexical.words import is_common
from pearl_qdrant.linking.mention_detection.spans import as_name

LONGEST = 300  # characters read before and inside the brackets
MOST_INITIALS = 4
"""Letters of a short form that other things have as initials, too. Of genes in abstracts whose long form the base
lacks, 45 of 58 such forms and 49 of 50 others are the gene of that name."""
LEAST_LIKELY = 0.1  # probability of an entity by the long form from which such a short form is its name
_BRACKETS = re.compile(r"[(\[（]([^()\[\]（）]{1,300})[)\]）]")
_SENTENCE_END = re.compile(r"[.!?;:]\s+(?=\S)|\n\s*\n|\r\n\s*\r\n|[()\[\]（）]")
_INSIDE_END = re.compile(r"[;,；，]")
_WORD = re.compile(r"\S+")
_PLAIN_WORD = re.compile(r"[^\W_]+")
_SMALL_WORDS = frozenset("of the and in for to a an on with by from de la du".split())
_JOINING = "-/'’"  # signs between parts of one word
_USE, _IN_WORD = re.compile(r"(?<!\w)[^\W_]"), re.compile(r"\w")


class Abbreviation(NamedTuple):
    """A short form that a passage defines, its long form, both as written, and where they start in the definition."""

    short: str
    long: str
    short_start: int
    long_start: int


def find_abbreviations(text: str) -> list[Abbreviation]:
    """The definitions of a text in order; linear in its length."""
    return [found for brackets in _BRACKETS.finditer(text) if (found := _definition(text, brackets)) is not None]


def _definition(text: str, brackets: re.Match[str]) -> Abbreviation | None:
    """The definition at a pair of brackets, if there is one."""
    before_start = max(0, brackets.start() - LONGEST)
    for end in _SENTENCE_END.finditer(text, before_start, brackets.start()):
        stop = end.start()
        is_initial = text[stop] == "." and text[max(0, stop - 1) : stop].isupper()  # E. coli
        if not is_initial or text[max(0, stop - 2) : stop - 1].isalnum():
            before_start = end.end()
    before = text[before_start : brackets.start()].rstrip()
    if not before or (len(text[before_start : brackets.start()]) - len(before)) > 2:
        return None
    cut = _INSIDE_END.search(text, brackets.start(1), brackets.end(1))
    inside = text[brackets.start(1) : cut.start() if cut else brackets.end(1)]
    inside_start = brackets.start(1) + len(inside) - len(inside.lstrip())
    inside = inside.strip()
    if _is_short(inside):
        n_words = min(len(inside) + 5, 2 * len(inside))
        words = list(_WORD.finditer(before))[-n_words:]
        window = words[0].start()
        starts = (match(inside, before[window:]) for match in (_match_initials, _match_backwards))
        if (start := next((one for one in starts if one is not None), None)) is not None:
            start += window
            return Abbreviation(inside, before[start:], inside_start, before_start + start)
    last = list(_WORD.finditer(before))[-1]
    short = last.group().lstrip("\"'“‘")
    is_possible = _is_short(short) and not cut and len(inside.split()) <= min(len(short) + 5, 2 * len(short))
    if is_possible and 0 in (_match_initials(short, inside), _match_backwards(short, inside)):
        return Abbreviation(short, inside, before_start + last.end() - len(short), inside_start)
    return None


def _is_short(form: str) -> bool:
    """Whether a string looks like an abbreviation, which has a capital or a digit if it is longer than 4 characters."""
    return (
        2 <= len(form) <= 10
        and len(form.split()) <= 2
        and form[0].isalnum()
        and any(c.isalpha() for c in form)
        and (any(c.isupper() or c.isdigit() for c in form) or len(form) <= 4)
        and not (" " in form and all(is_common(word.lower()) for word in form.split()))
    )


def _match_initials(short: str, before: str) -> int | None:
    """Start of the words at the end of `before` whose initials are the short form; None if they are not. Small words
    may have no letter: `ACU` is the adenocarcinoma of cervix uteri.
    """
    letters = [c.lower()[0] for c in short if c.isalnum()]
    for word in reversed(list(_PLAIN_WORD.finditer(before))):
        if word.group()[0].lower()[0] == letters[-1]:
            letters.pop()
        elif word.group().lower() not in _SMALL_WORDS:
            return None
        if not letters:
            starts_word = word.start() == 0 or before[word.start() - 1] not in _JOINING
            return word.start() if starts_word and len(before) - word.start() > len(short) + 1 else None
    return None


def _match_backwards(short: str, before: str) -> int | None:
    """Start of the shortest long form at the end of `before`; None if there is none."""
    # Lower-case letter by letter and keep one character each: the lower case of İ is two characters.
    short, text = ("".join(c.lower()[0] for c in form) for form in (short, before))
    at = len(text)
    for i in range(len(short) - 1, -1, -1):
        if not short[i].isalnum():
            continue
        at -= 1
        while at >= 0 and (text[at] != short[i] or (i == 0 and at > 0 and text[at - 1].isalnum())):
            at -= 1
        if at < 0:
            return None
    # The long form starts at the start of the word that contains its first letter.
    while at > 0 and not text[at - 1].isspace() and (text[at - 1] in _JOINING or text[at - 1].isalnum()):
        at -= 1
    long = before[at:]
    repeats_itself = any(word.strip(".,").lower() == short for word in long.lower().split())
    return at if len(long) > len(short) and not repeats_itself else None


class Use(NamedTuple):
    """A place where a short form is used, and its definition there."""

    start: int
    end: int
    meaning: Abbreviation


def find_uses(text: str, abbreviations: Sequence[Abbreviation]) -> list[Use]:
    """The uses of the short forms as whole words, in order; a plural `s` after a capital or digit is included. If a
    short form has several definitions, the last one before the use applies, or the first if none is before it.
    """
    meanings: dict[str, list[Abbreviation]] = {}
    for found in abbreviations:
        meanings.setdefault(found.short, []).append(found)
    if not meanings:
        return []
    lengths = sorted({len(short) for short in meanings}, reverse=True)
    uses = []
    at = 0
    for match in _USE.finditer(text):
        start = match.start()
        if start < at:
            continue
        # A dictionary lookup per length, not one pattern of all short forms: a passage may define thousands.
        for n in lengths:
            short = text[start : start + n]
            at = start + n + text.startswith("s", start + n)
            if len(short) == n and short in meanings and not _IN_WORD.match(text, at):
                break
        else:
            at = start
            continue
        if at > start + n and not (short[-1].isupper() or short[-1].isdigit()):
            continue  # not a plural
        if unicodedata.category(text[at : at + 1] or " ").startswith("M"):
            continue  # a combining accent continues the word
        known = meanings[short]
        n_earlier = bisect_right(known, start, key=lambda a: min(a.short_start, a.long_start))
        uses.append(Use(start, at, known[max(0, n_earlier - 1)]))
    return uses


def expand(text: str, start: int, end: int, uses: Sequence[Use]) -> tuple[str, bool]:
    """A stretch of text with its short forms replaced by their long forms, and whether there were any. A stretch that
    contains the definition of a short form keeps that short form.
    """
    parts, at = [], start
    for i in range(bisect_left(uses, start, key=lambda use: use.start), len(uses)):
        use = uses[i]
        if use.end > end:
            break
        if not start <= use.meaning.long_start < end:
            parts += [text[at : use.start], use.meaning.long]
            at = use.end
    return "".join([*parts, text[at:end]]), bool(parts)


class Forms(NamedTuple):
    """What is linked for a stretch of text: the long form, and, where the base lacks that, the short form."""

    query: str  # the stretch, with long forms in place of short ones
    short: str | None = None  # the same with short forms, if the text defines some
    long_form: str | None = None  # the query, if that is not what is written

    @property
    def is_ambiguous(self) -> bool:
        """Whether the short form has a word of a few letters, which are the initials of other things, too: `MS`."""
        words = set((self.short or "").split()).difference(self.query.split())
        return any(len(word) <= MOST_INITIALS and word.isalpha() for word in words)


def short_forms(abbreviations: Sequence[Abbreviation]) -> dict[str, str]:
    """The short form of each long form, without its case."""
    return {as_name(one.long).casefold(): one.short for one in abbreviations}


def forms_of(text: str, start: int, end: int, uses: Sequence[Use], short: Mapping[str, str]) -> Forms:
    """The forms of a stretch of text, by the uses of the short forms that the text defines, and its `short_forms`."""
    written = as_name(text[start:end])
    if not short:
        return Forms(written)
    expanded, is_abbreviated = expand(text, start, end, uses)
    if is_abbreviated:
        return Forms(as_name(expanded), written, as_name(expanded))
    return Forms(written, short.get(written.casefold()))
