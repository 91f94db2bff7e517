"""Variants of a phrase: edits and spellings that need no files, and the draw of one as in the paper.

Only letters are edited, and only in words of at least three letters: another digit is another number, and an edit of
"US" is another country. The first letter of a phrase is kept. All are seeded and never empty.

    character 0.10, synonym 0.30, paraphrase 0.50, word swap 0.05, unchanged 0.05

Where a level has no variant, another of the remaining ones is drawn by weight, until one changes the phrase (in the
published code it silently becomes its own positive). "Unchanged" is never a fallback.

Paraphrases, variants by synonyms and aliases are read on demand from JSON Lines on disk, with an index of 16 bytes per
phrase in memory. Function words and words of one or two letters have no synonyms: WordNet knows "in" as an inch.

Source: PEARL (Chen et al. 2024), section 3.1; the kinds of edits are those of its published code.
"""

from __future__ import annotations

import mmap
import random
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from ingest.io.report import ReadReport
from pearl_qdrant.errors import FormatError
from pearl_qdrant.linking.mention_kinds import KEYBOARD
from training.corpus.chunking import CLOSED_CLASS
from training.examples.files import (
    ENTITIES,
    PHRASE_VARIANTS,
    WORD_VARIANTS,
    find_key,
    parse_entity,
    parse_variants,
    phrase_key,
    read_variants,
)
from training.examples.wordnet import read_synsets

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SHORTEST = 3  # letters of a word that may be edited
_TRIES = 6

_CONFUSED: dict[str, tuple[str, ...]] = {
    # Characters that optical character recognition confuses.
    "a": ("o", "e"), "b": ("h", "6", "8"), "c": ("e", "o"), "d": ("cl", "a"), "e": ("c", "o"), "f": ("t",),
    "g": ("q", "9"), "h": ("b", "li"), "i": ("l", "1", "j"), "j": ("i",), "k": ("lc",), "l": ("1", "i", "I"),
    "m": ("rn", "nn"), "n": ("ri", "u"), "o": ("0", "c"), "p": ("n",), "q": ("g", "9"), "r": ("n",), "s": ("5", "8"),
    "t": ("f", "l"), "u": ("v", "n"), "v": ("u", "y"), "w": ("vv",), "x": ("k",), "y": ("v",), "z": ("2",),
}  # fmt: skip

Edit = Callable[[str, int, random.Random], str]


def edit_letters(phrase: str, rng: random.Random) -> str | None:
    """Edit one letter of a phrase; the result is never equal to `phrase`. None if there is no word to edit."""
    at = _position(phrase, rng)
    if at is None:
        return None
    first = int(rng.random() * len(EDITS))
    edited = (edit(phrase, at, rng) for edit in (*EDITS[first:], *EDITS[:first]))
    return next((text for text in edited if text != phrase), None)


def _position(phrase: str, rng: random.Random) -> int | None:
    """Draw the position of a letter in a word that is long enough, not the first letter of the phrase."""
    n = len(phrase)
    for _ in range(_TRIES if n >= _SHORTEST else 0):
        at = 1 + int(rng.random() * (n - 1))
        if _is_inside(phrase, at):
            return at
    allowed = [at for at in range(1, n) if _is_inside(phrase, at)]
    return allowed[int(rng.random() * len(allowed))] if allowed else None


def _is_inside(phrase: str, at: int) -> bool:
    """Return whether the letter at a position is in a run of at least `_SHORTEST` (3) letters."""
    windows = (phrase[i : i + _SHORTEST] for i in range(max(0, at - 2), at + 1))
    return any(len(window) == _SHORTEST and window.isalpha() for window in windows)


def _swap(phrase: str, at: int, rng: random.Random) -> str:
    """Swap a letter with an adjacent one."""
    if at + 1 < len(phrase) and phrase[at + 1].isalpha():
        return phrase[:at] + phrase[at + 1] + phrase[at] + phrase[at + 2 :]
    if at > 1 and phrase[at - 1].isalpha():
        return phrase[: at - 1] + phrase[at] + phrase[at - 1] + phrase[at + 1 :]
    return phrase


def _among(table: Mapping[str, Sequence[str]]) -> Edit:
    """Return the replacement of a letter by one of a table: adjacent keys, or letters that look alike."""

    def replace(phrase: str, at: int, rng: random.Random) -> str:
        near = table.get(phrase[at].lower())
        if near is None:
            return phrase
        return phrase[:at] + _cased(near[int(rng.random() * len(near))], phrase[at]) + phrase[at + 1 :]

    return replace


