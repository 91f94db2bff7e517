"""Batches of phrase pairs with hard negatives, each a pure function of (seed, rank, step).

So a resumed run does not draw the same batches again, and any worker process can make any batch.
"""

from __future__ import annotations

import functools
import os
import random
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from pearl_qdrant.errors import OptionError
from pearl_qdrant.phrase_types import PHRASE_TYPES
from pearl_qdrant.settings import count_workers
from training.examples.example import Example, fold_phrase
from training.examples.files import phrase_key
from training.networks.phrase_vectors import MicroBatch, micro_batches


class NegativeTable:
    """The hard negatives of phrases. `rows`: phrases with their hard negatives; a repeated phrase keeps its first row.
    `known`: examples by name, for the entity and the type of a negative.
    """

    def __init__(
        self, rows: Iterable[tuple[str, Iterable[str]]], *, known: Mapping[str, Example] | None = None
    ) -> None:
        self._known = known or {}
        self._negatives: dict[str, tuple[str, ...]] = {}
        own: dict[str, str] = {}  # one object of each name
        for phrase, negatives in rows:
            if phrase not in self._negatives:
                self._negatives[phrase] = tuple(own.setdefault(negative, negative) for negative in negatives)

    def draw(self, phrase: str, n: int, rng: random.Random) -> list[Example]:
        """Draw up to `n` different hard negatives of a phrase."""
        found = self._negatives.get(phrase, ())
        names = rng.sample(found, min(n, len(found))) if found else ()
        unknown = Example("", (), "")
        known = ((name, self._known.get(name, unknown)) for name in names)
        return [Example(name, (), one.entity, one.allowed) for name, one in known]


Augment = Callable[[str, random.Random], str]
"""Makes a variant of a phrase."""

KeyArray = npt.NDArray[np.int64]

N_PLAIN = 64
"""Plain phrases of a batch and process."""

NO_KEY = 0
"""Key of an unknown entity; it never counts as equal to another, not even to itself."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One of the processes that train together: its number, from 0, and how many there are."""

    rank: int = 0
    world_size: int = 1


@dataclass(frozen=True, slots=True)
class PairBatch:
    """One batch of n pairs, m hard negatives, and any number of plain phrases."""

    # anchors, positives: n phrases each
    anchors: list[str]
    positives: list[str]
    negatives: list[str]  # m phrases that are not the positive of any anchor
    allowed: npt.NDArray[np.bool_]  # (n, 95) bool; the phrase types that are right for a pair, none if unknown
    entities: KeyArray  # (n,), key of each pair's entity, or `NO_KEY`
    # anchor_keys, positive_keys: (n,), keys of the folded strings
    anchor_keys: KeyArray
    positive_keys: KeyArray
    # negative_entities, negative_keys: (m,), the same for the negatives
    negative_entities: KeyArray
    negative_keys: KeyArray
    # phrases that are distilled and take no part in the contrastive loss
    plain: list[str] = field(default_factory=list)


@functools.lru_cache(maxsize=2)
def epoch_order(n: int, seed: int, epoch: int) -> KeyArray:
    """Return the order of n items in an epoch, (n,)."""
    return np.random.default_rng([seed, epoch]).permutation(n)


@dataclass(frozen=True, slots=True)
class EpochSampler:
    """Takes each example once per epoch; every epoch has a new random order."""

    examples: Sequence[Example]  # not empty
    seed: int  # determines the orders

    def draw(self, step: int, n: int, shard: Shard) -> list[Example]:
        """Return `n` examples of a step (from 1); the processes take turns, so that together they see each one once."""
        start, size = ((step - 1) * shard.world_size + shard.rank) * n, len(self.examples)
        places = (divmod(place, size) for place in range(start, start + n))
        return [self.examples[int(epoch_order(size, self.seed, epoch)[within])] for epoch, within in places]


