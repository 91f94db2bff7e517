"""Names of other scripts in Latin letters, so that they can be compared with names that are written so.

    Москва -> moskva    北京 -> beijing    서울 -> seoul

The rules are anyascii's: one for each character, of any script. Vowels that a script leaves out stay away.
"""

from __future__ import annotations

from functools import lru_cache

from anyascii import anyascii

from pearl_qdrant.lexical.ngrams import fold_name


@lru_cache(maxsize=4096)
def latin(folded: str) -> str:
    """A folded name in Latin letters; the same string where it has no others."""
    return folded if folded.isascii() else fold_name(anyascii(folded))


def with_latin(folded: str) -> str:
    """A folded name, and behind it the same in Latin letters where it has others: what n-grams are made of."""
    return folded if folded.isascii() else f"{folded} {latin(folded)}"
