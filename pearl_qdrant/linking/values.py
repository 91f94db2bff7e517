"""Compares a value of a table's row with those that the base has, by what they are.

    number      12,990.50   8.1 %   $ 19.99      how far apart, of the larger one
    date        1998   1998-04   04/05/1998      the parts that both have
    code        6301   B00-0006   555-0134       letters and digits, and slips of them
    text        all else                         the words that both have, rare ones more

What a column holds is known by a sample of its values in the base. A given value that is not of that kind, as text
beside prices, says nothing, and so does a cell that stands for nothing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from typing import Literal

from rapidfuzz import fuzz
from rapidfuzz.distance import DamerauLevenshtein

from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.mentions import stands_for_nothing
from pearl_qdrant.pieces import pause

Kind = Literal["number", "date", "code", "text"]
KINDS: tuple[Kind, ...] = ("number", "date", "code", "text")

LEVELS = 5
"""Levels of agreement of two values, from 0, equal, to 4, different."""

EQUAL, DIFFERENT = 0, LEVELS - 1

MOST_CHARACTERS = 500  # of a value are compared
MOST_VALUES = 50  # of an entity, such as its links; others count only if they are equal as written
SAMPLED = 60  # values of a column that are compared with each other, to know how often two entities agree

_IS_KIND = 0.8  # share of the values of a column that are of one kind
_APART = (1e-9, 0.02, 0.1, 0.35)  # of the larger number, to each level but the last
_SHARED = (0.9, 0.5, 0.2)  # of the weight of the words of the shorter text, to the levels after the first
_NEAR_TEXT, _NEAR_WORD = 87.0, 84.0  # edit similarities in percent
_LONG_WORD = 5  # letters from which a word may have a slip
_LEAST_CODE = 4  # characters
_DIGITS_OF_SLIP = 6  # of what may be a date with a slip

_NUMBER = re.compile(r"[^\d.,+-]{0,5}([+-]?\d[\d.,' ]*(?:[eE][+-]?\d{1,2})?)[^\d]{0,12}")
_YEAR = re.compile(r"(1[4-9]\d\d|20\d\d)(?:\.0)?")
_ISO = re.compile(r"(\d{4})-(\d\d)(?:-(\d\d)(?:[T ][\d:.]+(?:Z|[+-][\d:]+)?)?)?")
_DAY = re.compile(r"(\d{1,2})[./-](\d{1,2})[./-](\d{4})")
_DIGITS_OF_DAY = re.compile(r"(1[89]\d\d|20\d\d)(\d\d)(\d\d)")


def is_missing(value: str) -> bool:
    """Whether a cell says nothing."""
    return not value.strip() or stands_for_nothing(value)


@lru_cache(maxsize=1 << 14)
def number_of(value: str) -> float | None:
    """A number, with its sign or unit left out; None if the value is none. The last of two signs is the decimal one."""
    found = _NUMBER.fullmatch(value.strip())
    if not found:
        return None
    text = re.sub("[' ]", "", found[1])
    if "," in text and "." in text:
        decimal = max(",.", key=text.rfind)
        text = text.replace("," if decimal == "." else ".", "").replace(decimal, ".")
    elif "," in text:
        text = text.replace(",", "" if re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+", text) else ".")
    try:
        number = float(text.rstrip("."))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


@lru_cache(maxsize=1 << 14)
def date_of(value: str) -> tuple[int, ...] | None:
    """Year, month and day of a date, as far as it says them; of `04/05/1998` the day is first where it may be."""
    text = value.strip()
    if found := _YEAR.fullmatch(text):
        return (int(found[1]),)
    if found := _ISO.fullmatch(text) or _DIGITS_OF_DAY.fullmatch(text):
        parts = [int(part) for part in found.groups() if part]
    elif found := _DAY.fullmatch(text):
        day, month, year = map(int, found.groups())
        parts = [year, *((month, day) if month <= 12 else (day, month))]
    else:
        return None
    try:
        date(*[*parts, 1, 1][:3])
    except ValueError:
        return None
    return tuple(parts)


@lru_cache(maxsize=1 << 14)
def _code_of(value: str) -> str:
    return "".join(one for one in value.casefold() if one.isalnum())


@lru_cache(maxsize=1 << 14)
def _fold(value: str) -> str:
    return fold_name(value[:MOST_CHARACTERS])


def _is_code(value: str) -> bool:
    text = value.strip()
    return " " not in text and any(one.isdigit() for one in text) and len(_code_of(text)) >= _LEAST_CODE


def kind_of(values: Sequence[str]) -> Kind:
    """What a column holds, by some of its values."""

    def most(is_one: Iterable[object]) -> bool:
        return sum(map(bool, is_one)) >= _IS_KIND * len(values)

    if not values:
        return "text"
    if most(map(date_of, values)):
        return "date"
    lengths = Counter(len(value.strip()) for value in values if value.strip().isdecimal())
    if lengths and max(lengths) >= _LEAST_CODE and max(lengths.values()) >= _IS_KIND * len(values):
        return "code"  # numbers of one length, such as postcodes
    if most(number_of(value) is not None for value in values):
        return "number"
    return "code" if most(map(_is_code, values)) else "text"


def _number_level(given: str, has: str) -> int | None:
    first, second = number_of(given), number_of(has)
    if first is None or second is None:
        return None
    apart = abs(first - second) / max(abs(first), abs(second), 1e-12)
    return next((level for level, most in enumerate(_APART) if apart <= most), DIFFERENT)


def _date_level(given: str, has: str) -> int | None:
    first, second = date_of(given), date_of(has)
    if first is None or second is None:  # a slip may make a date none: 1962-05-255
        digits = [re.sub(r"\D", "", one) for one in (given, has)]
        if min(map(len, digits)) < _DIGITS_OF_SLIP:
            return None
        return 2 if DamerauLevenshtein.distance(*digits, score_cutoff=2) <= 2 else DIFFERENT
    if all(one == other for one, other in zip(first, second, strict=False)):
        return EQUAL if len(first) == len(second) else 1
    if len(first) == len(second) == 3:
        texts = ["".join(f"{part:02}" for part in one) for one in (first, second)]
        is_slip = DamerauLevenshtein.distance(*texts) <= 1 or (first[0], first[2], first[1]) == second
        return 2 if is_slip or sum(map(int.__eq__, first, second)) == 2 else DIFFERENT
    return 3 if abs(first[0] - second[0]) == 1 else DIFFERENT


def _code_level(given: str, has: str) -> int | None:
    first, second = _code_of(given), _code_of(has)
    if not first or not second:
        return None
    if first == second or (first.isdecimal() and second.isdecimal() and int(first) == int(second)):
        return EQUAL
    if min(len(first), len(second)) >= _LEAST_CODE and (first in second or second in first):
        return 1
    n_edits = DamerauLevenshtein.distance(first, second, score_cutoff=2)
    return 1 + n_edits if n_edits <= 2 and min(len(first), len(second)) >= _LEAST_CODE else DIFFERENT


@dataclass(frozen=True, slots=True)
class BaseColumn:
    """What a column holds, by a sample of the entities that have a value for it.

    Attributes:
        kind: What its values are.
        n: Entities of the sample.
        counts: How many of them have a value, by its form without case and signs.
        words: How many values of texts have a word.
        other: How often two of the entities agree at each level.
    """

    kind: Kind
    n: int
    counts: Mapping[str, int] = field(repr=False)
    words: Mapping[str, int] = field(repr=False)
    other: tuple[float, ...] = (0.0,) * LEVELS

    @classmethod
    def of(cls, sample: Sequence[Sequence[str]]) -> BaseColumn:
        """The column with the values of each entity of a sample that has some."""
        known = [kept for has in sample if (kept := [one for one in has if not is_missing(one)])]
        kind = kind_of([one for has in known for one in has][:1000])
        counts = Counter(form for has in known for form in {_form(kind, one) for one in has})
        words: Counter[str] = Counter()
        if kind == "text":
            words.update(word for has in known for word in {word for one in has for word in _fold(one).split()})
        column = cls(kind, len(known), counts, words)
        some = known[:SAMPLED]
        found = [column.level(one, two) for i, one in enumerate(some) for two in some[:i]]
        agreeing = Counter(level for level in found if level is not None)
        total = sum(agreeing.values()) or 1
        return cls(kind, len(known), counts, words, tuple(agreeing[level] / total for level in range(LEVELS)))

    def level(self, given: Sequence[str], has: Sequence[str]) -> int | None:
        """The best level at which a value of one side agrees with one of the other; None if one of them says nothing,
        or is of another kind.
        """
        if not given or not has:
            return None
        pause()
        if not set(given).isdisjoint(has):
            return EQUAL
        found = [level for one in given for two in has[:MOST_VALUES] if (level := self._level(one, two)) is not None]
        return min(found, default=None)

    def _level(self, given: str, has: str) -> int | None:
        if is_missing(given) or is_missing(has):
            return None
        if self.kind == "text":
            return self._text_level(given, has)
        return {"number": _number_level, "date": _date_level, "code": _code_level}[self.kind](given, has)

    def _text_level(self, given: str, has: str) -> int | None:
        first, second = _fold(given), _fold(has)
        if not first or not second:  # signs alone
            return EQUAL if given.strip() == has.strip() else None
        if first.replace(" ", "") == second.replace(" ", ""):
            return EQUAL
        shared = self._shared(set(first.split()), set(second.split()))
        level = next((1 + i for i, least in enumerate(_SHARED) if shared >= least), DIFFERENT)
        is_near = level > 1 and not any(map(str.isdigit, first + second)) and fuzz.ratio(first, second) >= _NEAR_TEXT
        return 1 if is_near else level

    def _shared(self, first: set[str], second: set[str]) -> float:
        """The share of the words of the lighter text that the other one has, too; slips of long ones count."""
        weights = [sum(map(self._weight, one)) for one in (first, second)]
        few, many = (first, second) if weights[0] <= weights[1] else (second, first)
        others = [word for word in many if len(word) >= _LONG_WORD and word not in few]

        def has(word: str) -> bool:
            if word in many:
                return True
            is_long = len(word) >= _LONG_WORD and not word.isdecimal()
            return is_long and any(fuzz.ratio(word, other) >= _NEAR_WORD for other in others if not other.isdecimal())

        return sum(self._weight(word) for word in few if has(word)) / (min(weights) or 1.0)

    def _weight(self, word: str) -> float:
        """How telling a word is."""
        return math.log((self.n + 1) / (self.words.get(word, 0) + 0.5)) + 0.05

    def how_many(self, given: Sequence[str]) -> int:
        """Entities of the sample that have one of these values."""
        return max((self.counts.get(_form(self.kind, one), 0) for one in given), default=0)


def _form(kind: Kind, value: str) -> str:
    """The form in which equal values are counted."""
    if kind == "number" and (number := number_of(value)) is not None:
        return f"{number:.12g}"
    if kind == "date" and (parts := date_of(value)) is not None:
        return "-".join(map(str, parts))
    return _code_of(value) if kind == "code" else _fold(value).replace(" ", "")
