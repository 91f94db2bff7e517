"""Makes percentages, ordinals, times and amounts of money in forms that the training rules never make.

Real lists of such names are short. Training uses the rules of `training.examples.numbers`; a head that has learned only
their patterns fails on the names made here.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

from training.examples.example import name_key
from training.examples.numbers import number_names, ordinal_words_of, words_of

_HALF_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def _percent(rng: random.Random) -> str:
    low, high, tenth = rng.randrange(1, 60), rng.randrange(60, 100), rng.randrange(10)
    words = words_of(rng.randrange(2, 99))
    return rng.choice(
        (
            f"between {low} and {high} percent",
            f"{low}-{high}%",
            f"{low} to {high} per cent",
            f"nearly {high}%",
            f"up to {low}.{tenth} percent",
            f"just over {low} per cent",
            f"less than {words} percent",
            f"{low}.{tenth} pct",
            f"minus {low} percent",
            f"+{low}.{tenth}%",
            f"-{low}%",
            f"a mere {low}.{tenth} %",
            f"roughly {words} per cent",
            f"{low} and a half percent",
            f"half of {words} percent",
            f"({low}%)",
        )
    )


def _ordinal(rng: random.Random) -> str:
    number = rng.randrange(1, 100)
    thousands = rng.randrange(1000, 10_000)
    ending = "th" if thousands % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(thousands % 10, "th")
    return rng.choice(
        (
            f"{thousands:,}{ending}",
            f"{thousands}{ending}",
            f"{words_of(rng.randrange(1, 10))} hundred and {ordinal_words_of(number)}",
            f"the {words_of(rng.randrange(1, 10))} hundred and {ordinal_words_of(number)}",
            f"one hundred {ordinal_words_of(number)}",
            f"{rng.choice(_HALF_TENS)} {ordinal_words_of(rng.randrange(1, 10))}",
            f"the very {ordinal_words_of(number)}",
            f"{ordinal_words_of(number)}-to-last",
            f"{words_of(number)} thousandth",
            f"{words_of(number)} hundredth",
            f"his {ordinal_words_of(number)}",
            f"every {ordinal_words_of(number)}",
        )
    )


def _time(rng: random.Random) -> str:
    hour, minute = rng.randrange(1, 13), rng.randrange(1, 60)
    words, many = words_of(hour), rng.randrange(2, 50)
    return rng.choice(
        (
            f"{hour}.{minute:02d} {rng.choice(('am', 'pm'))}",
            f"{rng.randrange(24):02d}:{minute:02d}:{rng.randrange(60):02d}",
            f"{hour}:{minute:02d} in the {rng.choice(('morning', 'evening', 'afternoon'))}",
            f"{words_of(minute)} minutes past {words}",
            f"{rng.choice(('ten', 'twenty', 'five'))} to {words}",
            f"quarter past {words}",
            f"{many} hours and {minute} minutes",
            f"{rng.randrange(24):02d}{minute:02d} hours",
            f"{words} and a half hours",
            f"just after {hour} {rng.choice(('am', 'pm', 'a.m.', 'p.m.'))}",
            f"{hour}:{minute:02d} {rng.choice(('GMT', 'UTC', 'EST', 'CET'))}",
            f"about {many} minutes",
            f"{rng.choice(('early', 'late'))} {rng.choice(('last night', 'in the afternoon', 'this evening'))}",
            f"{words} in the morning",
            f"a few {rng.choice(('minutes', 'seconds', 'hours'))}",
            f"{many} min {minute} s",
        )
    )


def _money(rng: random.Random) -> str:
    low, high = rng.randrange(1, 50), rng.randrange(50, 1000)
    words = words_of(rng.randrange(1, 100))
    return rng.choice(
        (
            f"{rng.choice('$€£')}{low}.{rng.randrange(10)}{rng.choice(('bn', 'm', 'k'))}",
            f"between ${low} and ${high}",
            f"{words} {rng.choice(('Canadian', 'Australian', 'Hong Kong'))} dollars",
            f"{high} {rng.choice(('Swedish kronor', 'roubles', 'zloty', 'Swiss francs', 'dirhams', 'shillings'))}",
            f"{low} crore rupees",
            f"{rng.choice(('HK$', 'C$', 'R$', '₹', '₩'))}{high}",
            f"{high} {rng.choice(('EUR', 'USD', 'GBP', 'INR'))}",
            f"nearly ${high} million",
            f"{words} dollars and fifty cents",
            f"several {rng.choice(('million', 'thousand', 'hundred'))} {rng.choice(('euros', 'dollars', 'pounds'))}",
            f"half a million {rng.choice(('pounds', 'dollars', 'euros'))}",
            f"{words} thousand {rng.choice(('pounds', 'yen', 'euros'))}",
            f"as much as £{high}",
            f"${high} a month",
            f"{high}p",
            f"{words} quid",
        )
    )


_MAKERS: dict[str, Callable[[random.Random], str]] = {
    "MONEY": _money,
    "ORDINAL": _ordinal,
    "PERCENT": _percent,
    "TIME": _time,
}

_TRAINING_NAMES = 10_000
"""Names of each type that are drawn to learn what the training rules make; training draws fewer."""


@cache
def training_keys() -> frozenset[str]:
    """Keys (`splits.name_key`) of the names that the training rules make."""
    return frozenset(name_key(name) for name, _ in number_names(_TRAINING_NAMES, random.Random(0)))


def unseen_number_names(n_each: int, rng: random.Random, *, seen: frozenset[str]) -> dict[str, list[str]]:
    """Up to `n_each` names of each type, with distinct keys that are not in `seen`."""
    made: dict[str, list[str]] = {}
    for kind, make in _MAKERS.items():
        names: dict[str, str] = {}
        for _ in range(50 * n_each):
            name = make(rng)
            if len(names) < n_each and name_key(name) not in seen:
                names.setdefault(name_key(name), name)
        made[kind] = list(names.values())
    return made
