"""Where a passage may mention something: candidate spans by the shape of the words, no model needed.

Spans are runs of words that no punctuation or stop word ends: capitalised ones with the small words between them,
acronyms and mixtures of letters and digits, lower-case phrases of up to six words, and pieces of text that is written
without spaces. There are far more of them than mentions; which ones are is for the base to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from pearl_qdrant.linking.mention_detection.stop_words import (
    ARTICLES,
    COMMON_WORDS,
    CONNECTORS,
    HAN_PARTICLES,
    STOP_WORDS,
)
from pearl_qdrant.linking.mention_detection.tokens import TITLES, Gap, Word, character_classes, split_words

MAX_WORDS = 6
"""Words of a phrase; of its capitalised ones `MAX_CAPITALISED`, as in long names of organisations."""

MAX_CAPITALISED = 9
MAX_SMALL_WORDS = 3  # "hardening of the arteries" has two
MAX_CHARACTERS = 200  # longer runs without a space are no names, but addresses and code
MAX_CUT_WORDS = 12
"""Words of a span that begins or ends within a run of joined words, as "TNF" in "anti-TNF". Names of enzymes have up to
25 joined words, but so long a piece of a run is no name; without a bound a run of n words has n^2 pieces."""

_FIRST_HANGUL, _LAST_HANGUL = "\uac00", "\ud7a3"
MIN_UNSPACED, MAX_UNSPACED = 2, 8  # characters of a name in a script without spaces


class Shape(Enum):
    """What a span looks like."""

    NAME = "name"  # capitalised, and nothing capitalised beside it
    PART = "part"  # a piece of a longer capitalised run
    ACRONYM = "acronym"  # TNF, IL-2, p53
    MIXED = "mixed"  # "type 2 diabetes", "Parkinson's disease"
    LOWER = "lower"
    UNCASED = "uncased"  # a script, or a whole text, without capital letters
    PIECE = "piece"  # some characters of a run without spaces
    GIVEN = "given"  # by the caller, or by the passage's own definition


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of text that may be a mention.

    Attributes:
        start: Offset of its first character.
        end: Offset after its last one.
        shape: What it looks like.
        n_words: Its length in words, small ones not counted; a character is half a word where there are no spaces.
        knows_case: Whether a lower-case letter in it says that it is no proper name.
    """

    start: int
    end: int
    shape: Shape
    n_words: float = 1.0
    knows_case: bool = False


def find_spans(text: str) -> list[Span]:
    """All candidate spans of a text, in the order of their starts."""
    return list(_Finder(text).spans())


_END = re.compile(r"\++(?![Ulo9])|#(?![Ulo9])")
_MID_JOINERS = frozenset("-/·–+")
"""A span may begin or end at one of these joiners, but not within U.S. or AT&T."""


