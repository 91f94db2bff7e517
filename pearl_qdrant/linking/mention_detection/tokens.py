"""Words and the gaps between them, with exact offsets; and English words that are no names (`words.json`).

Other languages work without lists: they get more candidate spans, which the base then rejects.

Each character is replaced by one letter for its class. So regular expressions over the string of classes find words of
every script, and an offset in that string is an offset in the text. A combining mark or a joiner belongs to the
character before it; a control character, a lone surrogate or an unassigned code point ends a word and a sentence.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from importlib.resources import files

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
    """The kind of a gap and its joiner, from the classes in it and the words beside it.

    Args:
        word: The word before the gap; `shape` has its classes.
        following: The classes of the word after the gap.
        is_inner: Whether the word is joined to the one before it, like the H of M*A*S*H; then it is not an initial.
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
