"""The built-in parser: finds phrases of the five classes by patterns over parts of speech. English, no download.

It finds what a constituency parse of simple clauses has, nested phrases included: base noun phrases, noun phrases
joined by "of" or "and", prepositional phrases, adverbs and times ("two years later"), adjectives after a verb or with
an adverb, and verb phrases. It cannot decide what a prepositional phrase is attached to ("of" apart): noun phrases
that contain another preposition are not found, and verb phrases end early. A pronoun alone is not a phrase.

Cost: about 60,000 words per second on one core; memory: the lexicon, about 100 MB.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from training.corpus.chunking.function_words import EMPTY_WORDS
from training.corpus.chunking.lexicon import Lexicon
from training.corpus.chunking.phrases import Phrase
from training.corpus.chunking.tagger import Tagger, Token
from training.options import DEFAULT_MAX_WORDS

_BEFORE_NOUN = r"(?:R(?=[JL])|[JLE]|(?<!1)K1,1|K1?)"
# A number starts or ends a phrase: "in Paris two years" has two, "Apollo 11" is one.
_COUNT = "(?:J?1+)"
_HEADED = rf"(?:{_COUNT}?(?:{_BEFORE_NOUN}*N+E*|{_BEFORE_NOUN}+(?<=[EK1])(?:1(?![NJL1]))?)|{_COUNT})"
_BASE = rf"(?:D{{0,2}}{_HEADED}S)?D{{0,2}}{_HEADED}"
_NOUN = rf"{_BASE}(?:F{_BASE})*"
_OBJECT = rf"(?:{_NOUN}|O)"
_PREPOSITIONAL = rf"P?[PF]{_OBJECT}"
_FURTHER = rf"(?:{_PREPOSITIONAL}(?!A)|{_BASE}A|[RA]+|R*J)"
_VERBAL = rf"(?:[XMT][!RA]*)*[VGX]R*(?:T[!R]*[VX]R*)*{_OBJECT}?(?:{_NOUN}(?!A))?{_FURTHER}*"

_BASE_NP = re.compile(_BASE)
_JOINED_NPS = re.compile(rf"{_NOUN}(?:F{_BASE})|{_BASE}C{_BASE}")
_PP = re.compile(rf"(?=({_PREPOSITIONAL}))(?<!P)[PF]|(?<=P)(?=([PF]{_OBJECT}))")
_ADVP = re.compile(rf"{_BASE}A|[RA]+(?![JLRA])")
_ADJP = re.compile(r"R*J(?:CJ)?")
_COMPLEMENT = re.compile(rf"P{_NOUN}")  # complement of an adjective after a verb: famous for its bridges
_DEGREE_ADJP = re.compile(r"R+J(?=[JNE])")
_VP = re.compile(rf"(?=({_VERBAL}))")
_PIECE = re.compile(r"[^.]{1,200}")  # no phrase crosses a full stop; patterns cost the square of a run's length
_ALONE = re.compile(r"X+[!RA]*")


class ChunkParser:
    """A `PhraseParser` that uses WordNet's parts of speech and patterns."""

    def __init__(self, wordnet: Path | Lexicon, *, max_words: int = DEFAULT_MAX_WORDS) -> None:
        """Read a WordNet `dict` folder.

        Args:
            wordnet: The folder, as in Debian's `wordnet-base`; or a lexicon read from one.
            max_words: Longer phrases are skipped.

        Raises:
            FormatError: If the folder has no WordNet.
        """
        self._tagger = Tagger(Lexicon(wordnet) if isinstance(wordnet, Path) else wordnet)
        self._max_words = max_words

    def parse(self, texts: Iterable[str]) -> Iterator[list[Phrase]]:
        """Yield the phrases of each text; a newline ends a sentence."""
        for text in texts:
            yield [phrase for line in text.split("\n") if line for phrase in self._phrases(line)]

    def _phrases(self, line: str) -> Iterator[Phrase]:
        tokens, letters = self._tagger.tag(line)
        for start, end, lexical_class in chunks(letters):
            if end - start <= self._max_words:
                text = _text(line, tokens[start:end])
                if text is not None:
                    yield Phrase(text, lexical_class)


def chunks(letters: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and class of each phrase in a string of parts of speech, nested phrases included."""
    for piece in _PIECE.finditer(letters):
        for start, end, lexical_class in _chunks_of(piece.group()):
            yield piece.start() + start, piece.start() + end, lexical_class


def _chunks_of(letters: str) -> Iterator[tuple[int, int, str]]:
    bare = list(letters)
    for match in _BASE_NP.finditer(letters):
        yield *match.span(), "NP"
        bare[match.start() : match.end()] = "_" * (match.end() - match.start())
    for match in _JOINED_NPS.finditer(letters):
        yield *match.span(), "NP"
    for pattern, lexical_class in ((_PP, "PP"), (_VP, "VP")):
        for match in pattern.finditer(letters):
            group = 1 if match.group(1) else 2
            start, end = match.span(group)
            if not _ALONE.fullmatch(letters, start, end):
                yield start, end, lexical_class
    for match in _DEGREE_ADJP.finditer(letters):
        yield *match.span(), "ADJP"
    outside = "".join(bare)
    for match in _ADJP.finditer(outside):
        start, end = match.span()
        with_complement = _COMPLEMENT.match(letters, end) if letters[start - 1 : start] in ("X", "!") else None
        yield start, with_complement.end() if with_complement else end, "ADJP"
    for match in _ADVP.finditer(letters):
        if match.group()[-1] == "A" or "_" not in outside[match.start() : match.end()]:
            yield *match.span(), "ADVP"


def _text(line: str, tokens: list[Token]) -> str | None:
    """Return the phrase as written, white space normalised; None if it has only function words."""
    text = " ".join(line[tokens[0].start : tokens[-1].end].split())
    words = text.lower().split()
    if all(word in EMPTY_WORDS for word in words) or not any(c.isalnum() for c in text):
        return None
    return text
