"""First names: short forms, and which two known names are those of two persons."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from functools import lru_cache
from itertools import product

from rapidfuzz.distance import OSA

from pearl_qdrant.lexical.words import is_word

NICKNAMES: dict[str, str] = {
    short: long
    for names in (
        "james jim jimmy jamie/william bill billy will willie liam/robert bob bobby rob robbie/richard dick rick rich/"
        "john jack johnny jon/edward ed eddie ted ned/henry harry hank/margaret peggy maggie meg/alexander alex alec "
        "alick sandy sasha/elizabeth liz beth betty eliza lizzie/charles charlie chuck/francis frank fran/anthony tony/"
        "thomas tom tommy/michael mike mick/patrick pat paddy/katherine kate kathy katie/daniel dan danny/david dave/"
        "joseph joe joey/samuel sam sammy/benjamin ben benny/nicholas nick nicky/christopher chris kit/matthew matt/"
        "andrew andy drew/lawrence larry/gerald jerry gerry/ronald ron ronnie/donald don donnie/kenneth ken kenny/"
        "stephen steve stevie steven/susan sue suzy/deborah debbie/barbara barb/rebecca becky/jennifer jenny jen/"
        "timothy tim/gregory greg/philip phil/frederick fred freddie/albert al bert/walter walt/leonard len lenny/"
        "peter pete/ann anne annie"
    ).split("/")
    for long, *shorts in (names.split(),)
    for short in shorts
}
"""Short forms of first names; of those of several names, one."""

FIRST_NAMES = frozenset((*NICKNAMES, *NICKNAMES.values()))  # the first names of this list

_ALIKE = (
    ("^[cs]h(?=[ae])", "s"), ("ph", "f"), ("c(?=[eiy])|z", "s"), ("ck|[cq]", "k"), ("[vw]", "f"), ("x", "ks"),
    ("(?<=[dt])re?$", "er"), ("(?<=[ae])j$|ie$|e[iy]$|y", "i"), ("h", ""),
)  # fmt: skip
"""Letters and groups of them that names write for one sound, in this order."""
_SOUNDS = tuple((re.compile(pattern), letters) for pattern, letters in _ALIKE)
_TWICE = re.compile(r"([^e])\1+|e(e+)(?!$)")
_INNER_VOWELS, _LEAST_VARIED = re.compile("(?<=.)[aeiou]+(?=.)"), 7
"""What spellings of a name of so many letters vary: `Mohammed`, `Mohammad`."""
_NEAR = 0.6  # edit similarity from which one word may be taken for the other
_LEAST_NAME = 3  # letters of the shortest first names
_LEAST_KNOWN = 4  # of shorter words `is_word` knows nothing: most are names
_UMLAUT = re.compile("(?<=[aou])e")  # Krueger, and Krüger as it is folded


@lru_cache(maxsize=10_000)
def are_two_names(a: str, b: str) -> bool:
    """Whether two folded words are known, near each other and sound otherwise, so that no slip lies between them where
    they are names: `paul`, `paula`, but not `micheal`, `michael`, nor `sara`, `sarah`.
    """
    if not all(len(name) >= _LEAST_NAME and (len(name) < _LEAST_KNOWN or is_word(name)) for name in (a, b)):
        return False
    if OSA.normalized_similarity(a, b) < _NEAR and not (a.startswith(b) or b.startswith(a)):
        return False
    sounds = [_sound(_UMLAUT.sub("", name)) for name in (a, b)]
    if min(len(a), len(b)) >= _LEAST_VARIED:
        sounds = [_INNER_VOWELS.sub("a", sound) for sound in sounds]
    return NICKNAMES.get(a, a) != NICKNAMES.get(b, b) and sounds[0] != sounds[1]


def has_other_word(one: Sequence[str], two: Sequence[str], initials: Set[str]) -> bool:
    """Whether the words of two folded names have different ones for one of some initials: `J. Smith` is not short for
    both `John Smith` and `James Smith`; for nicknames and slips it may be.
    """
    ours, theirs = set(one), set(two)
    pairs = product(ours - theirs, theirs - ours)
    return any(a[0] == b[0] and a[0] in initials and _are_unlike(a, b) for a, b in pairs)


def _are_unlike(a: str, b: str) -> bool:
    is_nickname = NICKNAMES.get(a, a) == NICKNAMES.get(b, b) or a.startswith(b) or b.startswith(a)
    return not is_nickname and OSA.normalized_similarity(a, b) < _NEAR


def _sound(name: str) -> str:
    """The folded name as it may be said."""
    for pattern, letters in _SOUNDS:
        name = pattern.sub(letters, name)
    return _TWICE.sub(lambda found: found[1] or "e", name)
