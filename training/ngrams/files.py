"""Sentences, words, and the folder that `find_ngrams` writes: n-grams, and sequences with their spans.

    ngrams.tsv       n-gram <TAB> count <TAB> PMI in nats, after a header; in the order of the first occurrence
    sequences.txt    the text of each sequence, a line each, UTF-8
    sequences.bin    a record for each sequence, and one more for the end: `SEQUENCE`
    spans.bin        a record for each span, ordered by sequence, start and end: `SPAN`
    meta.json        options and counts; written last, so that a folder with it is complete

Records are packed, little-endian. The spans of sequence i are those from its `first_span` up to that of i + 1, and its
text goes from its `text` to one byte before that of i + 1. So a program can map the files, and finds a sequence and
its spans without reading others.
"""

from __future__ import annotations

import json
import math
import random
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pearl_qdrant.errors import FormatError
from training.options import Sampling, StrPath

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
"""Stands for what no n-gram contains: the end of a sequence."""


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
def word_pattern() -> re.Pattern[str]:
    """Return the pattern of a word: letters, digits and their marks of any script, with apostrophes inside."""
    # `\w` has no combining marks, without which a word of Hindi falls to pieces.
    codes = [code for code in range(0x300, sys.maxunicode + 1 if sys.maxunicode < 0x10000 else 0x10000)
             if unicodedata.category(chr(code))[0] == "M"]  # fmt: skip
    marks = "".join(f"{chr(first)}-{chr(last)}" for first, last in _ranges(codes))
    letter = f"(?:[^\\W_][{marks}]*)"
    return re.compile(f"{letter}+(?:['\u2019]{letter}+)*")


def _ranges(codes: list[int]) -> Iterator[tuple[int, int]]:
    first = last = codes[0]
    for code in codes[1:]:
        if code != last + 1:
            yield first, last
            first = code
        last = code
    yield first, last


def normalise_word(word: str) -> str:
    """Return what makes spellings one word: composed characters, a straight apostrophe and small letters."""
    composed = word if word.isascii() else unicodedata.normalize("NFC", word).replace("\u2019", "'")
    return composed.lower()


class WordNumbers(dict[str, int]):
    """The number of each word, computed when it is first asked for: 64 bits of a hash, and never `BREAK`.

    Two of ten million words share a number with a probability of 3 in a million. At most `MAX_CACHED` are remembered.
    """

    def __missing__(self, word: str) -> int:
        if len(self) >= MAX_CACHED:
            self.clear()
        text = normalise_word(word).encode("utf-8", "surrogatepass")
        number = self[word] = int.from_bytes(blake2b(text, digest_size=8).digest(), "little") or 1
        return number


NGRAMS = "ngrams.tsv"
SEQUENCES_TEXT = "sequences.txt"
SEQUENCES = "sequences.bin"
SPANS = "spans.bin"
META = "meta.json"

VERSION = 1
"""Of the files; a change that older readers cannot read raises it."""

SEQUENCE = np.dtype([("text", "<u8"), ("first_span", "<u8"), ("document", "<u4"), ("words", "<u4")])
"""Where its text begins in sequences.txt, in bytes; its first span; its document, from 0; its number of words."""

SPAN = np.dtype([("start", "<u4"), ("end", "<u4"), ("pmi", "<f4"), ("words", "<u4")])
"""From and to which character of the sequence; the PMI; its number of words."""


@dataclass(frozen=True, slots=True)
class NgramSpan:
    """An n-gram in a sequence."""

    # start, end: in characters of the sequence's text; `end` is the first one after it
    start: int
    end: int
    words: int  # number of words
    pmi: float | None = None  # in nats; None for a span drawn at random


@dataclass(frozen=True, slots=True)
class MarkedSequence:
    """A sequence with its n-grams."""

    text: str  # the sequence, a sentence as a rule
    spans: tuple[NgramSpan, ...]  # its n-grams, ordered by start and end; they may overlap
    words: int  # its number of words
    document: int = 0  # its document, numbered from 0


