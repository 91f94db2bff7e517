"""Generate dates, times, money, percentages, quantities, ordinals and cardinals as people write them. English.

Their types are known by construction. Rules generate them because lists of such names are short and one-sided.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

_MONTHS = ("January February March April May June July August September October November December").split()
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
ONES = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
ORDINAL_ONES = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
    "fifteenth sixteenth seventeenth eighteenth nineteenth"
).split()
ORDINAL_TENS = "twentieth thirtieth fortieth fiftieth sixtieth seventieth eightieth ninetieth".split()
_SCALES = ("hundred", "thousand", "million", "billion")
_UNITS = (
    *"km kilometres kilometers miles metres meters m cm mm feet ft inches kg kilograms grams g mg tonnes tons".split(),
    *"pounds litres liters ml gallons hectares acres degrees mph km/h GB MB watts kW volts".split(),
    "square kilometres",
)
_CURRENCIES = ("dollars", "euros", "pounds", "yen", "francs", "rupees", "pesos", "cents", "yuan", "US dollars")
_SIGNS = ("$", "€", "£", "¥", "US$", "$ ", "A$")


def words_of(number: int) -> str:
    """Write a number from 1 to 99 in words."""
    if number < 20:
        return ONES[number - 1]
    tens, ones = divmod(number, 10)
    return TENS[tens - 2] + (f"-{ONES[ones - 1]}" if ones else "")


def ordinal_words_of(number: int) -> str:
    """Write an ordinal from 1 to 99 in words."""
    if number < 20:
        return ORDINAL_ONES[number - 1]
    tens, ones = divmod(number, 10)
    return f"{TENS[tens - 2]}-{ORDINAL_ONES[ones - 1]}" if ones else ORDINAL_TENS[tens - 2]


def _digits_ordinal(number: int) -> str:
    """Write an ordinal in digits, as 1st, 22nd, 113th."""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _figure(rng: random.Random) -> str:
    """Draw a positive number in digits, in any usual format."""
    value = int(10 ** rng.uniform(0, 6))
    return rng.choice((str(value), f"{value:,}", f"{value}.{rng.randrange(10)}", f"{rng.randrange(1, 100)}"))


def _cardinal(rng: random.Random) -> str:
    small = words_of(rng.randrange(1, 100))
    return rng.choice(
        (
            _figure(rng),
            small,
            f"{small} {rng.choice(_SCALES)}",
            f"{_figure(rng)} million",
            f"about {_figure(rng)}",
            f"more than {small}",
            rng.choice(("dozens", "hundreds", "thousands", "a dozen", "half a million", "a hundred", "zero", "a pair")),
        )
    )


def _date(rng: random.Random) -> str:
    day, month, year = rng.randrange(1, 29), rng.choice(_MONTHS), rng.randrange(1000, 2100)
    return rng.choice(
        (
            f"{day} {month} {year}",
            f"{month} {day}, {year}",
            f"{month} {year}",
            f"{month} {day}",
            f"{day} {month}",
            f"{_digits_ordinal(day)} of {month}",
            f"{year}-{_MONTHS.index(month) + 1:02d}-{day:02d}",
            f"{day}/{_MONTHS.index(month) + 1}/{year}",
            str(year),
            f"the {year // 10 * 10}s",
            f"the {_digits_ordinal(rng.randrange(1, 22))} century",
            rng.choice(_DAYS),
            month,
            f"last {rng.choice(_DAYS)}",
            f"{words_of(rng.randrange(1, 60))} {rng.choice(('days', 'weeks', 'months', 'years', 'decades'))}",
            f"{rng.randrange(1, 60)} {rng.choice(('days', 'weeks', 'months', 'years'))} ago",
            f"summer {year}",
            f"{year}-{(year + 1) % 100:02d}",
            f"next {rng.choice(('week', 'month', 'year', 'spring'))}",
        )
    )


def _time(rng: random.Random) -> str:
    hour, minute = rng.randrange(1, 13), rng.randrange(60)
    half = rng.choice(("am", "pm", "a.m.", "p.m.", "AM", "PM"))
    return rng.choice(
        (
            f"{hour}:{minute:02d} {half}",
            f"{rng.randrange(24)}:{minute:02d}",
            f"{hour} {half}",
            f"{hour}{half}",
            f"{words_of(hour)} o'clock",
            f"half past {words_of(hour)}",
            f"quarter to {words_of(hour)}",
            f"{rng.randrange(1, 60)} {rng.choice(('minutes', 'seconds', 'hours'))}",
            f"{words_of(rng.randrange(1, 60))} {rng.choice(('minutes', 'seconds', 'hours'))}",
            rng.choice(("noon", "midnight", "this morning", "tonight", "yesterday evening", "dawn", "the afternoon")),
        )
    )


def _money(rng: random.Random) -> str:
    return rng.choice(
        (
            f"{rng.choice(_SIGNS)}{_figure(rng)}",
            f"{rng.choice(_SIGNS)}{_figure(rng)} {rng.choice(_SCALES[2:])}",
            f"{_figure(rng)} {rng.choice(_CURRENCIES)}",
            f"{words_of(rng.randrange(1, 100))} {rng.choice(_CURRENCIES)}",
            f"{words_of(rng.randrange(1, 100))} million {rng.choice(_CURRENCIES)}",
            f"{rng.choice(('USD', 'EUR', 'GBP', 'JPY', 'CHF'))} {_figure(rng)}",
        )
    )


def _percent(rng: random.Random) -> str:
    value = rng.choice((str(rng.randrange(1, 101)), f"{rng.randrange(100)}.{rng.randrange(10)}"))
    small = words_of(rng.randrange(1, 100))
    return rng.choice(
        (
            f"{value}%",
            f"{value} %",
            f"{value} percent",
            f"{value} per cent",
            f"{small} percent",
            f"{small} per cent",
            f"about {value}%",
            f"{value} percentage points",
        )
    )


def _quantity(rng: random.Random) -> str:
    return rng.choice(
        (
            f"{_figure(rng)} {rng.choice(_UNITS)}",
            f"{_figure(rng)}{rng.choice(('km', 'kg', 'cm', 'mm', 'm', 'g', 'mg', 'ft', 'GB', 'ml'))}",
            f"{words_of(rng.randrange(1, 100))} {rng.choice(_UNITS)}",
            f"more than {_figure(rng)} {rng.choice(_UNITS)}",
            f"{rng.randrange(2, 60)} {rng.choice(('square', 'cubic'))} {rng.choice(('metres', 'miles', 'feet'))}",
        )
    )


def _ordinal(rng: random.Random) -> str:
    number = rng.randrange(1, 100)
    return rng.choice(
        (
            _digits_ordinal(int(10 ** rng.uniform(0, 3))),
            ordinal_words_of(number),
            f"the {ordinal_words_of(number)}",
            f"the {_digits_ordinal(number)}",
        )
    )


_MAKERS: dict[str, Callable[[random.Random], str]] = {
    "CARDINAL": _cardinal,
    "DATE": _date,
    "TIME": _time,
    "MONEY": _money,
    "PERCENT": _percent,
    "QUANTITY": _quantity,
    "ORDINAL": _ordinal,
}


def number_names(n_each: int, rng: random.Random) -> Iterator[tuple[str, str]]:
    """Yield distinct names with their entity type, about `n_each` of each of the seven types."""
    for entity_type, make in _MAKERS.items():
        for name in sorted({make(rng) for _ in range(n_each)}):
            yield name, entity_type