@dataclass(frozen=True, slots=True)
class BatchMaker:
    """Makes the batch of any step."""

    sampler: EpochSampler  # chooses the anchors
    n_pairs: int  # anchors per batch and process
    seed: int  # determines each batch, together with the step and the rank
    augment: Augment  # makes a variant of a phrase
    negatives: NegativeTable | None = None  # hard negatives by phrase, or None
    n_negatives: int = 2  # hard negatives drawn for each anchor that has some. PEARL: 2
    # hard negatives join the batch as further anchors with a variant of their own, as in the paper's code.
    # Otherwise they are negatives only, which costs half
    negatives_as_pairs: bool = False
    # share of the anchors with other names that get one of these as positive; the rest get a variant
    alias_share: float = 0.85
    augmented_aliases: float = 0.15  # share of these other names that are augmented too
    plain: Sequence[str] = ()  # phrases of plain text; some of them join each batch to be distilled
    n_plain: int = N_PLAIN  # plain phrases per batch and process
    shard: Shard = Shard()  # the process that the batches are for

    def __post_init__(self) -> None:
        for name in ("alias_share", "augmented_aliases"):
            if not 0 <= (share := getattr(self, name)) <= 1:
                raise OptionError(name, f"'{name}' is {share}, but must be a share, from 0 to 1.")

    def make(self, step: int) -> PairBatch:
        """Make the batch of a step, from 1."""
        rng = random.Random(f"{self.seed}/{self.shard.rank}/{step}")
        anchors = self.sampler.draw(step, self.n_pairs, self.shard)
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
        return PairBatch(
            anchors=[anchor for anchor, _ in pairs],
            positives=[positive for _, positive in pairs],
            negatives=[example.name for example in drawn],
            allowed=allowed,
            entities=_keys([example.entity for example in anchors]),
            anchor_keys=_keys([fold_phrase(anchor) for anchor, _ in pairs]),
            positive_keys=_keys([fold_phrase(positive) for _, positive in pairs]),
            negative_entities=_keys([example.entity for example in drawn]),
            negative_keys=_keys([fold_phrase(example.name) for example in drawn]),
            plain=rng.choices(self.plain, k=self.n_plain) if self.plain else [],
        )

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine the batches, by the names under which a run's state stores them.

        A run resumes only with equal ones. The names are part of the file format: never rename one.
        """
        stored: dict[str, Any] = {
            "n_pairs": self.n_pairs,
            "seed": self.seed,
            "n_negatives": self.n_negatives,
            "negatives_as_pairs": self.negatives_as_pairs,
            "alias_share": self.alias_share,
            "varied_aliases": self.augmented_aliases,
            "has_negatives": self.negatives is not None,
        }
        if self.plain:
            stored |= {"n_plain": self.n_plain, "plain": len(self.plain)}
        return {**stored, "processes": self.shard.world_size}

    def _pair(self, example: Example, rng: random.Random) -> tuple[str, str]:
        """Draw two names of one entity; the second is a variant if there is only one name, and sometimes otherwise."""
        if not example.others or rng.random() >= self.alias_share:
            return example.name, self.augment(example.name, rng)
        names = (example.name, *example.others)
        first, second = rng.sample(range(len(names)), 2)
        positive = names[second]
        # Aliases are misspelt as often as names are, so some of them are augmented too.
        return names[first], self.augment(positive, rng) if rng.random() < self.augmented_aliases else positive


def _keys(texts: Sequence[str]) -> KeyArray:
    """63-bit keys of texts, the same in every process; `NO_KEY` for an empty text."""
    return np.array([phrase_key(text) >> 1 or 1 if text else NO_KEY for text in texts], dtype=np.int64)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TokenisedBatch:
    """A batch and its token ids; the phrases are in the order anchors, positives, negatives, plain phrases."""

    batch: PairBatch  # the phrases
    micro_batches: list[MicroBatch]  # what the network sees
    plain: list[MicroBatch]  # the plain phrases again, for the start of the network


@dataclass(frozen=True, slots=True)
class BatchDataset:
    """Tokenised batches by step; what `torch.utils.data` calls a map-style dataset."""

    maker: BatchMaker
    tokenizer: Any  # a `tokenizers.Tokenizer` without padding and truncation
    # max_tokens, micro_batch: as in `FitConfig`
    max_tokens: int
    micro_batch: int
    prefix: str = ""  # text before each phrase, as when the model is used

    def __getitem__(self, step: int) -> TokenisedBatch:
        """The batch of a step, from 1."""
        batch = self.maker.make(step)
        seen = self._tokenise([*batch.anchors, *batch.positives, *batch.negatives, *batch.plain])
        return TokenisedBatch(batch, seen, self._tokenise(batch.plain))

    def _tokenise(self, phrases: Sequence[str]) -> list[MicroBatch]:
        phrases = [self.prefix + phrase for phrase in phrases]
        return micro_batches(self.tokenizer, phrases, max_tokens=self.max_tokens, size=self.micro_batch)


def load_batches(dataset: BatchDataset, steps: Sequence[int], *, workers: int) -> Iterator[TokenisedBatch]:
    """Yield the batches of these steps, in order; by worker processes, each a few batches ahead, or by this one (0)."""
    if workers == 0:
        for step in steps:
            yield dataset[step]
        return
    from torch.utils.data import DataLoader

    untyped: Any = dataset
    loader: Any = DataLoader(
        untyped,
        batch_size=None,
        sampler=steps,
        num_workers=count_workers(workers),
        collate_fn=_unchanged,
        worker_init_fn=_start_worker,
        prefetch_factor=4,
    )
    yield from loader


def _unchanged(item: T) -> T:
    return item


def _start_worker(_: int) -> None:
    """Leave signals to the parent process, which ends its workers, and use one thread per worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to the workers too
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
