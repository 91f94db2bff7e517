"""The parts of speech that an English word may have, with weights: WordNet, its exception lists, and endings.

Inflected forms are reduced as by WordNet's own look-up (morphy(7WN)): first the exception lists (`noun.exc`, ...),
then endings. An unknown word is classified by its ending. The weight is the number of times that the word has this tag
in WordNet's corpora (`cntlist.rev`, if there is one) plus its number of senses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pearl_qdrant.errors import FormatError
from training.corpus.chunking.function_words import CLOSED_CLASS, MONTHS
from training.examples.wordnet import read_synsets

Weights = dict[str, float]
"""Weights by letter of a part of speech; see `tagger`."""

_LETTER = {"NP": "N", "VP": "V", "ADJP": "J", "ADVP": "R"}
_SENSE_LETTER = {"1": "N", "2": "V", "3": "J", "4": "R", "5": "J"}  # senseidx(5WN): ss_type
_CACHE = 500_000

_NOUN_ENDINGS = (("ies", "y"), ("ches", "ch"), ("shes", "sh"), ("xes", "x"), ("ses", "s"), ("men", "man"), ("s", ""))
_VERB_S_ENDINGS = (("ies", "y"), ("es", "e"), ("es", ""), ("s", ""))
_PAST_ENDINGS = (("ied", "y"), ("ed", "e"), ("ed", ""))
_ING_ENDINGS = (("ing", "e"), ("ing", ""))
_DEGREE_ENDINGS = (("iest", "y"), ("ier", "y"), ("est", "e"), ("est", ""), ("er", "e"), ("er", ""))

_UNKNOWN: tuple[tuple[re.Pattern[str], Weights], ...] = (
    (re.compile(r"ly$"), {"R": 8, "J": 1}),
    (re.compile(r"ing$"), {"G": 4, "N": 2, "J": 2}),
    (re.compile(r"ed$"), {"V": 5, "L": 4}),
    (re.compile(r"(?:ous|ful|ive|able|ible|less|ish|ic|ical|ary|ese|ian|al)$"), {"J": 5, "N": 1}),
    (re.compile(r".-(?:based|born|like|style|old|term|year|level|time|class|made)$"), {"J": 5, "N": 1}),
)


class Lexicon:
    """Parts of speech of words in lower case."""

    def __init__(self, folder: Path) -> None:
        """Read a WordNet `dict` folder.

        Raises:
            FormatError: If the folder has no WordNet, or its files cannot be read.
        """
        self._known: dict[str, Weights] = {}
        self._irregular: dict[str, Weights] = {}
        self._cache: dict[str, Weights] = {}
        try:
            self._read_words(folder)
            self._read_counts(folder / "cntlist.rev")
            self._read_exceptions(folder)
        except (OSError, ValueError, LookupError) as error:
            raise FormatError(str(folder), None, f"cannot be read as WordNet: {error}") from error

    def is_common(self, word: str) -> bool:
        """Return whether a lower-cased word is a word of the language rather than a name."""
        is_listed = word in CLOSED_CLASS or word in self._known or word in self._irregular
        return is_listed or next(self._inflected(word), None) is not None

    def weights(self, word: str) -> Weights:
        """Return the letters that a lower-cased word may have, each with a weight > 0; never empty."""
        found = self._cache.get(word)
        if found is None:
            if len(self._cache) >= _CACHE:
                self._cache.clear()
            found = self._cache[word] = self._look_up(word)
        return found

    def _look_up(self, word: str) -> Weights:
        if word in CLOSED_CLASS:
            return {letter: 4.0 / (1 + i) for i, letter in enumerate(CLOSED_CLASS[word])}
        found = dict(self._known.get(word, {}))
        for letter, weight in [*self._irregular.get(word, {}).items(), *self._inflected(word)]:
            found[letter] = found.get(letter, 0.0) + weight
        if "-" in word and not found:
            head = self._known.get(word.rpartition("-")[2], {})
            found = {"J": 2.0, "N": 3.0} if "N" in head else {"J": 3.0, "N": 1.0}
        if not found:
            found = next((dict(weights) for ending, weights in _UNKNOWN if ending.search(word)), {"N": 1.0})
        if "J" in found and word.endswith("ed"):
            # WordNet lists many participles as adjectives; the context decides whether one precedes its noun.
            found["L"] = found.get("L", 0.0) + found["J"]
        return found

    def _inflected(self, word: str) -> Iterator[tuple[str, float]]:
        """Yield the letters of the words of which this may be an inflected form."""
        if word.endswith("s") and not word.endswith("ss"):
            yield from self._reduced(word, _NOUN_ENDINGS, "N", "N")
            yield from self._reduced(word, _VERB_S_ENDINGS, "V", "V")
        elif word.endswith("ed"):
            yield from self._reduced(word, _PAST_ENDINGS, "V", "VL")
        elif word.endswith("ing"):
            yield from self._reduced(word, _ING_ENDINGS, "V", "GJ")
        elif word.endswith(("er", "est")):
            yield from self._reduced(word, _DEGREE_ENDINGS, "J", "J")

    def _reduced(
        self, word: str, endings: tuple[tuple[str, str], ...], wanted: str, letters: str
    ) -> Iterator[tuple[str, float]]:
        """Yield the letters, with the weight of the first base form that is known as `wanted`."""
        for ending, replacement in endings:
            if not word.endswith(ending):
                continue
            stem = word[: -len(ending)]
            doubled = stem[:-1] if len(stem) > 3 and stem[-1] == stem[-2] and not replacement else stem
            for base in (stem + replacement, doubled):
                weight = self._known.get(base, {}).get(wanted, 0.0)
                if weight:
                    yield from ((letter, weight / (1 + i)) for i, letter in enumerate(letters))
                    return

    def _read_words(self, folder: Path) -> None:
        for synset in read_synsets(folder):
            letter = _LETTER[synset.lexical_class]
            for name in synset.names:
                if not synset.is_instance and " " not in name and name == name.lower():
                    weights = self._known.setdefault(name, {})
                    weights[letter] = weights.get(letter, 0.0) + 1

    def _read_counts(self, path: Path) -> None:
        """Add how often words were tagged; a line is `lemma%ss_type:... sense_number tag_cnt`."""
        if not path.exists():
            return
        with path.open(encoding="utf-8") as file:
            for line in file:
                key, _, count = line.split()
                lemma, _, sense = key.partition("%")
                letter = _SENSE_LETTER[sense[0]]
                if letter in self._known.get(lemma, {}):
                    self._known[lemma][letter] += int(count)

    def _read_exceptions(self, folder: Path) -> None:
        """Read irregular forms; a line is `form base...`."""
        for part, letter in (("noun", "N"), ("verb", "V"), ("adj", "J"), ("adv", "R")):
            path = folder / f"{part}.exc"
            if not path.exists():
                continue
            with path.open(encoding="utf-8") as file:
                for line in file:
                    form, *bases = line.split()
                    weight = max((self._known.get(base, {}).get(letter, 0.0) for base in bases), default=0.0) or 1.0
                    letters = letter if letter != "V" else "GJ" if form.endswith("ing") else "VL"
                    weights = self._irregular.setdefault(form, {})
                    for i, one in enumerate(letters):
                        weights[one] = weights.get(one, 0.0) + weight / (1 + i)


def is_month(word: str) -> bool:
    """Whether a capitalised word is a month."""
    return word.lower() in MONTHS
