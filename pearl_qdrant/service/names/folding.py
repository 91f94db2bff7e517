"""Folds names and queries to what a person types: no case, no accents, no punctuation."""

from __future__ import annotations

import unicodedata

from pearl_qdrant.lexical.ngrams import fold_name

_GREEK = range(0x370, 0x400)
_KEPT = frozenset("#%&@")
_DROPPED = frozenset("'\u2019\u2018`\u00ad")


MAX_BYTES = 120
"""Only so much of a folded name is indexed and looked for; nobody types more."""

KEPT_LETTERS = 20_000
"""Characters whose folded form is kept; those of most scripts, while clients may send any of a million."""


class _Letters(dict[int, str]):
    """What becomes of each character; computed when it is first seen."""

    def __missing__(self, code: int) -> str:
        folded = _fold_character(chr(code))
        if len(self) < KEPT_LETTERS:
            self[code] = folded
        return folded


def _fold_character(character: str) -> str:
    if character in _DROPPED or unicodedata.category(character) in ("Mn", "Cf"):
        return ""
    if ord(character) in _GREEK and (spelled := fold_name(character)):
        return spelled
    plain = unicodedata.normalize("NFKD", character.casefold())
    kept = "".join(c for c in plain if unicodedata.category(c) != "Mn")
    return "".join(c if _is_kept(c) else " " for c in kept.casefold())


def _is_kept(character: str) -> bool:
    return character.isalnum() or character in _KEPT or unicodedata.category(character) in ("Sm", "Sc", "So")


_LETTERS = _Letters()


def fold(text: str) -> str:
    """The folded form: words of letters, digits and symbols, with single spaces; "" if there are none.

    Greek letters are spelled out, as in `lexical.ngrams.fold_name`. Numbers stay as they are, since a word that is
    being typed may not be complete.
    """
    return " ".join(text.translate(_LETTERS).split())


def key_of(text: str) -> str:
    """The folded form, cut to what is indexed."""
    return fold(text).encode("utf-8", "ignore")[:MAX_BYTES].decode("utf-8", "ignore")
