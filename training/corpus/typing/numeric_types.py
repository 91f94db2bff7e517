"""Recognise dates, times, money, percentages, quantities, ordinals and cardinals by their form. English."""

from __future__ import annotations

import re

_ONES = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|"
    "eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
)
_SCALES = "hundred|thousand|million|billion|trillion|dozen"
_WORDS = rf"(?:(?:{_ONES}|{_SCALES}|a|half a|half)(?:[- ](?:and )?(?:{_ONES}|{_SCALES}))*)"
_FIGURE = r"[+-]?\d+(?:,\d{3})*(?:\.\d+)?"
_NUMBER = rf"(?:{_FIGURE}(?:[ -](?:{_SCALES}|[mb]n))?|{_WORDS})"
_ABOUT = (
    r"(?:(?:about|around|some|nearly|almost|over|under|only|roughly|approximately|exactly|up to|at least|at most|"
    r"more than|less than|fewer than|no more than|as many as|another|the|every|each|these|those|its|their)[ ])*"
)
_RANGE = rf"{_ABOUT}{_NUMBER}(?:(?: ?[-–] ?| to | or | and ){_NUMBER})?"

_MONTH = (
    r"(?:january|february|march|april|may|june|july|august|september|october|november|december|jan\.?|feb\.?|mar\.?|"
    r"apr\.?|jun\.?|jul\.?|aug\.?|sept?\.?|oct\.?|nov\.?|dec\.?)"
)
_DAY = r"(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday)s?"
_ORDINAL_WORDS = (
    "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|thirteenth|fourteenth|fifteenth|"
    "sixteenth|seventeenth|eighteenth|nineteenth|twentieth|thirtieth|fortieth|fiftieth|sixtieth|seventieth|eightieth|"
    "ninetieth|hundredth|thousandth|millionth"
)
_ORDINAL = (
    rf"(?:\d+(?:,\d{{3}})*(?:st|nd|rd|th)|(?:(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)-)?"
    rf"(?:{_ORDINAL_WORDS}))"
)
_YEAR = r"(?:1\d{3}|20\d{2})"
_ERA = r"(?: ?(?:bc|ad|bce|ce|b\.c\.|a\.d\.))"
_SPAN = r"(?:days?|nights?|weeks?|weekends?|months?|quarters?|years?|decades?|centur(?:y|ies)|millenni(?:um|a))"
_CLOCK = r"(?:minutes?|seconds?|hours?|milliseconds?|mins?|hrs?)"
_HALF_DAY = r"(?:[ap]\.?m\b\.?)"
_DAYTIME = r"(?:morning|afternoon|evening|night|midday|noon|midnight|dawn|dusk|sunrise|sunset)"
_WHICH = r"(?:last|next|this|that|the (?:last|next|past|previous|following|same|early|late|mid)|early|late|mid|every)"
_SEASON = r"(?:spring|summer|autumn|fall|winter)"
_CURRENCY = (
    r"(?:(?:us |u\.s\. |american |canadian |australian |hong kong )?dollars?|euros?|pounds?(?: sterling)?|yen|yuan|"
    r"francs?|rupees?|pesos?|cents?|rubles?|roubles?|won|marks?|lire?|kronor?|krone|reais|real|shillings?|pence)"
)
_CODE = r"(?:usd|eur|gbp|jpy|chf|cny|inr|cad|aud|rmb)"
_SIGN = r"(?:(?:us|a|c|hk|nz|s|can)?\$|€|£|¥|₹)"
_UNIT = (
    r"(?:(?:square |cubic |sq\.? |nautical )?(?:kilomet(?:re|er)s?|met(?:re|er)s?|centimet(?:re|er)s?|"
    r"millimet(?:re|er)s?|miles?|feet|foot|ft|inch(?:es)?|yards?|km|cm|mm|m|mi|yd|in)|km2|m2|m³|km²|m²|kilograms?|"
    r"grams?|milligrams?|kg|g|mg|lbs?|oz|ounces?|pounds?|tonnes?|tons?|lit(?:re|er)s?|ml|l|gallons?|barrels?|"
    r"hectares?|ha|acres?|degrees?|°[cf]?|mph|km/h|kph|knots?|[kmgt]?hz|[kmgt]b|gigabytes?|megabytes?|[kmg]?w|"
    r"watts?|kilowatts?|megawatts?|volts?|v|amps?|calories|kcal|kilojoules|horsepower|hp|bhp|light[- ]years?)"
)

