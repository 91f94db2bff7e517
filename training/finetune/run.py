"""A fine-tuning run from files to a checkpoint: what `pearl-qdrant train fit` runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from pearl_qdrant.encoder.protocol import Encoder, ModelInfo
from pearl_qdrant.encoder.runtime.network import PearlNetwork
from pearl_qdrant.encoder.runtime.torch_runtime import TorchEncoder, network_width
from pearl_qdrant.encoder.tokens import NameTokenizer
from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.data.batches import BatchMaker, EpochSampler, NeighbourSampler, Sampler, Shard, Source, Vary
from training.data.training_files import by_name, with_one_label
from training.examples.sources import Example
from training.finetune.config import FitConfig
from training.finetune.distributed import process_group, wait_for_all
from training.finetune.objective import Teacher
from training.finetune.trainer import Evaluate, fit
from training.mining.negative_table import NegativeTable
from training.networks.base_network import Base
from training.networks.phrase_vectors import device_of
from training.networks.torch_checkpoint import write_network

TRAINING = "training"
"""Folder within the checkpoint's for state, log and curves."""


@dataclass(frozen=True, slots=True)
class DataOptions:
    """How batches are made of the examples.

    Attributes:
        views: Phrases encoded a step, on all processes together: anchors, positives and hard negatives. PEARL: 512.
        epochs: How often each example is an anchor. PEARL: 2.
        n_negatives: Hard negatives drawn for each anchor. PEARL: 2.
        run: Alphabetical neighbours drawn together; 1 takes each example by itself, once an epoch.
        faithful: As the paper and its code: no aliases, one label a phrase, hard negatives with variants of their own.
        n_plain: Plain phrases distilled a step and process, where there are some.
        misspelt_plain: How many of them the network sees with one character edited.
        seed: Decides everything.
    """

    views: int = 512
    epochs: float = 2.0
    n_negatives: int = 2
    run: int = 1
    faithful: bool = False
    n_plain: int = 64
    misspelt_plain: float = 0.0
    seed: int = 0

    def n_pairs(self, *, has_negatives: bool, world_size: int) -> int:
        """Anchors a batch and process: 85 for 512 views with two hard negatives that have variants."""
        each = self.n_negatives if has_negatives else 0
        views_each = 2 * (1 + each) if self.faithful else 2 + each
        return max(2, self.views // (views_each * world_size))


def plan_steps(n_examples: int, options: DataOptions, *, has_negatives: bool, world_size: int = 1) -> int:
    """Steps in which each example is an anchor `epochs` times."""
    pairs = options.n_pairs(has_negatives=has_negatives, world_size=world_size) * world_size
    return max(1, math.ceil(options.epochs * n_examples / pairs))


def new_maker(
    examples: list[Example],
    options: DataOptions,
    *,
    vary: Vary,
    negatives: Iterable[tuple[str, Iterable[str]]] | None = None,
    plain: Sequence[str] = (),
    shard: Shard | None = None,
) -> BatchMaker:
    """Batches of examples.

    Args:
        examples: In alphabetical order.
        options: How.
        vary: Makes a variant of a phrase.
        negatives: Phrases with their hard negatives.
        plain: Phrases that are distilled.
        shard: Which process this is for.
    """
    shard = shard or Shard()
    if options.faithful:
        examples = [with_one_label(example) for example in examples]
    table = None if negatives is None else NegativeTable(negatives, known=by_name(examples))
    sampler: Sampler = EpochSampler(examples, options.seed)
    if options.run > 1:
        sampler = NeighbourSampler([Source(examples, 1.0)], run=options.run)
    return BatchMaker(
        sampler,
        n_pairs=options.n_pairs(has_negatives=table is not None, world_size=shard.world_size),
        seed=options.seed,
        vary=vary,
        negatives=table,
        n_negatives=options.n_negatives,
        negatives_as_pairs=options.faithful,
        plain=plain,
        n_plain=options.n_plain,
        misspelt_plain=options.misspelt_plain,
        shard=shard,
    )


def run_fit(
    base: Base,
    examples: list[Example],
    config: FitConfig,
    options: DataOptions,
    out: Path,
    *,
    vary: Vary,
    negatives: Callable[[], Iterable[tuple[str, Iterable[str]]]] | None = None,
    device: torch.device,
    resume: bool = True,
    teacher: Teacher | None = None,
    plain: Sequence[str] = (),
    distil_from: Teacher | None = None,
    evaluate: Evaluate | None = None,
    tensorboard: bool = False,
) -> bool:
    """Fine-tune a network and write it as a checkpoint.

    Args:
        base: What to start from.
        examples: In alphabetical order.
        config: How to train.
        options: How batches are made.
        out: The checkpoint; state, log and curves go into its folder `training`.
        vary: Makes a variant of a phrase.
        negatives: Opens the phrases with their hard negatives.
        device: Where; with several processes each takes its own.
        plain: Phrases that are distilled from `distil_from`.
        resume, teacher, distil_from, evaluate, tensorboard: As for `fit`.

    Returns:
        Whether this process wrote the checkpoint; of several only the first does.

    Raises:
        TrainingError: As `fit`.
    """
    with process_group(device) as shard:
        rows = None if negatives is None else negatives()
        maker = new_maker(examples, options, vary=vary, negatives=rows, plain=plain, shard=shard)
        base.network.to(device)
        fit(
            base.network,
            base.tokenizer,
            maker,
            config,
            out / TRAINING,
            resume=resume,
            teacher=teacher,
            distil_from=distil_from,
            evaluate=evaluate,
            tensorboard=tensorboard,
            prefix=base.config.prefix,
        )
        if shard.rank == 0:
            record = {**base.config.training, "fit": {**asdict(config), **maker.identity(), "examples": len(examples)}}
            counts = base.config.label_counts
            if config.type_weight > 0:
                # What the start's head has learnt is in the network still; a plain encoder's counts are all 0.
                counts = tuple(old + new for old, new in zip(counts, count_labels(examples), strict=True))
            final = base.config.model_copy(update={"label_counts": counts, "training": record})
            write_network(out, base.network.cpu(), final, transformer=base.folder)
        wait_for_all()
    return shard.rank == 0


def live_encoder(network: PearlNetwork, base: Base) -> Encoder:
    """The network as it is now, as an encoder, to be evaluated between two steps."""
    config = base.config
    info = ModelInfo(
        name=config.name,
        weights_hash="",
        dim=network_width(network),
        pooling=config.pooling,
        prefix=config.prefix,
        has_head=network.type_head is not None,
        device=str(device_of(network)),
        precision="fp32",
        runtime="torch",
    )
    tokenizer = NameTokenizer(base.folder, max_length=config.max_length, prefix=config.prefix)
    # Any label may have been learnt by now.
    never_seen = np.zeros(len(PHRASE_TYPES), dtype=np.bool_) if info.has_head else None
    return TorchEncoder(network, tokenizer, info=info, never_seen=never_seen)


def as_teacher(encoder: Encoder) -> Teacher:
    """An encoder as a teacher."""

    def judge(names: Sequence[str]) -> torch.Tensor:
        return torch.from_numpy(encoder.encode(names).vectors)

    return judge


def entity_types_of(counts: Sequence[int]) -> set[str]:
    """The entity types of the labels with a count over 0, as "ORG"."""
    return {kind.partition("-")[2] for kind, count in zip(PHRASE_TYPES, counts, strict=True) if count}


def count_labels(examples: Iterable[Example]) -> tuple[int, ...]:
    """How many examples allow each phrase type."""
    counts = np.zeros(len(PHRASE_TYPES), dtype=np.int64)
    for example in examples:
        counts[list(example.allowed)] += 1
    return tuple(counts.tolist())
