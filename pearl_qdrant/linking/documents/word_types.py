"""Types of entities that the words around a mention suggest, and passages around mentions compared with entities.

    log p(type | words)  ~  bias + sum over words of weight[slot of the word, word]

A word has a slot by its place: the two before the mention, the two after it, and one for all words up to ten away.
Words are those of `lexical/english_words.txt`, punctuation, and marks for other capitalised words, numbers, any other
and the edge of the text. `word_types.npz` has the weights; `runs/word_types.py` fits them on names of known type in
English Wikipedia.

A passage is a mention with the words around it; mentions near each other share one. The value of an entity is the
cosine of its name to the passage, and to the nearest piece of it without the mention. The mean vector of `TYPICAL` is
subtracted from both: what any passage has in common with a name says nothing.
"""

from __future__ import annotations

import io
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from pearl_qdrant.lexical.words import english_words
from pearl_qdrant.linking.ranking.model import FloatArray
from pearl_qdrant.store.schema import NamePoint

TYPES = ("PERSON", "ORG", "GPE", "LOC", "FAC", "NORP", "EVENT", "WORK_OF_ART", "PRODUCT", "LANGUAGE")
"""Coarse types that words tell apart."""

FILE = "word_types.npz"
NEAR = 10  # words on each side that count
SLOTS = 5
_PUNCTUATION = ",.;:()'\"-–?!&/"
_MARKS = ("<capital>", "<number>", "<other>", "<edge>", *_PUNCTUATION)
_TOKEN = re.compile(r"[^\W_]+(?:['’&.-][^\W_]+)*|[^\w\s]")


@dataclass(frozen=True, slots=True)
class WordTypes:
    """The weights, (SLOTS * number of words and marks, len(TYPES)), and the bias, (len(TYPES),)."""

    weights: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]

    def log_probabilities(self, rows: Sequence[int]) -> npt.NDArray[np.float64]:
        """(len(TYPES),), the logarithms of the probabilities of the types; `rows` as `rows_of` makes them."""
        logits = self.bias + self.weights[rows].sum(axis=0, dtype=np.float64)
        shifted = logits - logits.max()
        found: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
        return found


class Words:
    """A text cut into words."""

    def __init__(self, text: str) -> None:
        found = split(text)
        self.starts = [start for start, _, _ in found]
        self.ends = [end for _, end, _ in found]
        self.numbers = [number(word) for _, _, word in found]

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


@lru_cache(maxsize=1)
def _counts() -> tuple[int, int, int]:
    """The number of words, of words and marks, and the number of the mark for the edge."""
    n_words = len(english_words())
    return n_words, n_words + len(_MARKS), n_words + _MARKS.index("<edge>")


@lru_cache(maxsize=1)
def _vocabulary() -> dict[str, int]:
    return {word: i for i, word in enumerate((*english_words(), *_MARKS))}


def number(word: str) -> int:
    """The number of a word or a mark."""
    known = _vocabulary()
    mark = "<number>" if word[0].isdigit() else "<capital>" if word[0].isupper() else "<other>"
    return known.get(word.lower(), known[mark])


WORDS, PIECE = 20, 4  # words of a passage on each side of a mention, and words of a piece of a passage
SHARED = 10  # a mention at most this many words after the one in the middle of a passage shares the passage
TYPICAL = (
    "In this part we describe how the work was done and what came out of it, and compare it with what was known.",
    "It was the first of several that were made in the following years, and it is still in use today.",
    "The results of last year show that most of them were better than the others, although there were differences.",
)
"""Sentences about nothing in particular."""

_MOST_DESCRIBED = 150  # characters of a description that are read: a definition says at its beginning what a thing is
Vectors = Callable[[Sequence[str]], FloatArray]  # vectors of texts, (n, dim), L2-normalised or zero

NameVectors = Callable[[Sequence[NamePoint]], FloatArray]
"""Vectors of the canonical names of entities, as they are stored: (n, dim), L2-normalised or zero."""

_WORD = re.compile(r"\S+")