def _other(phrase: str, at: int, rng: random.Random) -> str:
    """Draw a letter of the same script: a to z, or for other scripts one of the phrase's letters."""
    if phrase[at].isascii():
        return _cased(_LETTERS[int(rng.random() * len(_LETTERS))], phrase[at])
    own = [c for c in phrase if c.isalpha() and not c.isascii()]
    return own[int(rng.random() * len(own))]


def _cased(letters: str, like: str) -> str:
    return letters.upper() if like.isupper() else letters


EDITS: tuple[Edit, ...] = (
    _swap,
    lambda phrase, at, rng: phrase[:at] + phrase[at + 1 :],
    lambda phrase, at, rng: phrase[:at] + _other(phrase, at, rng) + phrase[at:],
    lambda phrase, at, rng: phrase[:at] + _other(phrase, at, rng) + phrase[at + 1 :],
    _among(KEYBOARD),
    _among(_CONFUSED),
)
"""The six kinds of edits; each returns the phrase unchanged if it cannot be applied."""


def edit_character(phrase: str, rng: random.Random) -> str:
    """Edit one character: swap, delete, insert or replace by a keyboard neighbour.

    A phrase of fewer than four characters comes back unchanged: an edit would turn it into another name.
    """
    if len(phrase) < 4:
        return phrase
    at = rng.randrange(1, len(phrase) - 1)
    letter = phrase[at].lower()
    kind = rng.randrange(4)
    if kind == 0:
        return phrase[:at] + phrase[at + 1] + phrase[at] + phrase[at + 2 :]
    if kind == 1:
        return phrase[:at] + phrase[at + 1 :]
    if kind == 2:
        return phrase[:at] + rng.choice(_LETTERS) + phrase[at:]
    return phrase[:at] + rng.choice(KEYBOARD.get(letter, _LETTERS)) + phrase[at + 1 :]


def swap_words(phrase: str, rng: random.Random) -> str | None:
    """Swap two adjacent words; None for a phrase of one word, or of two that are equal."""
    words = phrase.split()
    if len(words) < 2:
        return None
    at = rng.randrange(len(words) - 1)
    words[at], words[at + 1] = words[at + 1], words[at]
    return None if (swapped := " ".join(words)) == phrase else swapped


class VariantTable:
    """Variants by phrase. Can be pickled: the index is stored, and the file opened again."""

    def __init__(self, path: Path) -> None:
        """Index a file of variants or of entities; the first row decides which. Raises FormatError."""
        self._path = path
        self._map = _open(path)
        if self._map[:1] != b"{":
            message = "is not plain JSON Lines. Decompress it first: rows are read in random order"
            raise FormatError(str(path), 1, message)
        keys, starts = array("Q"), array("Q")
        start, number = 0, 0
        while (end := self._end(start)) > start:
            number += 1
            line = self._map[start:end]
            if line.strip():
                row = _parse(line)
                if row is None:
                    message = (
                        "is not a row of variants: expected 'phrase' and 'aug' or 'synonyms', or 'entity' and 'names'"
                    )
                    raise FormatError(str(path), number, message)
                if row[1]:
                    for name in row[0]:
                        keys.append(phrase_key(name))
                        starts.append(start)
            start = end
        unsorted = np.array(keys, np.uint64)
        order = np.argsort(unsorted, kind="stable")
        self._keys, self._starts = unsorted[order], np.array(starts, np.uint64)[order]

    def replace(self, phrase: str, rng: random.Random) -> str | None:
        """Draw one of the variants, never the phrase; None if there is none. The first row of a phrase counts."""
        place = find_key(self._keys, phrase)
        if place is None:
            return None
        start = int(self._starts[place])
        row = _parse(self._map[start : self._end(start)])
        assert row is not None
        variant = row[1][int(rng.random() * len(row[1]))]
        if variant != phrase:
            return variant
        others = [other for other in row[1] if other != phrase]
        return others[int(rng.random() * len(others))] if others else None

    def _end(self, start: int) -> int:
        end = self._map.find(b"\n", start)
        return len(self._map) if end < 0 else end + 1

    def __getstate__(self) -> dict[str, object]:
        return {"path": self._path, "keys": self._keys, "starts": self._starts}

    def __setstate__(self, state: dict[str, object]) -> None:
        self._path, self._keys, self._starts = state["path"], state["keys"], state["starts"]  # type: ignore[assignment]
        self._map = _open(self._path)


