"""Entity types without a model: names of known type, and rules for numbers and times (distant supervision).

A phrase has a type if it is, a leading preposition and article apart, a name of that type, or has the form of a date,
an amount and so on. A capitalised phrase that nobody knows stays without a type, since it may be anything; all else
is OTHER.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from pearl_qdrant.phrase_types import ENTITY_TYPES, LEXICAL_CLASSES
from training.corpus.chunking.function_words import CLOSED_CLASS
from training.corpus.keys import folded, phrase_key
from training.corpus.typing.numeric_types import numeric_type
from training.examples.wordnet import Synset

_PLACE = {kind: i for i, kind in enumerate(ENTITY_TYPES)}
_LEAD = frozenset(word for word, letters in CLOSED_CLASS.items() if letters[0] in "PFD")

_INSTANCE_TYPES = {4: "EVENT", 15: "GPE", 17: "LOC", 18: "PERSON", 14: "ORG"}
"""WordNet's lexicographer files whose named individuals have one likely type."""


class NameTypes:
    """Types by name, as sorted arrays: 9 bytes a name. Case matters: Turkey is a place, turkey is not.

    A name of several types has the one that most of its entities have, the first in `ENTITY_TYPES` among equals.
    """

    def __init__(self, typed_names: Iterable[tuple[str, str]]) -> None:
        """Read names with their types; a pair counts as often as it comes.

        Raises:
            ValueError: If a type is none of `ENTITY_TYPES`.
        """
        keys, kinds = array("Q"), array("B")
        for name, kind in typed_names:
            place = _PLACE.get(kind)
            if place is None:
                raise ValueError(f"no entity type {kind!r} (of {name!r}): there are {', '.join(ENTITY_TYPES)}")
            keys.append(phrase_key(folded(name)))
            kinds.append(place)
        self._keys, self._kinds = _most_common(np.array(keys, np.uint64), np.array(kinds, np.uint8))

    def __len__(self) -> int:
        return len(self._keys)

    def get(self, name: str) -> str | None:
        """The type of a name, or None."""
        key = np.uint64(phrase_key(folded(name)))
        place = int(np.searchsorted(self._keys, key))
        if place < len(self._keys) and self._keys[place] == key:
            return ENTITY_TYPES[int(self._kinds[place])]
        return None


class DistantTyper:
    """Types phrases by lists of names and by rules; a `PhraseTyper`."""

    def __init__(self, names: NameTypes, *, is_common: Callable[[str], bool] = lambda word: False) -> None:
        """Take names with their types.

        Args:
            names: From bases, lists, and WordNet.
            is_common: Whether a word in lower case is one of the language. A single capitalised word that is, is
                not typed by lists of names, where every word is somebody's name: it may only begin a sentence.
        """
        self._names = names
        self._is_common = is_common

    def type_phrases(self, phrases: Sequence[str]) -> list[str | None]:
        """The type of each phrase."""
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
            return None  # lists have "the ship" and "Friends" as titles; in running text they hardly ever are
        return self._names.get(name)

    def _begins_as_name(self, word: str) -> bool:
        return _is_capitalised(word) and not self._is_common(word.lower()) and word.lower() not in CLOSED_CLASS


def _is_capitalised(word: str) -> bool:
    return word[:1].isupper()


def _most_common(
    keys: npt.NDArray[np.uint64], kinds: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]:
    """Each key once, in order, with the kind that comes with it most often."""
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
    """Names of WordNet's individuals with a clear type."""
    for synset in synsets:
        kind = _INSTANCE_TYPES.get(synset.lex_file)
        if synset.is_instance and kind is not None and synset.lexical_class == LEXICAL_CLASSES[0]:
            yield from ((name, kind) for name in synset.names)