def typical_vectors(encode: Vectors) -> FloatArray:
    """The mean vectors of the sentences of `TYPICAL`, and of their pieces: (2, dim)."""
    parts = [list(TYPICAL), [piece for sentence in TYPICAL for piece in _pieces(sentence.split())]]
    return np.array([encode(part).mean(axis=0) for part in parts])


def _pieces(words: Sequence[str]) -> list[str]:
    """Some words cut into pieces."""
    return [" ".join(words[start : start + PIECE]) for start in range(0, len(words), PIECE)]


class Passages:
    """The passages of one text; `typical` is what `typical_vectors` gives."""

    def __init__(self, text: str, encode: Vectors, name_vectors: NameVectors, typical: FloatArray) -> None:
        self._text = text
        words = list(_WORD.finditer(text))
        self._starts, self._ends = [one.start() for one in words], [one.end() for one in words]
        self.encode, self.name_vectors, self.typical = encode, name_vectors, typical
        self._known: dict[str, FloatArray] = {}  # mentions of one context are compared one by one

    def compare(self, requests: Sequence[tuple[int, Sequence[NamePoint]]]) -> list[FloatArray]:
        """Cosines of passages to entities, plus those of their nearest pieces: one value in [-2, 2] for each entity.
        Each request is the offset of a mention in characters, in the order of the text, and entities.
        """
        of_request: list[str] = []
        beside: list[list[str]] = []
        passage, at = "", None
        for start, _ in requests:
            word = max(0, bisect_right(self._starts, start) - 1)
            if at is None or not 0 <= word - at <= SHARED:
                first, end = max(0, word - WORDS), min(len(self._starts), word + WORDS + 1)
                passage, at = self._words(first, end) if self._starts else self._text, word
            of_request.append(passage)
            beside.append(self._beside(word))
        described = [dict(_descriptions(candidates)) for _, candidates in requests]
        points = {_key(point): point for _, candidates in requests for point in candidates}
        of_text = self._known
        texts = [*of_request, *chain.from_iterable(one.values() for one in described), *chain.from_iterable(beside)]
        if new := [text for text in dict.fromkeys(texts) if text not in of_text]:
            of_text |= zip(new, self.encode(new), strict=True)
        of_name = dict(zip(points, self.name_vectors(list(points.values())), strict=True))
        found = []
        for passage, pieces, own, (_, candidates) in zip(of_request, beside, described, requests, strict=True):
            keys = [_key(point) for point in candidates]
            vectors = np.array([of_text[own[key]] if key in own else of_name[key] for key in keys])
            cosines = vectors @ _normalised(of_text[passage] - self.typical[0])
            if pieces:
                parts = [_normalised(of_text[piece] - self.typical[1]) for piece in pieces]
                cosines += (vectors @ np.array(parts).T).max(axis=1)
            found.append(cosines)
        return found

    def _beside(self, word: int) -> list[str]:
        """Pieces of the words around one of them, without it. Mentions near each other share most pieces."""
        first = max(0, word - WORDS) // PIECE * PIECE
        end = min(len(self._starts), (word + WORDS) // PIECE * PIECE + PIECE)
        cuts = sorted({*range(first, end, PIECE), word, word + 1, end})
        return [self._words(start, stop) for start, stop in pairwise(cuts) if start != word]

    def _words(self, first: int, end: int) -> str:
        return " ".join(self._text[self._starts[first] : self._ends[end - 1]].split())


def _normalised(vector: FloatArray) -> FloatArray:
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector


def _key(point: NamePoint) -> tuple[str, str]:
    return point.kb, point.entity_id


def _descriptions(candidates: Sequence[NamePoint]) -> Iterator[tuple[tuple[str, str], str]]:
    """Of a mention's candidates with the same name: what each is called, and the beginning of what it is."""
    n_of_name = Counter([point.name.casefold() for point in candidates])
    for point in candidates:
        if n_of_name[point.name.casefold()] > 1 and (description := (point.description or "").strip()):
            yield _key(point), f"{point.canonical_name}, {description[:_MOST_DESCRIBED]}"
