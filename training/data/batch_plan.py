"""Plan the batches of a run: how many steps it takes, and what makes the batches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from training.data.batches import Augment, BatchMaker, EpochSampler, ExampleSource, NeighbourSampler, Sampler, Shard
from training.data.negative_table import NegativeTable
from training.data.options import BatchOptions
from training.data.training_files import index_by_name, with_one_label
from training.examples.example import Example

NegativeRows = Iterable[tuple[str, Iterable[str]]]
"""Phrases with their hard negatives."""


def plan_steps(n_examples: int, options: BatchOptions, *, has_negatives: bool, world_size: int = 1) -> int:
    """Return the steps in which each example is an anchor `epochs` times."""
    pairs = options.n_pairs(has_negatives=has_negatives, world_size=world_size) * world_size
    return max(1, math.ceil(options.epochs * n_examples / pairs))


def new_batch_maker(
    examples: list[Example],
    options: BatchOptions,
    *,
    augment: Augment,
    negatives: NegativeRows | None = None,
    plain: Sequence[str] = (),
    shard: Shard | None = None,
) -> BatchMaker:
    """Return what makes the batches of a run.

    Args:
        examples: In alphabetical order.
        options: How batches are made.
        augment: Makes a variant of a phrase.
        negatives: Phrases with their hard negatives.
        plain: Phrases that are distilled.
        shard: The process that the batches are for.
    """
    shard = shard or Shard()
    if options.paper_settings:
        examples = [with_one_label(example) for example in examples]
    table = None if negatives is None else NegativeTable(negatives, known=index_by_name(examples))
    sampler: Sampler = EpochSampler(examples, options.seed)
    if options.neighbours > 1:
        sampler = NeighbourSampler([ExampleSource(examples, 1.0)], neighbours=options.neighbours)
    return BatchMaker(
        sampler,
        n_pairs=options.n_pairs(has_negatives=table is not None, world_size=shard.world_size),
        seed=options.seed,
        augment=augment,
        negatives=table,
        n_negatives=options.n_negatives,
        negatives_as_pairs=options.paper_settings,
        plain=plain,
        n_plain=options.n_plain,
        misspelt_plain=options.misspelt_plain,
        shard=shard,
    )
