"""Maps the spelling variants of a word to one form: British and American, Latin endings, plurals, numbers in words.

    oesophageal, esophageal  ->  esophageal        tumours, tumor  ->  tumor        vertebrae, vertebra  ->  vertebra

The form is a key, not a word that people write: rules apply to both sides alike, so a rule that also changes other
words does no harm unless two names become equal. `docs/experiments/everyday.md` has the gain and the harm of each rule:
how many more names of one entity become equal, and how many names of different entities.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

RULES: dict[str, tuple[tuple[str, str], ...]] = {
    # Patterns of folded words of at least `SHORTEST` letters, in the order in which they apply.
    "latin plural": (("mata$", "ma"), ("(?<=[brtcln])ae$", "a"), ("(?<=...c)i$", "us"), ("stases$", "stasis")),
    "plural": (
        ("(?<=..)ies$", "y"),
        ("(?<=(?:ss|ch|sh|.x))es$", ""),
        ("(?<=...)(?<![sui])s$", ""),
    ),
    "ae and oe": (("ae", "e"), ("oe", "e")),
    "our": (("our", "or"),),
    "ise": (("is(?=(?:e|ed|er|es|ing|ation|able)$)", "iz"), ("ys(?=(?:e|ed|er|es|ing)$)", "yz")),
    "tre": (("(?<=[tb])re$", "er"),),
    "ogue": (("ogue$", "og"),),
    "ence": (("ense$", "ence"),),
    "doubled l": (("ll(?=(?:ed|ing|er|or|ous)$)", "l"),),
    "sulph": (("sulph", "sulf"), ("leuc(?=[aeo])", "leuk"), ("aluminium", "aluminum")),
}
"""Rules by name; each is a list of patterns with their replacements."""

WORDS: dict[str, str] = {
    # Numbers
    **{word: str(i) for i, word in enumerate("one two three four five six seven eight nine ten".split(), start=1)},
    **dict(zip("eleven twelve".split(), ("11", "12"), strict=True)),
    **dict(zip("first second third fourth fifth sixth seventh eighth ninth tenth".split(),
               "1st 2nd 3rd 4th 5th 6th 7th 8th 9th 10th".split(), strict=True)),
    # Abbreviated words of names
    "st": "saint", "ste": "saint", "mt": "mount", "ft": "fort", "intl": "international", "natl": "national",
    "univ": "university", "dept": "department", "assn": "association", "bros": "brothers", "grey": "gray",
    "mould": "mold", "plough": "plow", "programme": "program", "jewellery": "jewelry", "tyre": "tire",
}  # fmt: skip
"""Words with another form of the same meaning."""

IGNORED = frozenset("and the a an".split())
"""Words that spellings of one name include or omit: `Johnson & Johnson`, `The Beatles`."""

SHORTEST = 5
"""Letters of a word that the patterns apply to; a shorter word has too little left: `toe`, `gas`."""

_ANY = re.compile("|".join(pattern for rules in RULES.values() for pattern, _ in rules))
"""Where none of the patterns is found, none changes anything: most words are done by one search."""

_COMPILED = tuple((re.compile(a), b) for rules in RULES.values() for a, b in rules)


def variant_words(words: Sequence[str]) -> list[str]:
    """The normal forms of folded words, without `IGNORED` ones unless no other is left; `hepatitis A` ends in none."""
    found = [variant_word(word) for word in words if word not in IGNORED]
    return [*found, "a"] if found and words[-1] == "a" else found or list(words)


@lru_cache(maxsize=16_384)
def variant_word(word: str) -> str:
    """The normal form of a folded word."""
    if word in WORDS:
        return WORDS[word]
    if len(word) < SHORTEST or not word.isascii() or word.isdigit():
        return word
    if _ANY.search(word) is None:
        return word
    for pattern, replacement in _COMPILED:
        word = pattern.sub(replacement, word)
    return word
