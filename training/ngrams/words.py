"""Sentences of a text, words of a sentence, and the number that stands for a word."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b

_SENTENCE_END = re.compile(
    r"([.!?\u2026][\"'\u201d\u2019)\]]*)\s+(?=[\"'\u201c\u2018(\[]*[^\W_a-z])|(?<=[\u3002\uff01\uff1f])"
)
_LAST_WORD = re.compile(r"[^\W_]+\Z")
_ABBREVIATIONS = frozenset(
    "dr mr mrs ms st jr sr vs no nos prof gen col lt maj rev sgt capt gov sen rep hon mt ft fig vol pp ed eds al "
    "ca approx dept est inc ltd co corp bros cf feat jan feb mar apr jun jul aug sep sept oct nov dec".split()
)

MAX_CACHED = 400_000
"""Spellings whose numbers are remembered: about 80 MB. The rest are computed again."""

BREAK = 0
"""Stands for what no n-gram contains: the end of a sequence, and punctuation if it is to break n-grams."""


def split_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, without white space around them; a line end is also the end of a sentence.

    A full stop ends a sentence if the next word does not begin with a small letter, and the last word is neither a
    single letter nor a usual abbreviation.
    """
    for line in text.splitlines():
        start = 0
        for found in _SENTENCE_END.finditer(line):
            if _ends_sentence(line, found):
                if sentence := line[start : found.end()].strip():
                    yield sentence
                start = found.end()
        if sentence := line[start:].strip():
            yield sentence


def _ends_sentence(line: str, found: re.Match[str]) -> bool:
    if found[1] != ".":  # a question mark, a bracket after a full stop, a full stop of Chinese
        return True
    last = _LAST_WORD.search(line, max(0, found.start() - 12), found.start())
    return last is None or (len(last[0]) > 1 and last[0].lower() not in _ABBREVIATIONS) or last[0].isdigit()


@cache
def word_pattern(*, breaks: bool = False) -> re.Pattern[str]:
    """Return the pattern of a word: letters, digits and their marks of any script, with apostrophes inside.

    Args:
        breaks: Whether it also matches what lies between words and is not white space.
    """
    # `\w` has no combining marks, without which a word of Hindi falls to pieces.
    codes = [code for code in range(0x300, sys.maxunicode + 1 if sys.maxunicode < 0x10000 else 0x10000)
             if unicodedata.category(chr(code))[0] == "M"]  # fmt: skip
    marks = "".join(f"{chr(first)}-{chr(last)}" for first, last in _ranges(codes))
    letter = f"(?:[^\\W_][{marks}]*)"
    word = f"{letter}+(?:['\u2019]{letter}+)*"
    return re.compile(f"{word}|(?:[^\\w\\s]|_)+" if breaks else word)


def _ranges(codes: list[int]) -> Iterator[tuple[int, int]]:
    first = last = codes[0]
    for code in codes[1:]:
        if code != last + 1:
            yield first, last
            first = code
        last = code
    yield first, last


def normalise_word(word: str, *, keep_case: bool = False) -> str:
    """Return what makes spellings one word: composed characters, a straight apostrophe and usually small letters."""
    composed = word if word.isascii() else unicodedata.normalize("NFC", word).replace("\u2019", "'")
    return composed if keep_case else composed.lower()


class WordNumbers(dict[str, int]):
    """The number of each word, computed when it is first asked for: 64 bits of a hash, and never `BREAK`.

    Two of ten million words share a number with a probability of 3 in a million. At most `MAX_CACHED` are remembered.
    """

    def __init__(self, *, keep_case: bool = False) -> None:
        super().__init__()
        self._keep_case = keep_case

    def __missing__(self, word: str) -> int:
        if len(self) >= MAX_CACHED:
            self.clear()
        if not word[0].isalnum():
            number = BREAK
        else:
            text = normalise_word(word, keep_case=self._keep_case)
            number = int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
            number = number or 1
        self[word] = number
        return number
