"""Fine-tune a network and write it as a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from pearl_qdrant.encoder.checkpoint import PearlConfig
from training.data.batch_plan import NegativeRows, new_batch_maker
from training.data.batches import Augment, BatchMaker
from training.data.options import BatchOptions
from training.examples.example import Example
from training.examples.labels import count_labels
from training.finetune.config import FitConfig
from training.finetune.objective import Teacher
from training.finetune.trainer import Evaluate, fit
from training.loop.distributed import process_group, wait_for_all
from training.networks.base_network import BaseModel
from training.networks.torch_checkpoint import write_network
from training.ulr.terms import UlrTerms

TRAINING = "training"
"""Folder within the checkpoint's folder for state, log and curves."""


def run_fit(  # long: all arguments of a run are documented here
    base: BaseModel,
    examples: list[Example],
    config: FitConfig,
    options: BatchOptions,
    out: Path,
    *,
    augment: Augment,
    negatives: Callable[[], NegativeRows] | None = None,
    device: torch.device,
    resume: bool = True,
    teacher: Teacher | None = None,
    plain: Sequence[str] = (),
    distil_from: Teacher | None = None,
    terms: UlrTerms | None = None,
    evaluate: Evaluate | None = None,
    tensorboard: bool = False,
    max_seconds: float | None = None,
) -> tuple[bool, int]:
    """Fine-tune a network and write it as a checkpoint.

    Args:
        base: What to start from.
        examples: In alphabetical order.
        config: How to train.
        options: How batches are made.
        out: The checkpoint; state, log and curves go into its folder `training`.
        augment: Makes a variant of a phrase.
        negatives: Opens the phrases with their hard negatives.
        device: Where to train; with several processes each has its own.
        plain: Phrases that are distilled from `distil_from`.
        resume, teacher, distil_from, terms, evaluate, tensorboard, max_seconds: As for `fit`.

    Returns:
        Whether this process wrote the checkpoint, of several processes only the first does; and the steps done.

    Raises:
        TrainingError: As `fit`.
    """
    with process_group(device) as shard:
        opened = negatives() if negatives else None
        maker = new_batch_maker(examples, options, augment=augment, negatives=opened, plain=plain, shard=shard)
        _move(base, terms, device)
        done = fit(
            base.network,
            base.tokenizer,
            maker,
            config,
            out / TRAINING,
            resume=resume,
            teacher=teacher,
            distil_from=distil_from,
            terms=terms,
            evaluate=evaluate,
            tensorboard=tensorboard,
            prefix=base.config.prefix,
            max_seconds=max_seconds,
        )
        if shard.rank == 0:
            _write(out, base, _describe(base, examples, config, maker, terms))
        wait_for_all()
    return shard.rank == 0, done


def _describe(
    base: BaseModel, examples: list[Example], config: FitConfig, maker: BatchMaker, terms: UlrTerms | None
) -> PearlConfig:
    """pearl.json of the fine-tuned network, with the record of this run."""
    ulr = {} if terms is None else terms.identity()
    record = {**base.config.training, "fit": {**asdict(config), **maker.identity(), **ulr, "examples": len(examples)}}
    counts = base.config.label_counts
    if config.type_weight > 0:
        # The head has not lost what it learnt before this run; a plain encoder's counts are all 0.
        counts = tuple(old + new for old, new in zip(counts, count_labels(examples), strict=True))
    return base.config.model_copy(update={"label_counts": counts, "training": record})


def _move(base: BaseModel, terms: UlrTerms | None, device: torch.device) -> None:
    """Move what is trained to its device."""
    base.network.to(device)
    if terms is not None:
        terms.head.to(device)


def _write(out: Path, base: BaseModel, described: PearlConfig) -> None:
    """Write the network, which is moved to the CPU."""
    write_network(out, base.network.cpu(), described, transformer=base.folder)