class _Finder:
    """The words of one text, and what is known of each of them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.classes = character_classes(text)
        self.words = split_words(text, self.classes)
        self.lowered = [text[w.start : w.end].lower() for w in self.words]
        # In a text without capitals, or with nothing else, they say nothing.
        self.is_cased = "U" in self.classes and "l" in self.classes
        self.initial = [i == 0 or self.words[i - 1].gap is Gap.SENTENCE for i in range(len(self.words))]
        self.capital = [self._is_capital(i) for i in range(len(self.words))]
        self.stop = [word in STOP_WORDS and not self.capital[i] for i, word in enumerate(self.lowered)]

    def _is_capital(self, i: int) -> bool:
        """Whether a word is written as a name: a capital that is not due to the sentence's beginning."""
        shape = self.words[i].shape
        if not self.is_cased or "U" not in shape:
            return False
        return not self.initial[i] or "U" in shape[1:] or self._begins_name(i)

    def _begins_name(self, i: int) -> bool:
        """Whether a capital at a sentence's beginning is followed by another one, and no stop word itself."""
        if i + 1 == len(self.words) or self.words[i].gap not in (Gap.SPACE, Gap.JOINED):
            return False
        is_small = self.lowered[i] in STOP_WORDS and self.lowered[i] not in ARTICLES
        return self.words[i + 1].has_capital and not is_small

    def spans(self) -> Iterator[Span]:
        for i, word in enumerate(self.words):
            if word.is_unspaced:
                yield from self._pieces(word)
            elif word.end - word.start > MAX_CHARACTERS:
                continue
            elif word.shape[0] == "e":
                yield Span(word.start, word.end, Shape.UNCASED)
            elif self._may_begin(i):
                yield from self._without_ending(word)
                yield from self._from(i)

    def _may_begin(self, i: int) -> bool:
        before = self.words[i - 1] if i else None
        if before is not None and before.gap is Gap.JOINED and before.joiner not in _MID_JOINERS:
            return False
        return not self.stop[i]

    def _from(self, i: int) -> Iterator[Span]:
        """The spans that begin with one word."""
        n_words, n_small, n_commas, n_lower = 1, 0, 0, 0
        begins_within = i > 0 and self.words[i - 1].gap is Gap.JOINED
        for j in range(i, len(self.words)):
            word = self.words[j]
            is_long = j - i >= MAX_CUT_WORDS
            if begins_within and is_long:
                return
            if word.is_unspaced or word.shape[0] == "e" or word.end - self.words[i].start > MAX_CHARACTERS:
                return
            small = self.stop[j]
            if small and (self.lowered[j] not in CONNECTORS):
                return
            n_small += small
            n_lower += not (small or self.capital[j] or word.is_number)
            if n_small > MAX_SMALL_WORDS or n_words > (MAX_WORDS if n_lower else MAX_CAPITALISED):
                return
            if (
                not (is_long and word.gap is Gap.JOINED)
                and (not small or self._is_clitic(j))
                and self._may_end(j)
                and self._is_likely(i, j)
                and self._is_whole(i, j)
            ):
                yield self._span(i, j, n_words - n_small)
            if word.gap in (Gap.BREAK, Gap.SENTENCE) or j + 1 == len(self.words):
                return
            if word.gap is Gap.COMMA:
                n_commas += 1
                if n_commas > 1 or not (self.capital[j] and self.capital[j + 1]):
                    return
            n_words += word.gap is not Gap.JOINED

    def _is_clitic(self, j: int) -> bool:
        """Whether a word is the s of a genitive, with which a name may end: McDonald's."""
        return j > 0 and self.lowered[j] == "s" and self.words[j - 1].joiner == "'"

    def _may_end(self, j: int) -> bool:
        word = self.words[j]
        if word.gap is not Gap.JOINED:
            return True
        return word.joiner in _MID_JOINERS or (word.joiner == "'" and self.lowered[j + 1] == "s")

    def _is_likely(self, i: int, j: int) -> bool:
        """Whether the words are more than a common word, a number, or a number of things."""
        first = self.words[i]
        if i == j:
            if first.is_number:
                return self._has_currency(i) or self.classes[first.end : first.end + 1] == "%"
            if len(first.shape) == 1:
                return self.capital[i] and self._end(i, i) > first.end  # C++
            return self.capital[i] or self.lowered[i] not in COMMON_WORDS
        if all(word.is_number for word in self.words[i : j + 1]):
            return all(word.joiner in {"/", "-", ":"} for word in self.words[i:j])
        if first.is_number and first.gap is Gap.SPACE and not self._has_currency(i):
            return self.words[i + 1].has_capital or self.words[i + 1].shape[0] == "o"
        return any(self.capital[k] or self.lowered[k] not in COMMON_WORDS for k in range(i, j + 1))

    def _is_whole(self, i: int, j: int) -> bool:
        """Whether a span of capitalised and other words does not cut a capitalised run: not "friend in New" York."""
        cuts_before = self.capital[i] and self._goes_on(i - 1)
        cuts_after = self.capital[j] and self._goes_on(j)
        if not (cuts_before or cuts_after):
            return True
        return all(self.capital[k] or self.words[k].is_number for k in range(i, j + 1))

    def _goes_on(self, i: int) -> bool:
        """Whether a capitalised run goes on from word i to the next one."""
        if not 0 <= i < len(self.words) - 1 or self.words[i].gap not in (Gap.SPACE, Gap.JOINED):
            return False
        is_first_article = self.initial[i] and self.lowered[i] in ARTICLES
        return self.capital[i] and self.capital[i + 1] and not is_first_article

    def _has_currency(self, i: int) -> bool:
        start = self.words[i].start
        return self.words[i].is_number and start > 0 and self.classes[start - 1] == "$"

    def _span(self, i: int, j: int, n_words: int) -> Span:
        start = self.words[i].start
        if self._has_currency(i) or self._has_point_before(i):
            start -= 1
        shape = self._shape(i, j)
        knows_case = self.is_cased and not (self.initial[i] and self.words[i].has_capital)
        return Span(start, self._end(i, j), shape, max(1, n_words), knows_case)

    def _has_point_before(self, i: int) -> bool:
        """Whether a name begins with a full stop: .NET."""
        start = self.words[i].start
        before = self.classes[max(0, start - 2) : start]
        return self.capital[i] and before in (".", " .", "n.")

    def _end(self, i: int, j: int) -> int:
        """Where a span ends with what belongs to its last word: C++, C#, 5%, U.S., Inc."""
        end = self.words[j].end
        longer = end
        following = self.classes[end : end + 1]
        if found := _END.match(self.classes, end):
            longer = found.end()
        elif following == "%" and self.words[j].is_number:
            longer = end + 1
        elif following == "." and j > i:
            is_initial = len(self.words[j].shape) == 1 and self.words[j - 1].joiner == "."
            longer += is_initial or (self.words[j].has_capital and self.lowered[j] in TITLES)
        return end if self.classes[longer : longer + 1] == "m" else longer

    def _shape(self, i: int, j: int) -> Shape:
        shapes = "".join(word.shape for word in self.words[i : j + 1])
        if not self.is_cased or not ("U" in shapes or "l" in shapes):
            return Shape.UNCASED
        content = [k for k in range(i, j + 1) if not (self.stop[k] or self.words[k].is_number or self._is_clitic(k))]
        n_capital = sum(self.capital[k] for k in content)
        is_word = all(word.joiner for word in self.words[i:j])
        if is_word and (shapes.count("U") > 1 or ("9" in shapes and len(shapes) > 1)):
            return Shape.PART if self._is_inside(i, j) else Shape.ACRONYM
        if n_capital == 0:
            return Shape.LOWER
        if n_capital < len(content) or self._has_loose_article(i, j):
            return Shape.MIXED
        return Shape.PART if self._is_inside(i, j) else Shape.NAME

    def _has_loose_article(self, i: int, j: int) -> bool:
        """Whether an article follows a name: one name in "Alexander the Great", two in "In Boston the Red Sox"."""
        return any(self.lowered[k] in ARTICLES and self.stop[k] and self.capital[k - 1] for k in range(i + 1, j))

    def _is_inside(self, i: int, j: int) -> bool:
        """Whether capitalised words go on before or after a span."""
        return self._goes_on(i - 1) or self._goes_on(j)

    def _pieces(self, word: Word) -> Iterator[Span]:
        """Parts of a run without spaces, cut between characters and never before a mark."""
        kind = word.shape[0]
        if kind == "h":
            return  # mostly particles and endings
        cuts = [word.start + k for k, one in enumerate(word.shape) if one != "m"]
        n = len(cuts)
        cuts.append(word.end)
        for a in range(n):
            for b in range(a + MIN_UNSPACED, min(a + MAX_UNSPACED, n) + 1):
                is_whole = b - a == n
                # Katakana is written for one foreign name at a time.
                if is_whole or (kind != "k" and not self._has_particle(cuts[a], cuts[b])):
                    yield Span(cuts[a], cuts[b], Shape.UNCASED if is_whole else Shape.PIECE, (b - a) / 2)

    def _has_particle(self, start: int, end: int) -> bool:
        return self.text[start] in HAN_PARTICLES or self.text[end - 1] in HAN_PARTICLES

    def _without_ending(self, word: Word) -> Iterator[Span]:
        """Korean writes particles of one or two syllables behind a name, without a space."""
        if _FIRST_HANGUL <= self.text[word.start] <= _LAST_HANGUL and "m" not in word.shape:
            for end in (word.end - 2, word.end - 1):
                if end - word.start >= MIN_UNSPACED:
                    yield Span(word.start, end, Shape.PIECE)
