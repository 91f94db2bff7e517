"""The paper's draw: one level of augmentation for each phrase, with fall-backs where a level has nothing to give.

    character 0.10, synonym 0.30, paraphrase 0.50, word swap 0.05, unchanged 0.05

A phrase without a synonym, a paraphrase or a second word does not silently become its own positive, as in the
published code: another level is drawn among those that are left, by their weights, until one changes the phrase.
"Unchanged" is only ever drawn first, never fallen back to. Where no level with a weight can change the phrase (one
or two letters, only digits), it comes back as it is, and `Variant.fell_through` says so: leave such a pair out.

Cost: 4 to 10 microseconds a phrase.
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
    """What was done to a phrase."""

    CHARACTER = "character"
    SYNONYM = "synonym"
    PARAPHRASE = "paraphrase"
    WORD_SWAP = "word_swap"
    UNCHANGED = "unchanged"


class Variant(NamedTuple):
    """A variant of a phrase.

    Attributes:
        text: Never blank if the phrase is not.
        level: What was done.
        drawn: What was drawn first; another level than `level` where that one had nothing to give.
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
    """Weights of the levels, as in training-time draws; any scale. Source: PEARL's settings."""

    character: float = 0.10
    synonym: float = 0.30
    paraphrase: float = 0.50
    word_swap: float = 0.05
    unchanged: float = 0.05

    def __post_init__(self) -> None:
        weights = astuple(self)
        if min(weights) < 0 or not 0 < sum(weights) < float("inf"):
            raise ValueError(f"weights of augmentation are {weights}: none below 0, and at least one over 0")


Change = Callable[[str, random.Random], "str | None"]


class Augmenter:
    """Draws variants. Calling it gives the text alone, for `training.data.batches`."""

    def __init__(
        self,
        mix: AugmentationMix | None = None,
        *,
        synonyms: Synonyms | None = None,
        token_variants: Sequence[VariantTable] = (),
        paraphrases: Sequence[VariantTable] = (),
    ) -> None:
        """Take what the levels draw from; a level without a source always falls back.

        Args:
            mix: Weights of the levels; the paper's by default.
            synonyms: Of words.
            token_variants: `token_aug.jsonl`: phrases with synonyms put in.
            paraphrases: `phrase_aug.jsonl`, and `entities.jsonl` for aliases.
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
        """A variant of a phrase; the same for the same state of `rng`."""
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
    """A place, by weight; faster than `Random.choices` for one draw."""
    left = rng.random() * sum(weights)
    last = 0
    for place, weight in enumerate(weights):
        if weight:
            last = place
            left -= weight
            if left < 0:
                return place
    return last
