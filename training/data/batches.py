"""Batches of phrase pairs with hard negatives, each a pure function of (seed, rank, step).

So a run that was killed goes on without drawing again what it had used, and any worker can make any batch.

    NeighbourSampler    sources in fixed proportions, runs of alphabetical neighbours: hard negatives for nothing
    EpochSampler          each example once an epoch, in random order: the paper
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.augment import augment, edit_character
from training.examples.sources import Example
from training.mining.hard_negatives import fold
from training.mining.negative_table import NegativeTable

Vary = Callable[[str, random.Random], str]
KeyArray = npt.NDArray[np.int64]

NO_KEY = 0
"""Stands for an entity that is not known; it equals no other, not even itself."""


@dataclass(frozen=True, slots=True)
class Source:
    """Examples in alphabetical order, and their share of each batch."""

    examples: Sequence[Example]
    weight: float


@dataclass(frozen=True, slots=True)
class Shard:
    """Which of the processes that train together this is."""

    rank: int = 0
    world_size: int = 1


@dataclass(frozen=True, slots=True)
class PairBatch:
    """One batch: n pairs, m hard negatives, and any number of plain phrases.

    Attributes:
        anchors, positives: n phrases each.
        negatives: m phrases that are nobody's positive.
        allowed: (n, 95) bool; the phrase types that are right for a pair, none where unknown.
        entities: (n,), key of each pair's entity, or `NO_KEY`.
        anchor_keys, positive_keys: (n,), keys of the strings, folded.
        negative_entities, negative_keys: (m,), likewise of the negatives.
        plain: Phrases that take no part in the contrastive loss: they are distilled.
        plain_views: The plain phrases as the network sees them, some of them misspelt.
    """

    anchors: list[str]
    positives: list[str]
    negatives: list[str]
    allowed: npt.NDArray[np.bool_]
    entities: KeyArray
    anchor_keys: KeyArray
    positive_keys: KeyArray
    negative_entities: KeyArray
    negative_keys: KeyArray
    plain: list[str] = field(default_factory=list)
    plain_views: list[str] = field(default_factory=list)


class Sampler(Protocol):
    """Chooses the examples of a batch."""

    def draw(self, step: int, n: int, shard: Shard, rng: random.Random) -> list[Example]:
        """The `n` examples of a step (from 1) on one process; `rng` is of that step and process alone."""
        ...


@dataclass(frozen=True, slots=True)
class NeighbourSampler:
    """Draws runs of alphabetical neighbours from several sources.

    Attributes:
        sources: Where the examples come from.
        run: Neighbours drawn together: they are each other's hard negatives. 1 draws each by itself.
    """

    sources: Sequence[Source]
    run: int = 1

    def __post_init__(self) -> None:
        if not any(source.examples for source in self.sources if source.weight > 0):
            raise ValueError("there are no examples to draw from")
        if self.run < 1:
            raise ValueError(f"run is at least 1, not {self.run}")

    def draw(self, step: int, n: int, shard: Shard, rng: random.Random) -> list[Example]:
        """See `Sampler.draw`; the step does not matter."""
        filled = [source for source in self.sources if source.examples]
        weights = [source.weight for source in filled]
        drawn: list[Example] = []
        while len(drawn) < n:
            examples = rng.choices(filled, weights)[0].examples
            start = rng.randrange(max(1, len(examples) - self.run + 1))
            drawn.extend(examples[start : start + self.run])
        return drawn[:n]


@dataclass(slots=True)
class EpochSampler:
    """Takes each example once an epoch, in an order drawn anew for each.

    Attributes:
        examples: Not empty.
        seed: Of the orders.
    """

    examples: Sequence[Example]
    seed: int
    _epoch: int = field(default=-1, init=False)
    _order: KeyArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64), init=False)

    def __post_init__(self) -> None:
        if not self.examples:
            raise ValueError("there are no examples to draw from")

    def draw(self, step: int, n: int, shard: Shard, rng: random.Random) -> list[Example]:
        """See `Sampler.draw`: processes take turns, so that together they see each example once."""
        start = ((step - 1) * shard.world_size + shard.rank) * n
        return [self.examples[self._place(start + i)] for i in range(n)]

    def _place(self, position: int) -> int:
        """Index of the example at a position of the endless sequence."""
        epoch, within = divmod(position, len(self.examples))
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = np.random.default_rng([self.seed, epoch]).permutation(len(self.examples))
        return int(self._order[within])


@dataclass(frozen=True, slots=True)
class BatchMaker:
    """Makes the batch of any step.

    Attributes:
        sampler: Chooses the anchors.
        n_pairs: Anchors a batch and process.
        seed: Decides everything, together with the step and the rank.
        vary: Makes a variant of a phrase.
        negatives: Hard negatives by phrase, or None.
        n_negatives: Drawn for each anchor that has some. PEARL: 2.
        negatives_as_pairs: Hard negatives join the batch as further anchors with a variant of their own, as in the
            paper's code; else they are only pushed away from, which costs half.
        alias_share: Of the anchors that have other names, how many get one as positive; the rest get a variant.
        varied_aliases: Of these other names, how many are varied too.
        plain: Phrases of plain text, some of which join each batch to be distilled.
        n_plain: How many of them a batch and process.
        misspelt_plain: How many of these the network sees with one character edited; what it learns is the vector of
            the phrase as it is written.
        shard: Which process this is for.
    """

    sampler: Sampler
    n_pairs: int
    seed: int
    vary: Vary = augment
    negatives: NegativeTable | None = None
    n_negatives: int = 2
    negatives_as_pairs: bool = False
    alias_share: float = 0.85
    varied_aliases: float = 0.15
    plain: Sequence[str] = ()
    n_plain: int = 64
    misspelt_plain: float = 0.0
    shard: Shard = Shard()

    def __post_init__(self) -> None:
        if self.n_pairs < 2:
            raise ValueError(f"a batch needs at least 2 pairs, not {self.n_pairs}")
        if self.n_negatives < 0:
            raise ValueError(f"n_negatives is not negative: {self.n_negatives}")
        if self.n_plain < 1:
            raise ValueError(f"n_plain is at least 1, not {self.n_plain}")
        for name in ("alias_share", "varied_aliases", "misspelt_plain"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is from 0 to 1, not {getattr(self, name)}")

    def make(self, step: int) -> PairBatch:
        """The batch of a step, from 1."""
        rng = random.Random(f"{self.seed}/{self.shard.rank}/{step}")
        anchors = self.sampler.draw(step, self.n_pairs, self.shard, rng)
        drawn: list[Example] = []
        if self.negatives is not None:
            table = self.negatives
            drawn = [one for a in anchors for one in table.draw(a.name, self.n_negatives, rng)]
        if self.negatives_as_pairs:
            anchors, drawn = [*anchors, *drawn], []
        pairs = [self._pair(example, rng) for example in anchors]
        allowed = np.zeros((len(anchors), len(PHRASE_TYPES)), dtype=bool)
        for i, example in enumerate(anchors):
            allowed[i, list(example.allowed)] = True
        plain = rng.choices(self.plain, k=self.n_plain) if self.plain else []
        return PairBatch(
            anchors=[anchor for anchor, _ in pairs],
            positives=[positive for _, positive in pairs],
            negatives=[example.name for example in drawn],
            allowed=allowed,
            entities=_keys([example.entity for example in anchors]),
            anchor_keys=_keys([fold(anchor) for anchor, _ in pairs]),
            positive_keys=_keys([fold(positive) for _, positive in pairs]),
            negative_entities=_keys([example.entity for example in drawn]),
            negative_keys=_keys([fold(example.name) for example in drawn]),
            plain=plain,
            plain_views=[edit_character(p, rng) if rng.random() < self.misspelt_plain else p for p in plain],
        )

    def identity(self) -> dict[str, Any]:
        """The settings that decide what is drawn; a run goes on only with the same ones."""
        settings = ("n_pairs", "seed", "n_negatives", "negatives_as_pairs", "alias_share", "varied_aliases")
        has_negatives = self.negatives is not None
        return {
            **{name: getattr(self, name) for name in settings},
            "has_negatives": has_negatives,
            **({name: getattr(self, name) for name in ("n_plain", "misspelt_plain")} if self.plain else {}),
            **({"plain": len(self.plain)} if self.plain else {}),
            "processes": self.shard.world_size,
        }

    def _pair(self, example: Example, rng: random.Random) -> tuple[str, str]:
        """Two names of one entity; a varied copy where there is only one, or now and then anyway."""
        if not example.others or rng.random() >= self.alias_share:
            return example.name, self.vary(example.name, rng)
        names = (example.name, *example.others)
        first, second = rng.sample(range(len(names)), 2)
        positive = names[second]
        # Some other names are misspelled too: a mention of an alias is no more careful than one of a name.
        return names[first], self.vary(positive, rng) if rng.random() < self.varied_aliases else positive


def _keys(texts: Sequence[str]) -> KeyArray:
    """A 63-bit key of each text, the same in every process; `NO_KEY` for an empty one."""
    keys = []
    for text in texts:
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        keys.append(int.from_bytes(digest, "little") >> 1 or 1 if text else NO_KEY)
    return np.array(keys, dtype=np.int64)
