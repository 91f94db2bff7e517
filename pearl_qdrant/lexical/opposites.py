"""Words that exclude each other by how they are built: `hypertension`, `hypotension`; `stable`, `unstable`.

They are one or two edits apart, as slips are, and name different things.

    prefixes    hyper- and hypo-, intra- and extra-, mono- and di-: of one group, before the same stem
    endings     -itis and -osis, -ate and -ite, -ane and -ene: of one group, after the same stem
    negation    un-, in-, non-, a-, and pre-, post-, re-: before a word that stands without it
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from pearl_qdrant.lexical.word_rarity import word_rarity

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

_BEFORE = frozenset("non pre post pseudo counter anti".split())
"""Prefixes that are written as a word of their own, too."""

LEAST_STEM = 4
"""Letters that two words share; endings of chemistry and medicine may have shorter stems."""

_LEAST_START = 3
"""Letters that two words with other endings share."""

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
