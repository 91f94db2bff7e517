"""Words: the form that their spelling variants share, how rare they are in English, and which exclude each other.

Spelling variants are mapped to one form: British and American, Latin endings, plurals, numbers in words.

    oesophageal, esophageal  ->  esophageal        tumours, tumor  ->  tumor        vertebrae, vertebra  ->  vertebra

The form is a key, not a word that people write: rules apply to both sides alike, so a rule that also changes other
words does no harm unless two names become equal. `docs/experiments/everyday.md` has the gain and the harm of each rule:
how many more names of one entity become equal, and how many names of different entities.

Rarity is the rank of a word among the most frequent ones: a word that is frequent in any text says little about which
entity a mention means: `patients with measles` is measles.

    the: 0    history: 0.02    patients: 0.33    acute: 0.72    familial, Zhuolu: 1

`english_words.txt` has the most frequent words, the most frequent first; `known_words.txt` has all words that several
articles have, with a capital where they are names, and `capitalised_words.txt` the words of both that are often parts
of names. `runs/english_words.py` makes them.

Words that exclude each other by how they are built, one or two edits apart as slips are, name different things:

    prefixes    hyper- and hypo-, intra- and extra-, mono- and di-: of one group, before the same stem
    endings     -itis and -osis, -ate and -ite, -ane and -ene: of one group, after the same stem
    negation    un-, in-, non-, a-, and pre-, post-, re-: before a word that stands without it
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.resources import files
from unicodedata import normalize

SMALL_WORDS = frozenset(
    "of in for to on at by with from de la le el du des der die das von van und et y "
    "inc incorporated corp corporation co company ltd limited llc plc gmbh ag sa nv "
    "mr mrs ms dr prof sir lady dame jr sr".split()
)
"""Words that keys of sorted words leave out: prepositions, legal forms, titles."""

LEGAL_FORMS = frozenset(
    "inc incorporated corp corporation co company ltd limited llc llp lp plc gmbh ag kg kgaa se sa sas sarl srl spa nv "
    "bv ab as asa oy oyj aps pty pvt kk aktiengesellschaft ltda sro doo".split()
)


_PHRASES = (
    "s a|s p a|a s|s l|s r l|s r o|spol s r o|d o o|d d|a d|sp z o o|sp j|sp k|s a s|s a r l|s de r l|s a de c v|"
    "s de r l de c v|b v|n v|g m b h|gmbh co kg|pty ltd|pvt ltd|pte ltd|sdn bhd|co ltd|jsc|pjsc|ojsc|pao|oao|zao|ooo|"
    "sociedad anonima|sociedade anonima|societe anonyme|societa per azioni|sp zoo|spolka z o o|spolka akcyjna|"
    "anonim sirketi|limited sirketi|ltd sti|aktiebolag|aktieselskab|osakeyhtio|kft|zrt|nyrt|uab|"
    "cong ty co phan|cong ty tnhh|cong ty trach nhiem huu han|ctcp|tbk|"
    "ооо|оао|зао|пао|ао|еоод|оод|общество с ограниченнои ответственностью|акционерное общество|"
    "публичное акционерное общество|открытое акционерное общество|закрытое акционерное общество|"
    "товариство з обмеженою відповідальністю|ε π ε|α ε|株|有|주|유|株式会社|有限会社|合同会社|주식회사|유한회사"
)
_ENDS = normalize("NFKD", _PHRASES).split("|")  # as folded words are
_LEGAL_ENDS = frozenset(tuple(one.split()) for one in (*LEGAL_FORMS, *_ENDS))
_LEGAL_STARTS = frozenset(
    tuple(one.split())
    for one in _ENDS
    if not one.isascii() or one.startswith(("cong ty", "ctcp", "ooo", "oao", "zao", "pao"))
)
"""Legal forms of companies as folded words, after a name and before it. Those of letters are written with dots or
without (`a s` of `A.Ş.`). By country: ISO 20275 (GLEIF) has all of them."""

_MOST_OF_A_FORM = max(map(len, _LEGAL_ENDS))
_LAST_WORDS, _FIRST_WORDS = {form[-1] for form in _LEGAL_ENDS}, {form[0] for form in _LEGAL_STARTS}

_JOINED = re.compile(
    normalize(
        "NFKD",
        "^(?:株式会社|有限会社|合同会社|주식회사|유한회사)|"
        "(?:株式会社|有限会社|合同会社|股份有限公司|有限责任公司|有限公司|股份公司|集团公司|주식회사)$",
    )
)
"""The same in scripts without spaces."""


_LOOSE = dict.fromkeys("incorporated corp corporation company co limited ltd llc".split(), "inc")
"""Forms that lists of one company write for each other."""


def without_legal_forms(words: Sequence[str]) -> Sequence[str]:
    """Folded words without the legal forms at their ends, unless nothing else is left: `Acme Robotics Pty Ltd`."""
    start, end = _without_ends(words)
    kept = words[start:end]
    if any(not word.isascii() for word in kept):
        return [_JOINED.sub("", word) or word for word in kept]
    return kept


def legal_forms_of(words: Sequence[str]) -> frozenset[str]:
    """The words of the legal forms at the ends of folded words, loose ones as one."""
    start, end = _without_ends(words)
    return frozenset(_LOOSE.get(word, word) for word in (*words[:start], *words[end:]))


def _without_ends(words: Sequence[str]) -> tuple[int, int]:
    """Where the words without legal forms begin and end."""
    start, end = 0, len(words)
    while (n := _length_of_form(words[:end], _LEGAL_ENDS, is_end=True)) and n < end - start:
        end -= n
    while (n := _length_of_form(words[start:end], _LEGAL_STARTS, is_end=False)) and n < end - start:
        start += n
    return start, end


def _length_of_form(words: Sequence[str], forms: frozenset[tuple[str, ...]], *, is_end: bool) -> int:
    """Words of the longest legal form at one end, or 0."""
    if not words or (words[-1] not in _LAST_WORDS if is_end else words[0] not in _FIRST_WORDS):
        return 0  # as most names
    longest = range(min(_MOST_OF_A_FORM, len(words) - 1), 0, -1)
    return next((n for n in longest if tuple(words[-n:] if is_end else words[:n]) in forms), 0)


RULES: dict[str, tuple[tuple[str, str], ...]] = {
    # Patterns of folded words of at least `SHORTEST` letters, in the order in which they apply.
    "latin plural": (("mata$", "ma"), ("(?<=[brtcln])ae$", "a"), ("(?<=...c)i$", "us"), ("stases$", "stasis")),
    "plural": (("(?<=..)ies$", "y"), ("(?<=(?:ss|ch|sh|.x))es$", ""), ("(?<=...)(?<![sui])s$", "")),
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
    **{word: str(i) for i, word in enumerate("eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
                                             "nineteen twenty".split(), start=11)},
    **{word: f"{i}0" for i, word in enumerate("thirty forty fifty sixty seventy eighty ninety".split(), start=3)},
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

SHORTEST = 5  # letters of a word that the patterns apply to; a shorter word has too little left: `toe`, `gas`

_ANY = re.compile("|".join(pattern for rules in RULES.values() for pattern, _ in rules))
"""Where none of the patterns is found, none changes anything: most words are done by one search."""

_COMPILED = tuple((re.compile(a), b) for rules in RULES.values() for a, b in rules)


def variant_words(words: Sequence[str]) -> list[str]:
    """The normal forms of folded words, without `IGNORED` ones unless no other is left; `hepatitis A` ends in none."""
    kept = [word for word in words if word not in IGNORED]
    found = [variant_word(word) for word in kept]
    if not _TENS.isdisjoint(kept):
        found = _with_units(found, kept)
    return [*found, "a"] if found and words[-1] == "a" else found or list(words)


_TENS = frozenset(word for word, number in WORDS.items() if len(number) == 2 and number[-1] == "0" and number != "10")
_UNITS = frozenset(word for word, number in WORDS.items() if re.fullmatch("[1-9](st|nd|rd|th)?", number))


def _with_units(variants: Sequence[str], words: Sequence[str]) -> list[str]:
    """The normal forms of words, with tens and the unit behind them as one number: `forty-four` is 44."""
    found: list[str] = []
    for variant, word, before in zip(variants, words, ("", *words), strict=False):
        if word in _UNITS and before in _TENS:
            found[-1] = found[-1][0] + variant
        else:
            found.append(variant)
    return found


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


WORDS_FILE = "english_words.txt"
CAPITALISED_FILE = "capitalised_words.txt"
KNOWN_FILE = "known_words.txt"


def word_rarity(word: str) -> float:
    """Rank of a word in its normal spelling (`variant_word`) over the length of the list; 1 if it is not listed."""
    return _rarities().get(word, 1.0)


def rarest(words: Iterable[str]) -> float:
    """The highest `word_rarity` of at least one word."""
    rarities = _rarities()
    return max([rarities.get(word, 1.0) for word in words])


@lru_cache(maxsize=1)
def english_words() -> tuple[str, ...]:
    """The most frequent words of English text, the most frequent first."""
    return tuple(files(__package__).joinpath(WORDS_FILE).read_text("utf-8").split())


@lru_cache(maxsize=1)
def _rarities() -> dict[str, float]:
    words = english_words()
    rarities: dict[str, float] = {}
    for rank, word in enumerate(words):
        rarities.setdefault(variant_word(word), rank / len(words))
    return rarities


@lru_cache(maxsize=1)
def _marks() -> dict[str, tuple[str, ...]]:
    """The words of `capitalised_words.txt` with their marks."""
    lines = files(__package__).joinpath(CAPITALISED_FILE).read_text("utf-8").splitlines()
    return {word: tuple(marks) for word, *marks in (line.split("\t") for line in lines)}


@lru_cache(maxsize=1)
def _common() -> frozenset[str]:
    return frozenset(english_words()).union(word for word, is_small in _words_of_texts().items() if is_small)


def is_common(word: str) -> bool:
    """Whether texts have a lower-case word in small letters, or its singular: `split`, `offices`, not `google`."""
    return word in _common() or (len(word) > 3 and word.endswith("s") and word[:-1] in _common())


def begins_names(word: str) -> bool:
    """Whether a frequent word is a part of the name where a capitalised word follows: `Northern`, not `visiting`."""
    return "begins" in _marks().get(word, ())


def is_mostly_name(word: str) -> bool:
    """Whether a frequent word is mostly a name where no capitalised word follows: `March`, not `nice`."""
    return "alone" in _marks().get(word, ())


@lru_cache(maxsize=1)
def _common_by_variant() -> dict[str, set[str]]:
    by_variant: dict[str, set[str]] = {}
    for word in _common():
        by_variant.setdefault(variant_word(word), set()).add(word)
    return by_variant


@lru_cache(maxsize=16_384)
def other_spellings(word: str) -> frozenset[str]:
    """A word, its singular and plural, and the common words that are other spellings of it."""
    variant = variant_word(word)
    number = word.removesuffix("s") if word.endswith("s") else f"{word}s"
    return frozenset((word, number, variant, f"{variant}s", *_common_by_variant().get(variant, ())))


@lru_cache(maxsize=1)
def _words_of_texts() -> dict[str, bool]:
    """Words in small letters, and whether texts write them so."""
    words = files(__package__).joinpath(KNOWN_FILE).read_text("utf-8").split()
    return {word.lower(): word.islower() for word in words}


def is_word(word: str) -> bool:
    """Whether texts have a folded word as it is written, a name too: `iraq`, not `iraqq`; of at least four letters."""
    return word in _words_of_texts()


def is_odd(word: str) -> bool:
    """Whether a folded word has letters alone, and no text in English has it."""
    return word.isalpha() and not is_word(word) and not is_common(word)


_IN_CAPITALS = re.compile(r"[^\W\d_]+")
_LEAST_CAPITALS, _LEAST_ALONE, _LEAST_WORD = 5, 8, 4
"""Letters of a word in capitals without which a text may be an abbreviation; of one that stands alone and that no text
has; and of one that is written small beside others, though no text has it."""


def usual_case(text: str) -> str:
    """A text in capitals alone as others would write it: `KNEE JOINT` as `knee joint`, `BANK OF AMERICA` as `Bank of
    America`; other texts, and those that may be abbreviations (`IBM CORP`, `XYLTEQ`), as they are.
    """
    if not text.isupper():
        return text
    words = [word.lower() for word in _IN_CAPITALS.findall(text)]
    longest = max(map(len, words), default=0)  # none in `Ⓐ`
    if any(word.upper() == word for word in words):  # letters without case: `特别篇`
        return text
    if longest < _LEAST_CAPITALS or (len(words) == 1 and longest < _LEAST_ALONE and not is_word(words[0])):
        return text
    if all(map(is_common, words)):
        return text.lower()

    def cased(word: re.Match[str]) -> str:
        lower = word.group().lower()
        if word.start() and lower in SMALL_WORDS - LEGAL_FORMS:
            return lower
        is_short = len(lower) < _LEAST_WORD and not is_common(lower)
        return word.group() if is_short or lower in LEGAL_FORMS else lower.capitalize()

    return _IN_CAPITALS.sub(cased, text)


_PREFIXES = tuple(
    frozenset(group.split())
    for group in (
        "hyper hypo normo/macro micro/tachy brady/homo hetero/pre post/ante post/over under/neo paleo/syn anti/"
        "intra extra inter trans/endo exo epi ecto peri myo/mono di bi tri tetra penta hexa uni multi poly/in out/"
        "oligo poly an/sub super supra infra/hemi quadri para/leuko erythro thrombo/auto allo xeno/eu dys/iso neo/"
        "up down/pro anti/ortho meta para/nano micro milli centi kilo mega giga/levo dextro/ventro dorso/"
        "meth eth prop but pent hex"
    ).split("/")
)
_ENDINGS = tuple(
    frozenset(group.split())
    for group in (
        "itis osis oma/ate ite ide/ane ene yne/ose ase/ectomy otomy ostomy/emia uria/ic ous/er ee/ine osine yl/less ful"
    ).split("/")
)
_NEGATIONS = frozenset(
    "un in im ir il an dis de mis mal non anti counter pseudo pre post re sub super over under".split()
)
"""Prefixes that make another thing of a word; no slip adds so many letters before one."""

_STEMS = frozenset(
    "symptomatic septic sexual febrile chromatic cellular vascular plastic phasic tonic rhythmic symmetric symmetrical "
    "morphous synchronous periodic biotic metabolic somatic trophic theist theism cyclic polar toxic typical".split()
)
"""Words that a-, which a slip may lose, stands before."""

_BEFORE = frozenset("non pre post pseudo counter anti".split())  # prefixes that are written as a word of their own, too
LEAST_STEM = 4  # letters that two words share; endings of chemistry and medicine may have shorter stems
_LEAST_START = 3  # letters that two words with other endings share
_LONG_STEM = 5


@lru_cache(maxsize=10_000)
def exclude_each_other(word: str, other: str) -> bool:
    """Whether two folded words exclude each other by prefix, ending or negation."""
    if word == other or not (word.isalpha() and other.isalpha()):
        return False
    if word[-LEAST_STEM:] == other[-LEAST_STEM:]:
        return _is_negation(word, other) or _is_negation(other, word) or _differ(word, other, _PREFIXES)
    return word[:_LEAST_START] == other[:_LEAST_START] and _differ(word[::-1], other[::-1], _REVERSED)


def with_prefixes(words: Sequence[str]) -> list[str]:
    """Words with the prefixes before them: `non small` is `nonsmall`."""
    if _BEFORE.isdisjoint(words):
        return list(words)
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in _BEFORE:
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def any_exclude(ours: Iterable[str], theirs: Iterable[str]) -> bool:
    """Whether a word of one side excludes a word of the other."""
    for word in ours:
        start, end = word[:_LEAST_START], word[-LEAST_STEM:]
        for other in theirs:
            # What such words share is a cheap test, which few pass.
            if (other[-LEAST_STEM:] == end or other[:_LEAST_START] == start) and exclude_each_other(word, other):
                return True
    return False


_REVERSED = tuple(frozenset(ending[::-1] for ending in group) for group in _ENDINGS)


def _differ(word: str, other: str, groups: tuple[frozenset[str], ...]) -> bool:
    for group in groups:
        for mine in group:
            if word.startswith(mine):
                stem = word[len(mine) :]
                if len(stem) > 1 and any(own != mine and other == own + stem for own in group):
                    return True
    return False


def _is_negation(word: str, stem: str) -> bool:
    """Whether a word is a negation and a stem that is a word without it."""
    if len(stem) < _LONG_STEM or not word.endswith(stem):
        return False
    prefix = word[: -len(stem)]
    return prefix in _NEGATIONS or (prefix == "a" and (stem in _STEMS or word_rarity(stem) < 1.0))
