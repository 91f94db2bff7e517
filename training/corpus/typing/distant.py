"""Assign entity types without a model: names of known type, and rules for numbers and times (distant supervision).

A phrase gets a type if, without leading prepositions and articles, it is a name of that type or has the form of a date,
an amount and so on. An unknown capitalised phrase gets no type, since it may be anything. Every other phrase is OTHER.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from pearl_qdrant.phrase_types import ENTITY_TYPES, LEXICAL_CLASSES
from training.corpus.chunking.function_words import CLOSED_CLASS
from training.corpus.keys import normalise_name, phrase_key
from training.corpus.typing.numeric_types import numeric_type
from training.examples.wordnet import Synset

_PLACE = {kind: i for i, kind in enumerate(ENTITY_TYPES)}
_LEAD = frozenset(word for word, letters in CLOSED_CLASS.items() if letters[0] in "PFD")

_INSTANCE_TYPES = {4: "EVENT", 15: "GPE", 17: "LOC", 18: "PERSON", 14: "ORG"}
"""WordNet's lexicographer files whose named individuals have one likely type."""


class NameTypes:
    """Types by name, as sorted arrays with 9 bytes per name. Case matters: Turkey is a place, turkey is not.

    A name of several types gets the type of most of its entities; among equals the first in `ENTITY_TYPES`.
    """

    def __init__(self, typed_names: Iterable[tuple[str, str]]) -> None:
        """Read names with their types; repeated pairs count each time.

        Raises:
            ValueError: If a type is not in `ENTITY_TYPES`.
        """
        keys, kinds = array("Q"), array("B")
        for name, kind in typed_names:
            place = _PLACE.get(kind)
            if place is None:
                raise ValueError(
                    f"{kind!r} (of {name!r}) is not an entity type. The types are {', '.join(ENTITY_TYPES)}"
                )
            keys.append(phrase_key(normalise_name(name)))
            kinds.append(place)
        self._keys, self._kinds = _most_common(np.array(keys, np.uint64), np.array(kinds, np.uint8))

    def __len__(self) -> int:
        return len(self._keys)

    def get(self, name: str) -> str | None:
        """Return the type of a name, or None."""
        key = np.uint64(phrase_key(normalise_name(name)))
        place = int(np.searchsorted(self._keys, key))
        if place < len(self._keys) and self._keys[place] == key:
            return ENTITY_TYPES[int(self._kinds[place])]
        return None


class DistantTyper:
    """A `PhraseTyper` that uses lists of names, and rules."""

    def __init__(self, names: NameTypes, *, is_common: Callable[[str], bool] = lambda word: False) -> None:
        """Take names with their types.

        Args:
            names: Names from bases, lists, and WordNet.
            is_common: Whether a lower-cased word is a word of the language. A single capitalised word of the language
                is not typed by lists of names, in which almost every word occurs: it may just start a sentence.
        """
        self._names = names
        self._is_common = is_common

    def type_phrases(self, phrases: Sequence[str]) -> list[str | None]:
        """Return the type of each phrase."""
        return [self._type(phrase) for phrase in phrases]

    def _type(self, phrase: str) -> str | None:
        words = phrase.split()
        for start in range(min(3, len(words))):
            rest = " ".join(words[start:])
            kind = numeric_type(rest) or self._named(rest)
            if kind is not None:
                return kind
            if words[start].lower() not in _LEAD:
                break
        return None if any(_is_capitalised(word) for word in words[1:]) or self._begins_as_name(words[0]) else "OTHER"

    def _named(self, name: str) -> str | None:
        if name == name.lower() or (" " not in name and self._is_common(name.lower())):
            return None  # lists have "the ship" and "Friends" as titles, but in running text they rarely are titles
        return self._names.get(name)

    def _begins_as_name(self, word: str) -> bool:
        return _is_capitalised(word) and not self._is_common(word.lower()) and word.lower() not in CLOSED_CLASS


def _is_capitalised(word: str) -> bool:
    return word[:1].isupper()


def _most_common(
    keys: npt.NDArray[np.uint64], kinds: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]:
    """Return each key once, in order, with its most frequent kind."""
    order = np.lexsort((kinds, keys))
    keys, kinds = keys[order], kinds[order]
    is_new = np.ones(len(keys), dtype=np.bool_)
    is_new[1:] = (keys[1:] != keys[:-1]) | (kinds[1:] != kinds[:-1])
    starts = np.flatnonzero(is_new)
    counts = np.diff(np.append(starts, len(keys)))
    keys, kinds = keys[starts], kinds[starts]
    best = np.lexsort((kinds, -counts, keys))
    keys, kinds = keys[best], kinds[best]
    first = np.ones(len(keys), dtype=np.bool_)
    first[1:] = keys[1:] != keys[:-1]
    return keys[first], kinds[first]


def wordnet_names(synsets: Iterable[Synset]) -> Iterable[tuple[str, str]]:
    """Yield the names of WordNet's individuals that have a clear type."""
    for synset in synsets:
        kind = _INSTANCE_TYPES.get(synset.lex_file)
        if synset.is_instance and kind is not None and synset.lexical_class == LEXICAL_CLASSES[0]:
            yield from ((name, kind) for name in synset.names)