def _open(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise FormatError(str(path), None, f"does not exist (looked in {Path.cwd()})") from error
    except (OSError, ValueError) as error:
        raise FormatError(str(path), None, f"cannot be mapped into memory ({error}). Is it empty?") from error


def _parse(line: bytes) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The phrases that a row belongs to, and their variants; each name of an entity has the others."""
    if (entity := parse_entity(line)) is not None:
        return entity.names, entity.names if len(entity.names) > 1 else ()
    found = parse_variants(line)
    return found and ((found[0],), found[1])


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
        if not places and not whole:
            return None
        chosen = int(rng.random() * (len(places) + bool(whole)))
        if chosen == len(places):
            made = _capitalised(whole[int(rng.random() * len(whole))], phrase)
        else:
            place = places[chosen]
            others = self.of(words[place])
            words[place] = _capitalised(others[int(rng.random() * len(others))], words[place])
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


def _capitalised(synonym: str, like: str) -> str:
    """Capitalise the synonym if the word is capitalised."""
    return synonym[0].upper() + synonym[1:] if like[:1].isupper() else synonym


WEIGHTS = (0.10, 0.30, 0.50, 0.05, 0.05)
"""Of the levels character, synonym, paraphrase, word swap and unchanged. Source: PEARL's settings."""

Change = Callable[[str, random.Random], "str | None"]


class Augmenter:
    """Draws variants of phrases."""

    def __init__(
        self,
        *,
        synonyms: Synonyms | None = None,
        token_variants: Sequence[VariantTable] = (),
        paraphrases: Sequence[VariantTable] = (),
        weights: tuple[float, ...] = WEIGHTS,
    ) -> None:
        """Take the sources of the levels; a level without a source always falls back."""
        self._weights = weights
        by_synonym = partial(_first, [*token_variants, *([] if synonyms is None else [synonyms])])
        self._changes: tuple[Change, ...] = (edit_letters, by_synonym, partial(_first, paraphrases), swap_words)

    def __call__(self, phrase: str, rng: random.Random) -> str:
        """Draw a variant of a phrase; the same for the same state of `rng`, and never blank if the phrase is not."""
        place = _choice(self._weights, rng)
        left = [*self._weights[:-1]]
        if place == len(left) or not phrase or phrase.isspace():
            return phrase
        while True:
            text = self._changes[place](phrase, rng)
            if text is not None and text != phrase and not text.isspace() and text:
                return text
            left[place] = 0.0
            if not any(left):
                return phrase
            place = _choice(left, rng)


def _first(tables: Sequence[VariantTable | Synonyms], phrase: str, rng: random.Random) -> str | None:
    """Draw a variant from the first table that has one."""
    return next((text for table in tables if (text := table.replace(phrase, rng)) is not None), None)


def _choice(weights: Sequence[float], rng: random.Random) -> int:
    """Draw an index by weight; faster than `Random.choices` for one draw."""
    left = rng.random() * sum(weights)
    last = 0
    for place, weight in enumerate(weights):
        if weight:
            last = place
            left -= weight
            if left < 0:
                return place
    return last


NEIGHBOURS = "word_neighbours.jsonl"
"""Neighbours of words in a space of word vectors, in the form of token_aug.jsonl."""


def open_augmenter(corpora: Sequence[Path], *, wordnet: Path | None = None, with_aliases: bool = True) -> Augmenter:
    """Open the files of corpus folders. Raises FormatError if a file is missing or of another format.

    Args:
        corpora: Their word_neighbours.jsonl (of the first that has one), token_aug.jsonl, phrase_aug.jsonl and, with
            aliases, entities.jsonl are used.
        wordnet: A WordNet `dict` folder.
        with_aliases: Whether aliases of a corpus count as paraphrases.
    """

    def found(*names: str) -> list[Path]:
        return [folder / name for folder in corpora for name in names if (folder / name).exists()]

    pairs: list[Iterable[tuple[str, Iterable[str]]]] = [] if wordnet is None else [wordnet_synonyms(wordnet)]
    pairs += [read_variants(path, ReadReport()) for path in found(NEIGHBOURS)[:1]]
    own = found(ENTITIES, PHRASE_VARIANTS) if with_aliases else found(PHRASE_VARIANTS)
    return Augmenter(
        synonyms=Synonyms(chain.from_iterable(pairs)) if pairs else None,
        token_variants=[VariantTable(path) for path in found(WORD_VARIANTS)],
        paraphrases=[VariantTable(path) for path in own],
    )
