"""Split English text into tokens, with a part of speech for each, without a model.

    text -> paragraphs -> tokens -> one letter per token, chosen by
        weight of the letter for the word  x  fit to the letter before  x  fit to the likeliest letter after

Letters: D determiner, F "of", P preposition, O pronoun, W subordinator, C coordinator, X be/have/do, M modal,
T "to" before a verb, ! negation, N noun, E name, K month, 1 number, J adjective, L participle before a noun,
V verb (past participles too), G verb in -ing, R adverb, A "ago" and similar words, S 's, "," comma, "." any end of a
phrase. There is no sentence splitter: the end of a sentence is a letter that no phrase crosses.

Cost: about 150,000 words per second on one core.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from training.corpus.chunking.function_words import CLOSED_CLASS
from training.corpus.chunking.lexicon import Lexicon, Weights, is_month

_TOKEN = re.compile(
    r"""
    (?:[A-Z]\.){2,}                                   # U.S.
    | (?:[A-Z]|Mr|Mrs|Ms|Dr|St|Jr|Sr|Prof|Gen|Col|Lt|Capt|Rev|Sen|Rep|Gov|No|Vol|Mt|Ft)\.(?=\s*[\w(])
    | (?:Jan|Feb|Aug|Sept|Oct|Nov|Dec)\.(?=\s*\d)
    | (?:vs|etc|e\.g|i\.e|cf|c|ca|approx)\.
    | [$£€¥]?\d+(?:[.,:/–-]\d+)*(?:%|st\b|nd\b|rd\b|th\b|s\b|[a-zA-Z]{1,3}\b)?   # 1,000  3.5%  10:30  21st  1990s  5km
    | \w+(?:[-&.’']\w+)*?(?=['’]s\b|n['’]t\b)         # the word before 's and n't
    | n['’]t\b | ['’](?:s|re|ve|ll|d|m)\b
    | \w+(?:[-&]\w+|['’](?!s\b)\w\w+|\.(?:com|org|net)\b)*
    | ['’]
    | \S
    """,
    re.VERBOSE,
)
_NUMBER = re.compile(r"[$£€¥]?\d")

_AFTER: dict[str, dict[str, float]] = {
    # For each letter: how well other letters follow it; 1 if not listed.
    "D": {"N": 3, "J": 3, "L": 2, "G": 0.1, "V": 0.01, "R": 0.3, "W": 0.02, "O": 0.1, "P": 0.1, "X": 0.1, "T": 0.1},
    "S": {"N": 3, "J": 3, "L": 2, "G": 0.1, "V": 0.01, "R": 0.3},
    "J": {"N": 4, "V": 0.05, "L": 0.5, "G": 0.2, "D": 0.1},
    "L": {"N": 4, "V": 0.05, "G": 0.2},
    "1": {"N": 4, "V": 0.2, "J": 1.5, "L": 1, "G": 0.2},
    "P": {"N": 2, "J": 2, "L": 1, "V": 0.02, "R": 0.4, "G": 1.5, "P": 0.5, "W": 0.3},
    "F": {"N": 2, "J": 2, "L": 1, "V": 0.02, "R": 0.3, "G": 1.5, "W": 0.1},
    "T": {"V": 20, "N": 0.05, "J": 0.05, "L": 0.02, "G": 0.02, "R": 0.5},
    "M": {"V": 20, "N": 0.05, "J": 0.05, "L": 0.02, "R": 1, "X": 3, "D": 0.5},
    "!": {"V": 4, "N": 0.3, "J": 2},
    "O": {"V": 6, "N": 0.05, "J": 0.3, "L": 0.05, "X": 2, "R": 1, "G": 1},
    "X": {"V": 3, "L": 0.2, "J": 2, "N": 0.5, "R": 1.2, "G": 4},
    "W": {"V": 2, "N": 0.8, "D": 1.5, "O": 2},
    "N": {"V": 1.5, "N": 0.8, "J": 0.3, "L": 0.02, "W": 3, "D": 0.3, "R": 1, "G": 1, "A": 3},
    "E": {"V": 2.5, "N": 1, "J": 0.4, "L": 0.02, "W": 3, "D": 0.3, "R": 1.2},
    "K": {"V": 1, "N": 0.6, "J": 0.2, "L": 0.02},
    "V": {"V": 0.1, "N": 1, "J": 1, "L": 1, "R": 1.5, "D": 2, "P": 2, "G": 0.7},
    "G": {"V": 0.1, "N": 1.5, "J": 1.3, "L": 1, "D": 2},
    "R": {"V": 1.5, "N": 0.3, "J": 1.5, "L": 0.7, "R": 0.8},
    "C": {"D": 1.2},
    ",": {"W": 3, "L": 0.3},
    ".": {"L": 0.3, "D": 1.5, "P": 1.5, "G": 0.7},
}

_BEFORE: dict[str, dict[str, float]] = {
    # For each letter: how well it precedes the likeliest letter of the next word; 1 if not listed.
    "J": {"N": 2, "E": 1.3, "J": 1.5, "F": 0.2, "P": 0.6, ".": 0.6, ",": 0.7, "X": 0.2, "V": 0.4, "M": 0.2},
    "L": {"N": 3, "J": 1.5, "E": 1, "F": 0.05, "P": 0.05, ".": 0.05, ",": 0.05, "D": 0.05, "X": 0.05, "C": 0.3},
    "N": {"N": 0.7, "J": 0.3, "F": 4, "P": 1.3, ".": 1.5, ",": 1.3, "X": 2, "V": 1.2, "M": 2, "D": 0.4, "E": 0.5},
    "V": {"D": 3, "P": 1.5, "O": 2, "F": 0.3, "X": 0.2, "M": 0.1, "E": 1.2, "R": 1.5, "N": 0.7, "S": 0.01},
    "G": {"D": 3, "P": 1.5, "O": 2, "F": 0.3, "N": 0.8},
    "R": {"J": 2, "V": 1.5, "N": 0.3, "L": 1.5, ".": 1.5, ",": 1.5, "P": 1.3, "D": 1, "1": 1.5},
    "D": {"N": 2, "J": 2, "E": 1.5, "1": 1.5, "L": 1, "X": 0.1, "M": 0.1, "P": 0.3, ".": 0.2, ",": 0.2, "F": 0.7},
    "W": {"X": 2, "M": 2, "O": 2, "D": 2, "V": 2, "E": 1, "N": 0.5},
    "P": {"D": 3, "N": 1.5, "E": 2, "1": 2, "J": 1.5, "O": 2, "K": 3, ".": 0.05, ",": 0.1, "P": 0.3, "F": 0.2},
    "T": {"V": 4, "D": 0.02, "E": 0.02, "1": 0.05, "O": 0.1, "N": 0.4, "X": 4, "J": 0.1, "K": 0.02},
    "O": {"V": 1.5, "P": 1.5, ".": 2, ",": 1.5},
}


class Token(NamedTuple):
    """Start and end of a token in its text."""

    start: int
    end: int


class Tagger:
    """Finds the tokens and letters of a paragraph."""

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon

    def tag(self, text: str) -> tuple[list[Token], str]:
        """Return the tokens of a text, and a string with a letter for each."""
        tokens: list[Token] = []
        options: list[Weights] = []
        is_start = True
        for match in _TOKEN.finditer(text):
            word = match.group()
            tokens.append(Token(match.start(), match.end()))
            options.append(self._options(word, is_start))
            is_start = word in ".!?:" or (is_start and not word[0].isalnum())
        return tokens, _choose(_unlikely_starts(text, tokens, options))

    def _options(self, word: str, is_start: bool) -> Weights:
        """Return the letters that a word may have at this place."""
        first = word[0]
        if not (first.isalnum() or first in "'’n$£€¥&%"):
            return _COMMA if first == "," else _END
        if _NUMBER.match(word):
            return _ORDINAL if word[-2:] in ("st", "nd", "rd", "th") else _ONE
        lower = word.lower().replace("’", "'")
        if not first.isupper():
            return self._lexicon.weights(lower)
        if is_month(lower):
            return _MONTH
        if lower in CLOSED_CLASS and (word == "I" or not word.isupper() or (is_start and word == "A")):
            return self._lexicon.weights(lower)
        if is_start and not word.isupper() and self._lexicon.is_common(lower):
            return {**self._lexicon.weights(lower), "E": 1.0}
        return _NAME


_COMMA: Weights = {",": 1.0}
_END: Weights = {".": 1.0}
_ONE: Weights = {"1": 1.0}
_ORDINAL: Weights = {"J": 1.0}
_MONTH: Weights = {"K": 1.0}
_NAME: Weights = {"E": 1.0}
_NOTHING: dict[str, float] = {}


def _unlikely_starts(text: str, tokens: list[Token], options: list[Weights]) -> list[Weights]:
    """Decide whether a common word at the start of a sentence is part of a name: "Church Street was ..."."""
    for i, weights in enumerate(options[:-1]):
        if len(weights) > 1 and "E" in weights:
            follows = options[i + 1] is _NAME and text[tokens[i].end : tokens[i + 1].start] == " "
            options[i] = _NAME if follows and ("N" in weights or "J" in weights) else _without_name(weights)
    return options


def _without_name(weights: Weights) -> Weights:
    return {letter: weight for letter, weight in weights.items() if letter != "E"}


def _choose(options: list[Weights]) -> str:
    """Choose the best letter of each token, from left to right."""
    likeliest = [next(iter(o)) if len(o) == 1 else max(o, key=o.__getitem__) for o in options]
    likeliest.append(".")
    letters = []
    before = "."
    for i, weights in enumerate(options):
        letter = likeliest[i]
        if len(weights) > 1:
            after, best = likeliest[i + 1], 0.0
            fits = _AFTER.get(before, _NOTHING)
            for one, weight in weights.items():
                score = weight**0.5 * fits.get(one, 1.0) * _BEFORE.get(one, _NOTHING).get(after, 1.0)
                if score > best:
                    letter, best = one, score
        letters.append(letter)
        before = letter
    return "".join(letters)
