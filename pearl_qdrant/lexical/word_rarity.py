"""How rare a word is in English text, by its rank among the most frequent words; which ones are parts of names.

    the: 0    history: 0.02    patients: 0.33    acute: 0.72    familial, Zhuolu: 1

A word that is frequent in any text says little about which entity a mention means: `patients with measles` is measles.
`english_words.txt` has the most frequent words, the most frequent first; `known_words.txt` has all words that several
articles have, with a capital where they are names, and `capitalised_words.txt` the words of both that are often parts
of names. `runs/english_words.py` makes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from importlib.resources import files

from pearl_qdrant.lexical.spelling_variants import variant_word

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
