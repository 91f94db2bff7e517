"""Words of a passage with exact offsets, and candidate spans by the shapes of these words; needs no model.

Each character is replaced by one letter for its class. So regular expressions over the string of classes find words of
every script, and an offset in that string is an offset in the text. A combining mark or a joiner belongs to the
character before it; a control character, a lone surrogate or an unassigned code point ends a word and a sentence.

A span is a run of words without punctuation or stop words at its ends: capitalised words with small words between them,
acronyms and mixtures of letters and digits, lower-case phrases of up to six words, and pieces of text that is written
without spaces. There are far more spans than mentions; the base decides which ones are mentions. Lists of English words
that are no names (`words.json`) save spans; languages without lists get more of them, which the base then rejects.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from importlib.resources import files

from pearl_qdrant.lexical.words import begins_names, is_common, is_mostly_name

ARTICLES = frozenset("a an the".split())  # may start a capitalised name
CONNECTORS = frozenset(
    "a an the of in and or for to with by on at from as into de del della der des di da du la le les el los las van von"
    " und et y al ibn bin zu zum zur am im den dem das die s n".split()
)
"""May stand inside a mention, in lower case."""

_LISTS = {
    name: frozenset(" ".join(lines).split())
    for name, lines in json.loads(files(__package__).joinpath("words.json").read_text("utf-8")).items()
}

STOP_WORDS = CONNECTORS | _LISTS["function"] | _LISTS["verbs"]
"""A mention does not start or end with one of these, unless it is capitalised as a name."""

COMMON_WORDS = STOP_WORDS | _LISTS["adjectives"] | _LISTS["nouns"]
"""A mention does not consist of one of these alone, unless it is capitalised as a name."""

_FOREIGN = _LISTS["articles"]  # of other languages, which a sentence may start with, as in "Il Papa"
ROLES = _LISTS["roles"]  # titles and roles, which stand beside a name and are no part of it
DATES = frozenset(
    "monday tuesday wednesday thursday friday saturday sunday january february march april may june july august"
    " september october november december".split()
)
"""Words that are no part of a name beside them: Florida May 14."""

HAN_PARTICLES = frozenset("的了是在和与也不有就都而及或但被把对从为这那其之以于他她它们我你很还又再着过吗呢吧啊")
"""Characters that a Chinese name rarely starts or ends with."""


class Gap(Enum):
    """The kind of gap between a word and the next one."""

    JOINED = "joined"  # IL-2, U.S., AC/DC
    SPACE = "space"  # a name may continue: a space, a line end, "St. Louis", "Johnson & Johnson"
    COMMA = "comma"  # a capitalised name may continue: "Washington, D.C."
    BREAK = "break"  # ends a name
    SENTENCE = "sentence"  # ends a sentence: a capital letter after it is not informative


@dataclass(frozen=True, slots=True)
class Word:
    """A run of letters and digits, of ideographs of one kind, or of symbols: its offsets, the classes of its characters
    (`character_classes`), and the gap after it, with its character if that is `JOINED`.
    """

    start: int
    end: int
    shape: str
    gap: Gap
    joiner: str

    @property
    def has_capital(self) -> bool:
        return "U" in self.shape

    @property
    def is_number(self) -> bool:
        return not self.shape.strip("9m")

    @property
    def is_unspaced(self) -> bool:
        """Whether its script is written without spaces, so that it may consist of several words."""
        return self.shape[0] in "ckht"


_WORD = re.compile(r"[Ulo9][Ulo9m]*|c[cm]*|k[km]*|h[hm]*|t[tm]*|e[em]*")
_SPACE = re.compile(r" +| *(?:r?n|r) *")
_SPACED_MARK = re.compile(r"([.,'])(?: +| *(?:r?n|r) *)| +(&) +")
_SENTENCE = re.compile(r"[.!?:;\"x]|(?:r?n|r) *(?:r|n)|[rn].*[^ rn]|^ *[-*]")
JOINERS = "-'./&@:_+*#·–"
TITLES = frozenset("dr mr mrs ms st mt ft jr sr inc co corp ltd prof rev gen sen gov lt col capt no vs bros".split())
"""Words whose full stop does not end a sentence."""

_UNSPACED = (
    ("h", "\u3040-\u309f"),
    ("k", "\u30a0-\u30ff\u31f0-\u31ff\uff66-\uff9f"),
    ("c", "\u2e80-\u2fdf\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"),
    ("t", "\u0e00-\u109f\u1780-\u17ff"),  # Thai, Lao, Tibetan, Myanmar, Khmer
)
"""Scripts written without spaces: hiragana, katakana, Han, and those of South-East Asia."""

_SPECIAL = dict(
    zip(
        "\r\n\v\f\x85\u2010\u2011\u2013\u2019\u02bc\uff0c\u00b7\u2027\u30fb\u200b\ufeff\u2060\u200e\u200f",
        "rnnnn--–'',···  bbb",
        strict=True,
    )
)
_CATEGORY = dict(
    pair.split(":") for pair in "Lu:U Lt:U Ll:l Nd:9 Nl:9 No:9 Mn:m Mc:m Me:m Zl:n Zp:n So:e Sk:e Sc:$".split()
)
_CATEGORY["Zs"] = " "


_WRITTEN = {0xAD: None, 0x2060: None} | dict(zip(range(0xFB00, 0xFB07), "ff fi fl ffi ffl st st".split(), strict=True))
"""Soft hyphens and word joiners, which no name has, and ligatures of printers."""


def as_name(written: str) -> str:
    """A piece of a text as a base would write it: without line ends, soft hyphens and ligatures of printers."""
    return " ".join(written.translate(_WRITTEN).split())


def character_classes(text: str) -> str:
    """The class of each character, as a string of the same length.

    U, l and o are upper-case, lower-case and other letters, 9 digits, m marks and joiners, c Han, k katakana, h
    hiragana, t scripts of South-East Asia, e emoji and other symbols, b invisible marks of direction, $ currencies,
    r and n line ends, x characters that end a sentence; ASCII punctuation is its own class.
    """
    return text.translate({ord(character): _class_of(character) for character in set(text)})


@lru_cache(maxsize=65_536)
def _class_of(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    category = unicodedata.category(character)
    if character.isascii() and not character.isalnum() and character.isprintable():
        return "$" if character == "$" else character
    if category in ("Lo", "Lm", "Nl"):
        return next((name for name, characters in _UNSPACED if re.match(f"[{characters}]", character)), "o")
    if category == "Cf":
        return "b" if "\u202a" <= character <= "\u202e" or "\u2066" <= character <= "\u2069" else "m"
    return _CATEGORY.get(category, "x")


def split_words(text: str, classes: str) -> list[Word]:
    """The words of a text with these `character_classes`, in order, each with the gap after it."""
    found = list(_WORD.finditer(classes))
    words: list[Word] = []
    for i, match in enumerate(found):
        following = found[i + 1] if i + 1 < len(found) else None
        start, end, shape = match.start(), match.end(), match.group()
        gap, joiner = Gap.SENTENCE, ""
        if following is not None:
            between = classes[end : following.start()].replace("b", "")
            is_inner = bool(words) and words[-1].joiner not in ("", ".")
            gap, joiner = _gap(text[start:end], shape, between, following.group(), is_inner=is_inner)
        words.append(Word(start, end, shape, gap, joiner))
    return words


def _gap(word: str, shape: str, between: str, following: str, *, is_inner: bool) -> tuple[Gap, str]:
    """The kind of a gap and its joiner, from the classes in it, the word before it with its classes, and those of the
    one after it. A word that is joined to the one before it, like the H of M*A*S*H, is inner: it is not an initial.
    """
    if len(between) == 1 and between in JOINERS:
        is_missing_space = between == "." and shape[0] == "l" and following[0] == "U"
        return (Gap.SENTENCE, "") if is_missing_space else (Gap.JOINED, between)
    if between == "," and shape[-1] == "9" and following[0] == "9":
        return Gap.JOINED, ","
    if _SPACE.fullmatch(between):
        return Gap.SPACE, ""
    marked = _SPACED_MARK.fullmatch(between)
    mark = (marked.group(1) or marked.group(2)) if marked else None
    if mark == ",":
        return Gap.COMMA, ""
    # "Graves' disease", "Guns N' Roses", "J. S. Bach" and "St. Louis" continue; a quotation mostly does not.
    lowered = word.lower()
    is_initial = shape == "U" and not is_inner
    may_continue = is_initial or (lowered.endswith("s") if mark == "'" else lowered in TITLES)
    if mark == "&" or (mark is not None and may_continue):
        return Gap.SPACE, ""
    return (Gap.SENTENCE if _SENTENCE.search(between) else Gap.BREAK), ""


MAX_WORDS, MAX_CAPITALISED = 6, 9
"""Words of a phrase, and of a fully capitalised one, as long names of organisations are."""

MAX_SMALL_WORDS = 3  # "hardening of the arteries" has two
MAX_CHARACTERS = 200  # longer spans are not names, but addresses and code
MAX_CUT_WORDS = 12
"""Words of a span that starts or ends within a run of joined words, such as "TNF" in "anti-TNF". Names of enzymes have
up to 25 joined words, but a piece of such a run is shorter. Without a limit, a run of n words has n^2 pieces."""

_FIRST_HANGUL, _LAST_HANGUL = "\uac00", "\ud7a3"
MIN_UNSPACED, MAX_UNSPACED = 2, 8  # characters of a name in a script without spaces


class Shape(Enum):
    """The shape of a span."""

    NAME = "name"  # capitalised, with no capitalised word beside it
    PART = "part"  # a piece of a longer capitalised run
    ACRONYM = "acronym"  # TNF, IL-2, p53
    MIXED = "mixed"  # "type 2 diabetes", "Parkinson's disease"
    LOWER = "lower"
    UNCASED = "uncased"  # a script or a whole text without capital letters
    PIECE = "piece"  # some characters of a run without spaces
    DEFINED = "defined"  # from a definition in the passage
    GIVEN = "given"  # from the caller


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of text that may be a mention."""

    start: int
    end: int
    shape: Shape
    n_words: float = 1.0  # length in words, small words not counted. Without spaces, a character counts as half a word.
    case_matters: bool = False  # whether letter case is informative: a lower-case span is probably not a proper name
    # the longer name that it may be a part of; and what a recogniser called it, empty if nothing did.
    run: Run | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """Words that may be one name, `Georgia Institute of Technology`, with start, end and lower-case form of each; and
    whether there are small words inside, which no two names beside each other have, and which are left out.
    """

    words: tuple[tuple[int, int, str], ...]
    is_linked: bool