class NgramCorpus:
    """The sequences of a folder that `find_ngrams` wrote, read when they are asked for.

    It takes no memory for what is not read, and can be used by several threads, and by processes forked from this one.

    Attributes:
        folder: The folder.
        meta: Options and counts, as in meta.json.
    """

    def __init__(self, folder: StrPath) -> None:
        """Open the folder. Raises FormatError if a file is missing, or of another version."""
        self.folder = Path(folder)
        self.meta = _read_meta(self.folder / META)
        try:
            self._sequences = _map(self.folder / SEQUENCES, SEQUENCE)
            self._spans = _map(self.folder / SPANS, SPAN)
            self._text = _map(self.folder / SEQUENCES_TEXT, np.dtype("u1"))
        except FileNotFoundError as error:
            raise FormatError(str(error.filename), None, "does not exist. Find the n-grams again") from error

    def __len__(self) -> int:
        return len(self._sequences) - 1

    def __getitem__(self, index: int, /) -> MarkedSequence:
        """Read a sequence by its number, from 0. Raises IndexError."""
        this, following = self._sequences[index], self._sequences[index + 1]
        start, end = int(this["text"]), int(following["text"])
        text = self._text[start : end - 1].tobytes().decode("utf-8")
        spans = self._spans[int(this["first_span"]) : int(following["first_span"])].tolist()
        return MarkedSequence(
            text,
            tuple(NgramSpan(first, last, n, pmi) for first, last, pmi, n in spans),
            int(this["words"]),
            int(this["document"]),
        )

    def numbers_with_spans(self) -> npt.NDArray[np.int64]:
        """Return the numbers of the sequences that have a span, in order."""
        return np.flatnonzero(np.diff(self._sequences["first_span"]))


def _map(path: Path, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    return np.memmap(path, dtype=kind, mode="r") if path.stat().st_size else np.empty(0, dtype=kind)


def _read_meta(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise FormatError(str(path), None, "does not exist: the folder has no finished n-grams")
    meta: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if meta.get("version") != VERSION:
        raise FormatError(str(path), None, f"is not of version {VERSION}. Find the n-grams again")
    return meta


SPAN_PROBABILITY = 0.2
"""Parameter of the geometric distribution of the lengths of random spans: ULR, section 7.2."""

MAX_SPAN_WORDS = 6
"""Words of the longest random span: ULR, section 7.2."""


SpanScorer = Callable[[Sequence[str], Sequence[tuple[int, int]]], Sequence[float]]
"""From texts, each with the first character of a span and the first one after it, to the scores of the spans; NaN for
one that must not be chosen. See `training.ulr.drawing`."""


def choose_spans(
    sequences: Sequence[MarkedSequence], strategy: Sampling, *, rng: random.Random, score: SpanScorer | None = None
) -> list[NgramSpan | None]:
    """Choose a span of each sequence. Returns the span, or None for a sequence that has none to choose.

    With `lowest_score`, which needs `score` and no draws, all n-grams are scored in one call.
    """
    if strategy == "random_span":
        return [draw_random_span(one.text, rng) for one in sequences]
    # An n-gram leaves a rest.
    candidates = [[span for span in one.spans if span.words < one.words] for one in sequences]
    if strategy == "random_ngram":
        return [spans[rng.randrange(len(spans))] if spans else None for spans in candidates]
    assert score is not None
    texts = [sequence.text for sequence, spans in zip(sequences, candidates, strict=True) for _ in spans]
    scores = iter(score(texts, [(span.start, span.end) for spans in candidates for span in spans]) if texts else ())
    chosen: list[NgramSpan | None] = []
    for spans in candidates:
        best, lowest = None, math.inf  # of equal ones the first; NaN is never lower
        for span, value in zip(spans, islice(scores, len(spans)), strict=True):
            if value < lowest:
                best, lowest = span, value
        chosen.append(best)
    return chosen


def draw_random_span(text: str, rng: random.Random) -> NgramSpan | None:
    """Draw words in a row, as SpanBERT does; None if the text has fewer than two words.

    The length l has probability p (1 - p)^(l - 1), over the lengths from 1 to `MAX_SPAN_WORDS` that leave a word for
    the rest; each place is then as likely as another. `rng` makes two draws.
    """
    words = [found.span() for found in word_pattern().finditer(text)]
    longest = min(MAX_SPAN_WORDS, len(words) - 1)
    if longest < 1:
        return None
    # The inverse of the distribution function, cut off after `longest`.
    share = 1 - (1 - SPAN_PROBABILITY) ** longest
    length = min(longest, 1 + int(math.log1p(-rng.random() * share) / math.log1p(-SPAN_PROBABILITY)))
    first = rng.randrange(len(words) - length + 1)
    return NgramSpan(words[first][0], words[first + length - 1][1], length)
