"""Types of entities that the words around a mention suggest: `the mayor of _`, `_ beat`, `_ was born in`.

    log p(type | words)  ~  bias + sum over words of weight[slot of the word, word]

A word has a slot by its place: the two before the mention, the two after it, and one for all words up to ten away.
Words are those of `lexical/english_words.txt`, punctuation, and marks for other capitalised words, numbers, any other
and the edge of the text. `word_types.npz` has the weights; `runs/word_types.py` fits them on names of known type in
English Wikipedia.
"""

from __future__ import annotations

import io
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from pearl_qdrant.lexical.word_rarity import english_words

TYPES = ("PERSON", "ORG", "GPE", "LOC", "FAC", "NORP", "EVENT", "WORK_OF_ART", "PRODUCT", "LANGUAGE")
"""Coarse types that words tell apart."""

FILE = "word_types.npz"

NEAR = 10
"""Words on each side that count."""

SLOTS = 5

_PUNCTUATION = ",.;:()'\"-–?!&/"
_MARKS = ("<capital>", "<number>", "<other>", "<edge>", *_PUNCTUATION)
_TOKEN = re.compile(r"[^\W_]+(?:['’&.-][^\W_]+)*|[^\w\s]")


@dataclass(frozen=True, slots=True)
class WordTypes:
    """The weights.

    Attributes:
        weights: (SLOTS * number of words and marks, len(TYPES)).
        bias: (len(TYPES),).
    """

    weights: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]

    def log_probabilities(self, rows: Sequence[int]) -> npt.NDArray[np.float64]:
        """(len(TYPES),), the logarithms of the probabilities of the types; `rows` as `rows_of` makes them."""
        logits = self.bias + self.weights[rows].sum(axis=0, dtype=np.float64)
        shifted = logits - logits.max()
        found: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
        return found


class Words:
    """A text cut into words, with their numbers.

    Attributes:
        numbers: The number of each word.
        starts, ends: Its offsets in characters.
    """

    def __init__(self, text: str) -> None:
        found = split(text)
        self.starts = [start for start, _, _ in found]
        self.ends = [end for _, end, _ in found]
        self.numbers = numbers_of([word for _, _, word in found])

    def rows_around(self, start: int, end: int) -> list[int]:
        """The rows of the weights for the words around a mention, given by its offsets in characters."""
        return rows_of(self.numbers, bisect_right(self.ends, start), bisect_left(self.starts, end))


def rows_of(numbers: Sequence[int], start: int, end: int) -> list[int]:
    """The rows of the weights for the words around those from `start` to `end`."""
    n_words, n_all, edge = _counts()

    def at(i: int) -> int:
        return numbers[i] if 0 <= i < len(numbers) else edge

    near = {*numbers[max(0, start - NEAR) : start], *numbers[end : end + NEAR]}
    slots = [at(start - 1), n_all + at(start - 2), 2 * n_all + at(end), 3 * n_all + at(end + 1)]
    return slots + [4 * n_all + number for number in sorted(near) if number < n_words]


def n_rows() -> int:
    """The number of rows of the weights."""
    return SLOTS * _counts()[1]


@lru_cache(maxsize=1)
def word_types() -> WordTypes:
    """The weights that come with this package."""
    with np.load(io.BytesIO(files(__package__).joinpath(FILE).read_bytes())) as loaded:
        return WordTypes(loaded["weights"].astype(np.float32) * loaded["scale"], loaded["bias"])


def split(text: str) -> list[tuple[int, int, str]]:
    """The words of a text with their offsets."""
    return [(one.start(), one.end(), one.group()) for one in _TOKEN.finditer(text)]


def numbers_of(words: Sequence[str]) -> list[int]:
    """The numbers of words."""
    return [_number(word) for word in words]


@lru_cache(maxsize=1)
def _counts() -> tuple[int, int, int]:
    """The number of words, of words and marks, and the number of the mark for the edge."""
    n_words = len(english_words())
    return n_words, n_words + len(_MARKS), n_words + _MARKS.index("<edge>")


@lru_cache(maxsize=1)
def _vocabulary() -> dict[str, int]:
    return {word: i for i, word in enumerate((*english_words(), *_MARKS))}


def _number(word: str) -> int:
    """The number of a word or a mark."""
    known = _vocabulary()
    found = known.get(word.lower())
    if found is not None:
        return found
    if word[0].isdigit():
        return known["<number>"]
    return known["<capital>" if word[0].isupper() else "<other>"]