_END = re.compile(r"\++(?![Ulo9])|#(?![Ulo9])")
_NAME_JOINERS = frozenset("-–.&'")  # signs that join words to one name
_WITHIN_NAMES = frozenset("of de del della der des di da do dos du la las los van von y bin ibn al el".split())
"""Small words inside a name: University of Washington."""

MAX_RUN = 12  # words of the longest name that is looked at as a whole; more capitalised words are a list or a heading
SHORT_LINE, LEAST_IN_CAPITALS = 50, 3
"""Characters of a line that is shorter than wrapped text; and words of a sentence in capitals that has no letter case,
of which fewer may be acronyms."""

_MIDDLE = frozenset("-/·–+")  # a span may start or end at one of these joiners. At others it may not: U.S., AT&T.


class SpanFinder:
    """The words of one text with their properties, and the spans made from them.

    Attributes:
        cased: Whether letter case is informative at each word: not in a text or sentence in capitals or small letters,
            nor in a title.
        initial: Whether each word starts a sentence.
        capital: Whether each word is capitalised, and not only because it starts a sentence.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.classes = character_classes(text)
        self.words = split_words(text, self.classes)
        self.lowered = [text[w.start : w.end].lower() for w in self.words]
        # A sentence ends there, or a heading, a place and date, a row of a table.
        ends = [w.gap is Gap.SENTENCE or (w.is_number and self._ends_short_line(i)) for i, w in enumerate(self.words)]
        self.initial = [True, *ends][: len(self.words)]
        self.cased = self._find_cased()
        self.capital = self._find_capitals()
        self.stop = [word in STOP_WORDS and not self.capital[i] for i, word in enumerate(self.lowered)]
        self._runs = self._find_runs()

    def _find_cased(self) -> list[bool]:
        """Whether case is informative at each word."""
        capitals = {i for i, word in enumerate(self.words) if word.has_capital}
        is_cased = "l" in self.classes and any(self.lowered[i] != "i" for i in capitals)
        cased = [is_cased] * len(self.words)
        starts = [i for i, is_first in enumerate(self.initial) if is_first]
        for first, end in zip(starts, [*starts[1:], len(self.words)], strict=False):
            shapes = [self.words[i].shape for i in range(first, end) if set(self.words[i].shape) & {"U", "l"}]
            in_capitals = len(shapes) >= LEAST_IN_CAPITALS and not any("l" in shape for shape in shapes)
            if in_capitals or self._is_title(range(first, end)):
                cased[first:end] = [False] * (end - first)
        return cased

    def _is_title(self, places: range) -> bool:
        """Whether a sentence has a capital on all but small words, also where no name has one: Anemia After Surgery."""
        content = [i for i in places if self.lowered[i] not in CONNECTORS and not self.words[i].is_number]
        if len(content) < LEAST_IN_CAPITALS or not all(self.words[i].has_capital for i in content):
            return False
        return any(self.lowered[i] in STOP_WORDS and self.words[i].shape[1:2] == "l" for i in content[1:])

    def _find_capitals(self) -> list[bool]:
        """Whether each word is capitalised as a name; at the start of a sentence also if it is so elsewhere."""
        capital = [self._is_capital(i) for i in range(len(self.words))]
        small = {self.lowered[i] for i, word in enumerate(self.words) if word.shape[0] == "l"}
        names = {self.lowered[i] for i, is_name in enumerate(capital) if is_name and not self.initial[i]}
        names -= small | STOP_WORDS
        for i, word in enumerate(self.words):
            is_cased_start = self.initial[i] and self.cased[i] and word.shape[0] == "U"
            capital[i] = capital[i] or (is_cased_start and self.lowered[i] in names)
        return capital

    def _is_capital(self, i: int) -> bool:
        """Whether a word is capitalised, and not only because it starts a sentence."""
        shape = self.words[i].shape
        if not self.cased[i] or "U" not in shape:
            return False
        if not self.initial[i] or "U" in shape[1:] or self._starts_name(i):
            return True
        return len(shape) == 1 and self._has_sign(i)

    def _starts_name(self, i: int) -> bool:
        """Whether the first word of a sentence starts a name: one follows, and it is no word that may stand there.
        `Apple and Google` are two names, `Northern Ireland` and `The Beatles` one; `Visiting Ireland` is not.
        """
        if self._is_coordinated(i):
            return True
        if i + 1 == len(self.words) or self.words[i].gap not in (Gap.SPACE, Gap.JOINED):
            return False
        word = self.lowered[i]
        is_usual = word in STOP_WORDS or word in _FOREIGN or (is_common(word) and not begins_names(word))
        is_small = self.lowered[i + 1] in _WITHIN_NAMES or (self.lowered[i + 1] == "the" and word == "of")
        if is_small and self.words[i + 1].gap is Gap.SPACE and i + 2 < len(self.words):
            is_usual = word in STOP_WORDS or (is_common(word) and not is_mostly_name(word))
            return self.words[i].has_capital and self.words[i + 2].has_capital and not is_usual
        return self.words[i + 1].has_capital and (word in ARTICLES or not is_usual)

    def _is_coordinated(self, i: int) -> bool:
        """Whether a word that is no stop word is joined by "and" or "or" to a capitalised one."""
        if i + 2 >= len(self.words) or self.lowered[i + 1] not in ("and", "or") or self.lowered[i] in STOP_WORDS:
            return False
        is_close = self.words[i].gap is Gap.SPACE and self.words[i + 1].gap is Gap.SPACE
        return is_close and self.words[i].has_capital and self.words[i + 2].has_capital

    def spans(self) -> Iterator[Span]:
        """All candidate spans, in the order of their starts."""
        for i, word in enumerate(self.words):
            if word.is_unspaced:
                yield from self._pieces(word)
            elif word.end - word.start > MAX_CHARACTERS:
                continue
            elif word.shape[0] == "e":
                yield Span(word.start, word.end, Shape.UNCASED)
            elif self.may_cut(i - 1) and not self.stop[i]:
                # A Korean word without its last one or two syllables: particles follow a name without a space.
                if _FIRST_HANGUL <= self.text[word.start] <= _LAST_HANGUL and "m" not in word.shape:
                    for end in (word.end - 2, word.end - 1):
                        if end - word.start >= MIN_UNSPACED:
                            yield Span(word.start, end, Shape.PIECE)
                yield from self._starting_at(i)

    def _find_runs(self) -> list[Run | None]:
        """The longer name that each word is in, if there is one."""
        runs: list[Run | None] = [None] * len(self.words)
        i = 0
        while i < len(self.words):
            last, places = i, [i]
            is_title = i > 0 and self.lowered[i - 1] in ROLES
            is_start = self._in_name(i) and self.lowered[i] not in ARTICLES
            while is_start and (following := self._next_in_name(last, is_title=is_title)) is not None:
                last = following
                places.append(last)
            if 1 < len(places) <= MAX_RUN:
                words = tuple((self.words[k].start, self.words[k].end, self.lowered[k]) for k in places)
                run = Run(words, is_linked=last - i >= len(places))
                runs[i : last + 1] = [run] * (last + 1 - i)
            i = last + 1
        return runs

    def _in_name(self, i: int) -> bool:
        """Whether a word may be part of a name of several words; titles and roles stand beside names."""
        word = self.lowered[i]
        if word in ROLES or word in DATES or word == "i":
            return False
        if self.cased[i]:
            return self.capital[i]
        if not self.words[i].shape.strip("9moe") or self.words[i].is_unspaced or word in STOP_WORDS:
            return False
        return not is_common(word) or begins_names(word)

    def _next_in_name(self, i: int, *, is_title: bool) -> int | None:
        """The next word of the name that word i is in; None if it ends there. After a title no small word is in a name:
        President of France, Mrs Smith of Leeds.
        """
        word = self.words[i]
        if i + 1 == len(self.words) or not (word.gap is Gap.SPACE or word.joiner in _NAME_JOINERS):
            return None
        if self._ends_short_line(i):
            return None
        if self._in_name(i + 1):
            return i + 1
        k = i + 1
        while (
            k < len(self.words) and k <= i + 2 and self.lowered[k] in _WITHIN_NAMES and self.words[k].gap is Gap.SPACE
        ):
            k += 1
        is_linked = i + 1 < k < len(self.words) and self.cased[i] and self._in_name(k)
        return k if is_linked and not is_title else None

    def _ends_short_line(self, i: int) -> bool:
        """Whether a line ends after word i that is too short to be wrapped: a heading, or a row of a table."""
        end, following = self.words[i].end, self.words[i + 1].start
        line_end = next((k for k in range(end, following) if self.text[k] in "\r\n"), None)
        if line_end is None:
            return False
        line_start = max(self.text.rfind("\n", 0, line_end), self.text.rfind("\r", 0, line_end))
        return line_end - line_start <= SHORT_LINE

    def _starting_at(self, i: int) -> Iterator[Span]:
        """The spans that start at word i."""
        n_words, n_small, n_commas, n_lower = 1, 0, 0, 0
        starts_within = i > 0 and self.words[i - 1].gap is Gap.JOINED
        for j in range(i, len(self.words)):
            word = self.words[j]
            is_long = j - i >= MAX_CUT_WORDS
            if starts_within and is_long:
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
            may_end = self.may_cut(j) or (word.joiner == "'" and self.lowered[j + 1] == "s")
            is_cut = is_long and word.gap is Gap.JOINED
            if may_end and not is_cut and (not small or self._is_clitic(j)) and self._is_likely(i, j):
                # A span of mixed words cuts no longer name, unlike "friend in New" in "friend in New York".
                is_whole = all(self.capital[k] or self.words[k].is_number for k in range(i, j + 1))
                if is_whole or not self.cased[i] or self._run(i, j) is None:
                    yield self._span(i, j, n_words - n_small)
            if word.gap in (Gap.BREAK, Gap.SENTENCE) or j + 1 == len(self.words):
                return
            if word.gap is Gap.COMMA:
                n_commas += 1
                if n_commas > 1 or not (self.capital[j] and self.capital[j + 1]):
                    return
            n_words += word.gap is not Gap.JOINED

    def _is_clitic(self, j: int) -> bool:
        """Whether word j is a genitive s, which may end a name: McDonald's."""
        return j > 0 and self.lowered[j] == "s" and self.words[j - 1].joiner == "'"

    def _is_likely(self, i: int, j: int) -> bool:
        """Whether words i to j are more than a common word, a number, or a count of things."""
        first = self.words[i]
        if i == j:
            if first.is_number:
                return self._has_currency(i) or self.classes[first.end : first.end + 1] == "%"
            if len(first.shape) == 1:
                return (self.capital[i] and self._has_sign(i)) or (first.shape == "U" and self._is_beside_sign(i))
            return self.capital[i] or self.lowered[i] not in COMMON_WORDS
        if all(word.is_number for word in self.words[i : j + 1]):
            return all(word.joiner in {"/", "-", ":"} for word in self.words[i:j])
        if first.is_number and first.gap is Gap.SPACE and not self._has_currency(i):
            return self.words[i + 1].has_capital or self.words[i + 1].shape[0] == "o"
        return any(self.capital[k] or self.lowered[k] not in COMMON_WORDS for k in range(i, j + 1))

    def _has_sign(self, i: int) -> bool:
        """Whether a sign that may end a name follows a word: C++, C#."""
        return self._end(i, i) > self.words[i].end

    def _is_beside_sign(self, i: int) -> bool:
        """Whether a word is beside one with a sign in a list: `C++, C#, C`, `C and C++`."""
        for step in (-1, 1):
            k = i + step
            is_joined = 0 <= k < len(self.words) and self.lowered[k] in ("and", "or")
            k += step if is_joined else 0
            is_item = is_joined or (0 <= k < len(self.words) and self.words[min(i, k)].gap in (Gap.COMMA, Gap.BREAK))
            if is_item and 0 <= k < len(self.words) and self._has_sign(k):
                return True
        return False

    def may_cut(self, i: int) -> bool:
        """Whether a span may end at word i, and another one start at the next word: not after `non-`."""
        if not 0 <= i < len(self.words):
            return True
        return self.words[i].gap is not Gap.JOINED or (self.words[i].joiner in _MIDDLE and self.lowered[i] != "non")

    def span_at(self, i: int, j: int, start: int, end: int) -> Span:
        """The span of words i to j with the given offsets, which may include signs around the words."""
        n_words = sum(not self.stop[k] and self.words[k].gap is not Gap.JOINED for k in range(i, j)) + 1
        return Span(start, end, self._shape(i, j), n_words, self._case_matters(i), self._run(i, j))

    def _run(self, i: int, j: int) -> Run | None:
        """The name that words i to j are a part of; None if they are all of it, or more."""
        run = self._runs[i] or self._runs[j]
        if run is None:
            return None
        is_part = run.words[0][0] < self.words[i].start or self.words[j].end < run.words[-1][1]
        return run if is_part else None

    def _has_currency(self, i: int) -> bool:
        start = self.words[i].start
        return self.words[i].is_number and start > 0 and self.classes[start - 1] == "$"

    def _span(self, i: int, j: int, n_words: int) -> Span:
        start = self.words[i].start
        before = self.classes[max(0, start - 2) : start]
        has_point_before = self.capital[i] and before in (".", " .", "n.")  # .NET
        start -= has_point_before or self._has_currency(i)
        shape = self._shape(i, j)
        return Span(start, self._end(i, j), shape, max(1, n_words), self._case_matters(i), self._run(i, j))

    def _case_matters(self, i: int) -> bool:
        """Whether the letter case of word i is informative: not at the start of a sentence, unless a name is likely."""
        return self.cased[i] and (not (self.initial[i] and self.words[i].has_capital) or self._is_coordinated(i))

    def _end(self, i: int, j: int) -> int:
        """End of a span, with the symbols that belong to its last word: C++, C#, 5%, U.S., Inc."""
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
        if not self.cased[i] or not ("U" in shapes or "l" in shapes):
            return Shape.UNCASED
        content = [k for k in range(i, j + 1) if not (self.stop[k] or self.words[k].is_number or self._is_clitic(k))]
        n_capital = sum(self.capital[k] for k in content)
        is_word = all(word.joiner for word in self.words[i:j])
        if is_word and (shapes.count("U") > 1 or ("9" in shapes and len(shapes) > 1)):
            return Shape.PART if self._run(i, j) is not None else Shape.ACRONYM
        if n_capital == 0:
            return Shape.LOWER
        # "Alexander the Great" is one name, "In Boston the Red Sox" has two.
        has_loose_article = any(
            self.lowered[k] in ARTICLES and self.stop[k] and self.capital[k - 1] for k in range(i + 1, j)
        )
        if n_capital < len(content) or has_loose_article:
            return Shape.MIXED
        return Shape.PART if self._run(i, j) is not None else Shape.NAME

    def _pieces(self, word: Word) -> Iterator[Span]:
        """Pieces of a run without spaces, cut between characters but never before a combining mark."""
        kind = word.shape[0]
        if kind == "h":
            return  # mostly particles and endings
        cuts = [word.start + k for k, one in enumerate(word.shape) if one != "m"]
        n = len(cuts)
        cuts.append(word.end)
        is_uncut = kind == "k" and n >= MIN_UNSPACED  # usually one foreign name, however long
        if (n > MAX_UNSPACED or is_uncut) and word.end - word.start <= MAX_CHARACTERS:
            yield Span(word.start, word.end, Shape.UNCASED, n / 2)
        if kind == "k":
            return
        for a in range(n):
            for b in range(a + MIN_UNSPACED, min(a + MAX_UNSPACED, n) + 1):
                is_whole = b - a == n
                start, end = cuts[a], cuts[b]
                has_particle = self.text[start] in HAN_PARTICLES or self.text[end - 1] in HAN_PARTICLES
                if is_whole or not has_particle:
                    yield Span(start, end, Shape.UNCASED if is_whole else Shape.PIECE, (b - a) / 2)
