"""Draw one level of augmentation for each phrase, as in the paper, with fallbacks if a level has no variant.

    character 0.10, synonym 0.30, paraphrase 0.50, word swap 0.05, unchanged 0.05

In the published code, a phrase without a synonym, a paraphrase or a second word silently becomes its own positive. Here
another of the remaining levels is drawn by weight, until one changes the phrase. "Unchanged" is never a fallback. If no
level can change the phrase (one or two letters, only digits), it comes back unchanged and `Variant.fell_through` is
true: skip such a pair.

Cost: 4 to 10 microseconds per phrase.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from enum import Enum
from typing import NamedTuple

from training.augment.characters import edit_letters
from training.augment.surface import swap_words
from training.augment.synonyms import Synonyms
from training.augment.tables import VariantTable


class Level(str, Enum):
    """A level of augmentation."""

    CHARACTER = "character"
    SYNONYM = "synonym"
    PARAPHRASE = "paraphrase"
    WORD_SWAP = "word_swap"
    UNCHANGED = "unchanged"


class Variant(NamedTuple):
    """A variant of a phrase.

    Attributes:
        text: Never blank if the phrase is not.
        level: The level that made it.
        drawn: The level drawn first; differs from `level` if it had no variant.
    """

    text: str
    level: Level
    drawn: Level

    @property
    def fell_through(self) -> bool:
        """Whether the phrase is its own positive because nothing could change it."""
        return self.level is Level.UNCHANGED and self.drawn is not Level.UNCHANGED


@dataclass(frozen=True, slots=True)
class AugmentationMix:
    """Relative weights of the levels. Source: PEARL's settings."""

    character: float = 0.10
    synonym: float = 0.30
    paraphrase: float = 0.50
    word_swap: float = 0.05
    unchanged: float = 0.05

    def __post_init__(self) -> None:
        weights = astuple(self)
        if min(weights) < 0 or not 0 < sum(weights) < float("inf"):
            raise ValueError(
                f"weights of augmentation are {weights}, but none may be below 0 and at least one must be over 0"
            )


Change = Callable[[str, random.Random], "str | None"]


class Augmenter:
    """Draws variants. A call returns only the text, for `training.data.batches`."""

    def __init__(
        self,
        mix: AugmentationMix | None = None,
        *,
        synonyms: Synonyms | None = None,
        token_variants: Sequence[VariantTable] = (),
        paraphrases: Sequence[VariantTable] = (),
    ) -> None:
        """Take the sources of the levels; a level without a source always falls back.

        Args:
            mix: Weights of the levels; the paper's by default.
            synonyms: Synonyms of words.
            token_variants: Tables of `token_aug.jsonl`: phrases with synonyms inserted.
            paraphrases: Tables of `phrase_aug.jsonl`, and of `entities.jsonl` for aliases.
        """
        mix = mix or AugmentationMix()
        self._levels = tuple(Level)
        self._weights = astuple(mix)
        self._synonyms = synonyms
        self._token_variants = tuple(token_variants)
        self._paraphrases = tuple(paraphrases)
        self._changes: tuple[Change, ...] = (edit_letters, self._synonym, self._paraphrase, _swapped)

    def __call__(self, phrase: str, rng: random.Random) -> str:
        return self.draw(phrase, rng).text

    def draw(self, phrase: str, rng: random.Random) -> Variant:
        """Draw a variant of a phrase; the same for the same state of `rng`."""
        place = _choice(self._weights, rng)
        drawn = self._levels[place]
        if drawn is Level.UNCHANGED or not phrase or phrase.isspace():
            return Variant(phrase, Level.UNCHANGED, Level.UNCHANGED)
        left: list[float] | None = None
        while True:
            text = self._changes[place](phrase, rng)
            if text is not None and text != phrase and not text.isspace() and text:
                return Variant(text, self._levels[place], drawn)
            if left is None:
                left = [*self._weights[:-1]]
            left[place] = 0.0
            if not any(left):
                return Variant(phrase, Level.UNCHANGED, drawn)
            place = _choice(left, rng)

    def _synonym(self, phrase: str, rng: random.Random) -> str | None:
        for table in self._token_variants:
            text = table.replace(phrase, rng)
            if text is not None:
                return text
        return None if self._synonyms is None else self._synonyms.replace(phrase, rng)

    def _paraphrase(self, phrase: str, rng: random.Random) -> str | None:
        for table in self._paraphrases:
            text = table.replace(phrase, rng)
            if text is not None:
                return text
        return None


def _swapped(phrase: str, rng: random.Random) -> str | None:
    text = swap_words(phrase, rng)
    return text if text != phrase else None


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
