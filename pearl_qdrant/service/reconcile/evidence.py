"""What the properties of a query say of its candidates."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from rapidfuzz import fuzz

from pearl_qdrant.lexical.keys import SMALL_WORDS
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.service.queues import check_time

NEAR_RATIO = 85.0
"""Edit similarity in percent from which two texts are near."""

NEAR_SHARE = 0.01
"""Two numbers are near if they differ by so much of the larger one."""

_TEXT_WORDS = 5
"""From so many words on, a value is a text: texts that share half of the words of the shorter one are near."""

_COMPARED_VALUES = 50
"""Of an entity with more values for a property, such as its links, others count only if they are equal as written."""

_DATE = re.compile(r"(-?[0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2})(?:[T ][0-9:.]+(?:Z|[+-][0-9:]+)?)?)?)?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,2})?")


class Level(Enum):
    """How well two values agree. The number is the value of the feature that clients see."""

    EQUAL = 1.0
    NEAR = 0.5
    DIFFERENT = 0.0
    MISSING = -1.0


@lru_cache(maxsize=8192)
def compare(given: str, has: str) -> Level:
    """How well two values agree: as dates, as numbers, or as texts.

    Equal are texts of the same letters and digits, numbers of the same value, and dates of the same day. Near are
    texts with a slip or with more words, numbers within 1 %, and dates where one says more than the other.
    """
    if given == has:
        return Level.EQUAL
    return _compare_dates(given, has) or _compare_numbers(given, has) or _compare_texts(given, has)


def agreement(given: Sequence[str], has: Sequence[str]) -> Level:
    """How well an entity's values agree with those that a client gives, of which one must agree.

    Args:
        given: At least one.
        has: Of the entity; empty: nothing is known.
    """
    return max((_best(one, has) for one in given), key=lambda level: level.value) if has else Level.MISSING


def _best(given: str, has: Sequence[str]) -> Level:
    if given in has:
        return Level.EQUAL
    best = Level.DIFFERENT
    for other in has[:_COMPARED_VALUES]:
        level = compare(given, other)
        if level is Level.EQUAL:
            return level
        if level is Level.NEAR:
            best = level
    return best


def _compare_dates(given: str, has: str) -> Level | None:
    """None if one of them is no date, or both are years alone."""
    first, second = _DATE.fullmatch(given.strip()), _DATE.fullmatch(has.strip())
    if not first or not second or not (first[2] or second[2]):
        return None
    parts = [(one, other) for one, other in zip(first.groups(), second.groups(), strict=True) if one and other]
    if any(one != other for one, other in parts):
        return Level.DIFFERENT
    n_known = [sum(part is not None for part in found.groups()) for found in (first, second)]
    return Level.EQUAL if n_known[0] == n_known[1] else Level.NEAR


def _compare_numbers(given: str, has: str) -> Level | None:
    """None if one of them is no number."""
    if not _NUMBER.fullmatch(given.strip()) or not _NUMBER.fullmatch(has.strip()):
        return None
    first, second = float(given), float(has)
    if first == second:
        return Level.EQUAL
    is_near = abs(first - second) <= NEAR_SHARE * max(abs(first), abs(second))
    return Level.NEAR if is_near else Level.DIFFERENT


def _compare_texts(given: str, has: str) -> Level:
    first, second = _fold(given), _fold(has)
    if not first or not second:  # signs alone
        return Level.EQUAL if given.strip().casefold() == has.strip().casefold() else Level.DIFFERENT
    if first.replace(" ", "") == second.replace(" ", ""):
        return Level.EQUAL
    numbers = [{word for word in one.split() if word.isdigit()} for one in (first, second)]
    if not (numbers[0] <= numbers[1] or numbers[1] <= numbers[0]):  # codes, not slips
        return Level.DIFFERENT
    if fuzz.ratio(first, second, score_cutoff=NEAR_RATIO):
        return Level.NEAR
    words = [set(one.split()) - SMALL_WORDS or set(one.split()) for one in (first, second)]
    shorter, longer = sorted(words, key=len)
    common = len(shorter & longer)
    if common == len(shorter) or (len(shorter) >= _TEXT_WORDS and 2 * common >= len(shorter)):
        return Level.NEAR
    return Level.DIFFERENT


@lru_cache(maxsize=4096)
def _fold(text: str) -> str:
    return fold_name(text)


RIGHT: Mapping[Level, float] = {Level.EQUAL: 0.85, Level.NEAR: 0.06, Level.DIFFERENT: 0.09}
"""How well the right entity's values agree with those of a client's table, where both have one."""

OTHER: Mapping[Level, float] = {Level.EQUAL: 0.02, Level.NEAR: 0.03, Level.DIFFERENT: 0.95}
"""The same of another entity, before any is counted."""

COUNTED_AS = 50
"""`OTHER` counts as much as so many entities of the sample."""

LOWEST_CHANCE = 0.01
"""No value is taken to be rarer than this: entities of one name share values more often than others do."""

HIGHEST_FACTOR = 1000.0
"""All properties together multiply or divide the odds by at most this, since they may say the same thing twice."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A property that a query gives.

    Attributes:
        property_id: Its id.
        values: The values, at least one.
    """

    property_id: str
    values: tuple[str, ...]

    def level(self, has: Sequence[str]) -> Level:
        """How well the values of an entity agree. Raises TimedOutError if the time of the request is over."""
        check_time()
        return agreement(self.values, has)


def chances(condition: Condition, sample: Sequence[Sequence[str]]) -> dict[Level, float]:
    """How often an entity that is not the right one agrees so well.

    Args:
        sample: The values of entities of the base that have the property.
    """
    counts = Counter(condition.level(has) for has in sample)
    n = len(sample) - counts[Level.MISSING]
    found = {level: (counts[level] + COUNTED_AS * OTHER[level]) / (n + COUNTED_AS) for level in OTHER}
    return {level: max(chance, LOWEST_CHANCE) for level, chance in found.items()}


def factor(level: Level, chance: Mapping[Level, float]) -> float:
    """What a property multiplies the odds of a candidate with."""
    return 1.0 if level is Level.MISSING else RIGHT[level] / chance[level]


def updated(probabilities: Sequence[float], factors: Sequence[float]) -> list[float]:
    """The probabilities after the evidence.

    Args:
        probabilities: Of the candidates by their names; what is missing to 1 is that of NIL.
        factors: The product of the factors of each.
    """
    nil = max(0.0, 1.0 - math.fsum(probabilities))
    bounded = [min(max(one, 1 / HIGHEST_FACTOR), HIGHEST_FACTOR) for one in factors]
    weights = [probability * one for probability, one in zip(probabilities, bounded, strict=True)]
    total = nil + math.fsum(weights)
    return [weight / total for weight in weights]
