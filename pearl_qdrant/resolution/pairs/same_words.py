"""Names that are one but for what does not matter (articles, legal forms, plurals, order, titles, middle names), and
names that many others vary: siblings or parts.

Berg's hand, Berg's voice, Berg's hat        three fillers of "Berg's ...": they are parts of one thing
Acme Robotics / Robotics GmbH, Acme          the same words
President Ada Berg / Ada K. Berg             titles and middle names that do not contradict
Ada Berg / Berg                              a part of the name of a person
PostgreSQL / Postgres                        a camel-case name without the abbreviation at its end
U.S.A. / United States                       countries and unions by their letters
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from zlib import crc32

import numpy as np

from pearl_qdrant.lexical.first_names import FIRST_NAMES, NICKNAMES
from pearl_qdrant.lexical.words import (
    IGNORED,
    LEGAL_FORMS,
    SMALL_WORDS,
    is_word,
    legal_forms_of,
    variant_word,
    variant_words,
    without_legal_forms,
    word_rarity,
)
from pearl_qdrant.linking.ranking.string_features import StringFeatures
from pearl_qdrant.resolution.pairs.features import Form, is_plural_of_letters
from pearl_qdrant.resolution.pairs.name_differences import (
    GENERATIONS,
    split_generation,
    with_umlauts,
)

LONGEST_FILLER = 4  # Words that a place has at most
MOST_WORDS = 8  # Words of a name beyond which it has no places

_CELLS = 1 << 25
_FULL = 255
_MANY = math.log(33)


class Slots:
    """Counts the names that have a place, by the words before and after it; 32 MB, whatever the number of names."""

    def __init__(self, names: Iterable[Sequence[str]]) -> None:
        self._counts = np.zeros(_CELLS, np.uint8)
        block: list[int] = []
        for words in names:
            n = len(words)
            if n > MOST_WORDS:
                continue
            block += [
                _cell(words[:i], words[j:])
                for i in range(n)
                for j in range(i + 1, min(n, i + LONGEST_FILLER) + 1)
                if j - i < n
            ]
            if len(block) > 1_000_000:
                self._add(block)
                block = []
        self._add(block)

    def _add(self, cells: list[int]) -> None:
        found, counts = np.unique(np.array(cells, np.int64), return_counts=True)
        self._counts[found] = np.minimum(self._counts[found] + counts, _FULL)

    def others(self, a: Sequence[str], b: Sequence[str]) -> int:
        """Names beside a and b that have words where these differ, up to 255; 0 if the two share no end."""
        n = min(len(a), len(b))
        first = next((i for i in range(n) if a[i] != b[i]), n)
        last = next((i for i in range(n - first) if a[-1 - i] != b[-1 - i]), n - first)
        if not first + last:
            return 0
        n_own = (len(a) > first + last) + (len(b) > first + last)
        return max(0, int(self._counts[_cell(a[:first], a[len(a) - last :])]) - n_own)

    def share(self, a: Sequence[str], b: Sequence[str]) -> float:
        """`others` as a feature: its logarithm, in [0, 1], 1 from 32 on."""
        return min(1.0, math.log1p(self.others(a, b)) / _MANY)


def _cell(before: Sequence[str], after: Sequence[str]) -> int:
    return crc32(f"{' '.join(before)}|{' '.join(after)}".encode("utf-8", "surrogatepass")) & (_CELLS - 1)


_PLAIN_TITLES = frozenset("mr mister master dr doctor prof professor sir".split())
_TITLES = _PLAIN_TITLES | frozenset(
    "president chancellor premier secretary ambassador senator sheriff officer inspector detective bishop archbishop "
    "cardinal commander admiral marshal governor mayor minister judge king queen prince princess emperor pope saint st "
    "duke duchess count baron lord captain general colonel major lieutenant sergeant reverend "
    "rev father rabbi sen gov capt gen col".split()
)
_ROLES = frozenset(
    "lady dame ceo cto cfo founder cofounder director chairman chairwoman chair chief leader representative coach "
    "justice congressman congresswoman author singer actor actress physicist scientist economist journalist".split()
)
"""What stands before whole names of persons, beside titles: `First Lady Ada Berg`, `Acme CEO Ada Berg`."""

WOMEN = frozenset("mrs ms miss lady dame madam madame".split())
"""Titles of a person who is not the one with the family name alone: `Mrs. Berg`, `Berg`."""

_LONG = {"st": "saint", "gen": "general", "capt": "captain", "col": "colonel", "gov": "governor", "sen": "senator",
         "mister": "mr", "doctor": "dr", "professor": "prof", "rev": "reverend"}  # fmt: skip
"""Titles before names of persons; the plain ones stand before a family name alone, too."""

_SHORT_NAMES = (
    "william wm/charles chas/thomas thos/george geo/james jas/robert robt/theodore ted teddy theo/jeffrey jeff/"
    "catherine kate kathy katie cathy/geoffrey geoff jeff/gerhard gerd/abraham abe/raymond ray/vincent vince/"
    "eugene gene/alfred al fred alf/alan al/harold hal/joshua josh/nathaniel nate/gabriel gabe/zachary zach/"
    "victoria vicky/theresa terry/dorothy dot/josephine jo josie/jessica jess/friedrich fritz/johannes hans/"
    "jonathan jon jony jonny/bradley brad/clifford cliff/douglas doug/curtis curt/norman norm/leslie les/russell russ"
).split("/")
SHORT_NAMES = frozenset((*NICKNAMES, *(short for row in _SHORT_NAMES for short in row.split()[1:])))
"""Short forms of first names."""
_LONG_NAMES = {
    name: frozenset(
        (NICKNAMES.get(name, name), name, *(row.split()[0] for row in _SHORT_NAMES if name in row.split()[1:]))
    )
    for name in FIRST_NAMES.union(*(row.split() for row in _SHORT_NAMES))
}

_TITLE_SIGNS = re.compile(
    "(主席|总统|總統|先生|女士|教授|博士|总理|總理|首相|部长|部長|大統領|氏|さん|대통령|교수|박사)$"
)
"""Titles in scripts without spaces, after a name, or after a country before it."""

_SMALL = (SMALL_WORDS | IGNORED) - _TITLES - {"a", "y"}

_UNIONS = {
    "usa": "united states", "u s a": "united states", "us": "united states", "u s": "united states",
    "united states of america": "united states", "uk": "united kingdom", "u k": "united kingdom",
    "uae": "united arab emirates", "eu": "european union", "un": "united nations", "u n": "united nations",
    "ussr": "soviet union", "prc": "people s republic of china",
}  # fmt: skip

_ORDINALS = {f"{i}{ending}": str(i) for i, ending in enumerate("st nd rd th th th th th th th".split(), 1)}

_CAMEL = re.compile(r"(?P<name>[A-Z][a-z]{3,})(?P<letters>[A-Z]{2,3}|\.?js|JS)$")


SAME, PART = 1, 2

_CACHED = 10_000  # names whose words are kept: each is compared with about ten

_SHORT = 3  # of shorter words the list of those of texts knows nothing


def sameness(a: Form, b: Form, *, is_person: bool) -> int:
    """`SAME` if two names have the same words but for what does not matter, `PART` if one is part of a person's, or 0.
    Names of persons have no plural (`Owen`, `Owens`).
    """
    one, two = a.strings, b.strings
    if not one.content or not two.content:
        return 0
    if len(one.content) == len(two.content) == 1 and _is_titled(one.folded, two.folded):
        return SAME
    if is_person:
        return _as_persons(one, two)
    if is_plural_of_letters(one.text, two.text):
        return SAME
    if _are_doses(one.text, two.text):
        return PART
    if have_other_forms(one, two):
        return 0
    if _is_partly_abbreviated(one, two):
        return PART
    if words_without_forms(one) == words_without_forms(two) or _is_group(one, two):
        ours, theirs = (
            {_ORDINALS.get(w := GENERATIONS.get(word, variant_word(word)), w) for word in without_legal_forms(of_one)}
            for of_one in (_words(one.folded), _words(two.folded))
        )
        differing = ours ^ theirs
        is_letter = any((len(word) == 1 and word != "a") or word in GENERATIONS for word in differing)
        return 0 if is_letter or _is_protocol(one, two) or _is_no_plural(one, two) else SAME
    if _UNIONS.get(one.folded, one.folded) == _UNIONS.get(two.folded, two.folded):
        return SAME
    if with_umlauts(one) == with_umlauts(two):
        return SAME
    if len(one.content) == len(two.content) == 1:
        first, second = (re.sub("ie$", "y", word) for word in (one.joined, two.joined))  # Italy, Italie
        has_other_ending = first == second and one.joined != two.joined and min(len(one.joined), len(two.joined)) > 4
        return SAME if has_other_ending or _is_clipped(one, two) else 0
    return 0


def have_other_forms(one: StringFeatures, two: StringFeatures) -> bool:
    """Whether each has a legal form that the other lacks: `Merck KGaA`, `Merck & Co.`."""
    ours, theirs = legal_forms_of(one.folded.split()), legal_forms_of(two.folded.split())
    return bool(ours - theirs) and bool(theirs - ours)


@lru_cache(maxsize=_CACHED)
def words_without_forms(strings: StringFeatures) -> tuple[str, ...]:
    """Its words without legal forms, sorted; ordinal numbers as plain ones: `Second World War`, `World War 2`."""
    content = variant_words(_words(strings.folded))
    words = [word for word in without_legal_forms(content) if word not in _SMALL] or content
    return tuple(sorted(_ORDINALS.get(word, word) for word in words))


def _words(folded: str) -> list[str]:
    """The words of a folded name, single letters side by side as one: `J.P. Morgan`, `JP Morgan`."""
    return _LETTERS.sub("", folded).split()


_LETTERS = re.compile(r"(?<=\b[a-z]) (?=[a-z]\b)")


def _is_partly_abbreviated(one: StringFeatures, two: StringFeatures) -> bool:
    """Whether one has the initials in place of some words of the other: `TNF alpha`, `tumor necrosis factor alpha`."""
    short, long = sorted((_words(one.folded), _words(two.folded)), key=len)
    short, long = ([word for word in words if word not in _SMALL] for words in (short, long))
    n = len(long) - len(short) + 1
    if n < 2 or len(short) < 2:
        return False
    i = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), 0)
    return short[i + 1 :] == long[i + n :] and short[i] == "".join(word[0] for word in long[i : i + n])


def _is_group(one: StringFeatures, two: StringFeatures) -> bool:
    """Whether a company is called a group by one name, and has its legal form in one: `Acme AG`, `Acme Group`."""
    if LEGAL_FORMS.isdisjoint(one.words | two.words):
        return False
    ours, theirs = ([word for word in words_without_forms(x) if word != "group"] for x in (one, two))
    return bool(ours) and ours == theirs


def _are_doses(a: str, b: str) -> bool:
    """Whether two names are one but for a dose that one of them has: `Aspirin`, `aspirin 500 mg`."""
    short, long = sorted((a.casefold(), b.casefold()), key=len)
    return _DOSE.sub("", long) == short and short != long


_DOSE = re.compile(r"\s\d+(?:[.,]\d+)?\s?(?:mg|mcg|µg|ug|ml|iu)(?:\s(?:tablet|capsule)s?)?$")


def _is_protocol(one: StringFeatures, two: StringFeatures) -> bool:
    """Whether a name of letters has a capital S more, which is no plural: `HTTP`, `HTTPS`, but `LLM`, `LLMs`."""
    longer = one.text if len(one.text) > len(two.text) else two.text
    return longer.isupper() and longer.endswith("S") and " " not in longer and not re.search("[AEIOUY]", longer)


def _is_no_plural(one: StringFeatures, two: StringFeatures) -> bool:
    """Whether one of two words is a word of texts that ends in s, and the other is none: `Canvas`, `Canva`."""
    short, long = sorted((one.joined, two.joined), key=len)
    return long == f"{short}s" and len(short) > _SHORT and is_word(long) and not is_word(short)


def _is_clipped(one: StringFeatures, two: StringFeatures) -> bool:
    """Whether one ends in an abbreviation that the other leaves out, or a part of it: `PostgreSQL`, `Postgres`."""
    short, long = (one, two) if len(one.joined) < len(two.joined) else (two, one)
    found = _CAMEL.match(long.text)
    return found is not None and long.joined.startswith(short.joined) and len(short.joined) >= len(found["name"])


def _is_titled(a: str, b: str) -> bool:
    """Whether one is the other with a title in a script without spaces."""
    short, long = (a, b) if len(a) < len(b) else (b, a)
    if short.isascii() or len(short) < 2:
        return False
    rest = long[len(short) :] if long.startswith(short) else long[: -len(short)] if long.endswith(short) else ""
    return _TITLE_SIGNS.search(rest) is not None


def _as_persons(one: StringFeatures, two: StringFeatures) -> int:
    (ours, titles), (theirs, others) = person_words(one), person_words(two)
    if not ours or not theirs or _are_two(one) != _are_two(two):
        return 0
    if min(len(ours), len(theirs)) < 2 and titles != others and titles and others:
        return 0
    if _are_equal(ours, theirs):
        return SAME if len(ours) > 1 or titles ^ others <= _PLAIN_TITLES else 0
    if sorted(ours) == sorted(theirs) and (len(ours) > 2 or any(word_rarity(variant_word(one)) == 1 for one in ours)):
        return SAME  # the family name first; two English words may be two names, `Martin James`
    return _fit(ours, theirs) or PART * _is_part(ours, theirs)


def _are_equal(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    """Whether two names have the same words, or short forms of them."""
    return len(ours) == len(theirs) and not any(
        _LONG_NAMES.get(a, {a}).isdisjoint(_LONG_NAMES.get(b, {b})) for a, b in zip(ours, theirs, strict=True)
    )


def _are_two(strings: StringFeatures) -> bool:
    return "and" in strings.words or "&" in strings.text


def person_words(strings: StringFeatures) -> tuple[list[str], set[str]]:
    """The words of a name without titles before it, the family name last; and these titles."""
    words = strings.folded.split()
    if strings.text.count(",") == 1:
        n = len(strings.text.partition(",")[0].split())
        words = words[n:] + words[:n]
    words = list(split_generation(words)[0])
    n = max((i for i, word in enumerate(words[:-2], 1) if word in _TITLES or word in _ROLES), default=0)
    n += 2 * (0 < n < len(words) - 3 and words[n] == "of")  # Secretary of State Ada Berg
    while n + 1 < len(words) and (words[n] in _TITLES or words[n] in ("the", "and")):
        n += 1
    titles = {_LONG.get(word, word) for word in words[:n] if word in _TITLES}
    if len(words) - n > 1 and strings.text.endswith(("'s", "'S")):
        words[-1] = words[-1][:-1]
    words = [word for word in words[n:] if word not in _SMALL]
    return [part for i, word in enumerate(words, 1) for part in _letters(word, strings.text, i == len(words))], titles


def _letters(word: str, text: str, is_last: bool) -> Iterable[str]:
    """The letters of joined initials before a family name, else the word: `JK Berg`, `George HW Berg`."""
    is_initials = not is_last and 1 < len(word) < 4 and not text.isupper() and word.upper() in text.split()
    return word if is_initials else [word]


def _fit(ours: Sequence[str], theirs: Sequence[str]) -> int:
    """`SAME` if two names differ in middle names alone, which do not contradict: `Ada K. Berg`, `Ada Berg`; `PART` if
    one has an initial for the first name, too.
    """
    short, long = sorted((ours, theirs), key=len)
    if len(short) < 2 or short[-1] != long[-1]:
        return 0
    if not all(a.startswith(b) or b.startswith(a) for a, b in zip(short[1:-1], long[1:-1], strict=False)):
        return 0
    initial, first = sorted((ours[0], theirs[0]), key=len)
    if initial == first:
        return SAME if len(first) > 1 else 0
    return PART if initial == first[0] and first not in WOMEN else 0


def _is_part(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    """Whether one is the first or the last word of the other, and all are words that only names are.

    `Ada`, `Ada Berg`, but not `gentleman`, `red-faced gentleman`. The list says whether several names have the word.
    """
    short, long = sorted((ours, theirs), key=len)
    is_end = len(short) == 1 < len(long) <= 4 and len(short[0]) > 2 and short[0] in (long[0], long[-1])
    return is_end and all(
        len(word) == 1 or word in FIRST_NAMES or word_rarity(variant_word(word)) == 1.0 for word in long
    )
