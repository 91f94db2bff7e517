"""Replace one word, or the whole phrase, by a synonym from WordNet, word vectors, or a file.

Function words and words of one or two letters are never replaced: WordNet knows "in" as an inch and "he" as helium.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from training.corpus.chunking.function_words import CLOSED_CLASS
from training.examples.wordnet import read_synsets

_SHORTEST = 3


class Synonyms:
    """Synonyms by word or phrase, both in lower case."""

    def __init__(self, pairs: Iterable[tuple[str, Iterable[str]]]) -> None:
        """Join lists of synonyms; a word may occur several times. Equal and blank synonyms are dropped."""
        found: dict[str, dict[str, None]] = {}
        for word, others in pairs:
            key = word.casefold()
            if len(key) >= _SHORTEST and key not in CLOSED_CLASS:
                kept = {other: None for other in others if other.strip() and other.casefold() != key}
                if kept:
                    found.setdefault(key, {}).update(kept)
        self._by_word: dict[str, tuple[str, ...]] = {word: tuple(others) for word, others in found.items()}

    def __len__(self) -> int:
        return len(self._by_word)

    def of(self, word: str) -> tuple[str, ...]:
        """Return the synonyms of a word or phrase; a plural in -s has the plurals of the word's synonyms."""
        key = word.casefold()
        found = self._by_word.get(key)
        if found is None and key.endswith("s"):
            return tuple(_plural(other) for other in self._by_word.get(key[:-1], ()) if " " not in other)
        return found or ()

    def replace(self, phrase: str, rng: random.Random) -> str | None:
        """Replace one part of the phrase; never equal to `phrase`. None if no part has a synonym."""
        words = phrase.split()
        whole = self.of(phrase)
        places = [i for i, word in enumerate(words) if self.of(word)] if len(words) > 1 else []
        n_choices = len(places) + bool(whole)
        if not n_choices:
            return None
        chosen = int(rng.random() * n_choices)
        if chosen == len(places):
            made = _cased(whole[int(rng.random() * len(whole))], phrase)
        else:
            place = places[chosen]
            others = self.of(words[place])
            words[place] = _cased(others[int(rng.random() * len(others))], words[place])
            made = " ".join(words)
        return made if made != phrase else None


def wordnet_synonyms(folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each name of a synset with the other names; for named individuals these are aliases."""
    for synset in read_synsets(folder):
        for name in synset.names:
            if len(synset.names) > 1:
                yield name, synset.names


def _plural(word: str) -> str:
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    return f"{word[:-1]}ies" if word.endswith("y") and word[-2:-1] not in "aeiou" else f"{word}s"


def _cased(synonym: str, like: str) -> str:
    """Capitalise the synonym if the word is capitalised."""
    return synonym[0].upper() + synonym[1:] if like[:1].isupper() else synonym
