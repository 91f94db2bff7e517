"""Names of other scripts in Latin letters, so that they can be compared with names that are written so.

    Москва -> moskva    北京 -> beijing    서울 -> seoul

The rules are anyascii's: one for each character, of any script. Vowels that a script leaves out stay away.
"""

from __future__ import annotations

from functools import lru_cache

from anyascii import anyascii

from pearl_qdrant.lexical.ngrams import fold_name

LONGEST = 10_000
"""Letters that are kept: one character of Chinese has up to six, and no mention has more of its own."""

_CACHED = 500  # characters; of longer strings, a thousand would fill many MB


def latin(folded: str) -> str:
    """A folded name in at most `LONGEST` Latin letters; the same string where it has no others."""
    if folded.isascii():
        return folded
    return _cached(folded) if len(folded) <= _CACHED else _written(folded)


def _written(folded: str) -> str:
    return fold_name(anyascii(folded[:LONGEST])[:LONGEST])


_cached = lru_cache(maxsize=1000)(_written)


def with_latin(folded: str) -> str:
    """A folded name, and behind it the same in Latin letters where it has others: what n-grams are made of."""
    return folded if folded.isascii() else f"{folded} {latin(folded)}"