_RULES: tuple[tuple[str, str], ...] = (
    ("PERCENT", rf"{_RANGE} ?(?:%|percent|per cent|percentage points?)"),
    ("MONEY", rf"{_ABOUT}(?:{_SIGN}|{_CODE}) ?{_FIGURE}(?: ?(?:{_SCALES}|[kmb]n?))?(?: ?[-–] ?{_SIGN}?{_FIGURE})?"),
    ("MONEY", rf"{_RANGE} (?:{_CURRENCY}|{_CODE})"),
    ("TIME", rf"{_ABOUT}\d{{1,2}}[:.]\d\d(?::\d\d)? ?(?:{_HALF_DAY})?(?: ?(?:gmt|utc|est|pst))?"),
    ("TIME", rf"{_ABOUT}\d{{1,2}} ?{_HALF_DAY}|{_ABOUT}(?:\d{{1,2}}|{_ONES}) o'clock"),
    ("TIME", rf"(?:half past|(?:a )?quarter (?:to|past)|{_NUMBER} (?:minutes )?(?:to|past)) (?:\d{{1,2}}|{_ONES})"),
    ("ORDINAL", rf"(?:the )?{_ORDINAL}"),
    ("TIME", rf"{_RANGE}[ -]{_CLOCK}(?: (?:ago|later|earlier))?|an? {_CLOCK}|half an hour"),
    ("TIME", rf"(?:(?:{_WHICH}|the|yesterday|tomorrow|{_DAY}) )?{_DAYTIME}|tonight|overnight"),
    ("DATE", rf"(?:{_DAY},? )?(?:the )?(?:\d{{1,2}}(?:st|nd|rd|th)?(?: of)? )?{_MONTH}(?:,? (?:of )?{_YEAR})?"),
    ("DATE", rf"(?:{_DAY},? )?{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?(?: ?[-–] ?\d{{1,2}})?(?:,? {_YEAR})?"),
    ("DATE", rf"(?:{_WHICH} )?(?:in )?(?:{_YEAR}|{_MONTH}(?: {_YEAR})?)(?:{_ERA})?"),
    ("DATE", rf"{_YEAR} ?[-–/] ?(?:\d\d|{_YEAR})|\d{{4}}-\d\d-\d\d|\d{{1,2}}[./-]\d{{1,2}}[./-](?:\d\d){{1,2}}"),
    ("DATE", rf"\d{{1,4}}{_ERA}|ad \d{{1,4}}"),
    ("DATE", rf"(?:the )?(?:(?:early|late|mid)[- ])?(?:the )?(?:{_YEAR}s|'\d0s)"),
    ("DATE", rf"(?:the )?(?:(?:early|late|mid)[- ])?{_ORDINAL}[ -]century(?:{_ERA})?"),
    ("DATE", rf"(?:{_RANGE}[ -]|an? ){_SPAN}(?: (?:ago|later|earlier|old|before|after))?"),
    ("DATE", rf"(?:{_WHICH}|the) (?:{_DAY}|{_SPAN}|{_SEASON}|{_MONTH})|{_DAY}|today|yesterday|tomorrow"),
    ("DATE", rf"(?:the )?{_SEASON}(?: of)? {_YEAR}|(?:the )?{_YEAR} {_SEASON}"),
    ("QUANTITY", rf"{_RANGE}[ -]?{_UNIT}(?: (?:long|wide|high|tall|deep))?"),
    ("CARDINAL", rf"{_RANGE}|zero|dozens|hundreds|thousands|millions|billions|a pair|a couple|a few|both"),
)
_COMPILED = tuple((kind, re.compile(pattern)) for kind, pattern in _RULES)
_STARTS = re.compile(
    r"[\d$€£¥₹+'-]|(?:us|a|c|hk|nz|s|can)\$|(?:usd|eur|gbp|jpy|chf|cny|inr|cad|aud|rmb|ad) ?\d|[a-z]+", re.IGNORECASE
)
_FIRST_WORDS = frozenset(
    re.findall(
        r"[a-z]+",
        f"{_ONES} {_SCALES} {_ABOUT} {_MONTH} {_ORDINAL_WORDS} {_DAYTIME} {_WHICH} {_SEASON} a an half tonight "
        "overnight today yesterday tomorrow zero dozens hundreds thousands millions billions both quarter "
        "jan feb mar apr jun jul aug sept oct nov dec monday tuesday wednesday thursday friday saturday sunday "
        "mondays tuesdays wednesdays "
        "thursdays fridays saturdays sundays usd eur gbp jpy chf cny inr cad aud rmb ad us c hk nz s can",
    )
)


def numeric_type(phrase: str) -> str | None:
    """Return CARDINAL, DATE, MONEY, ORDINAL, PERCENT, QUANTITY or TIME if the whole phrase has that form, else None.

    A bare number from 1000 to 2099 is a DATE (a year); "10 pounds" is MONEY.
    """
    start = _STARTS.match(phrase)
    if start is None or (start.group().isalpha() and start.group().lower() not in _FIRST_WORDS):
        return None
    lower = phrase.lower().replace("’", "'")
    for kind, pattern in _COMPILED:
        if pattern.fullmatch(lower):
            # "may" and "march" are months only next to other words or when capitalised.
            return kind if lower not in ("may", "march", "mar", "a", "half", "second") or phrase[0].isupper() else None
    return None
