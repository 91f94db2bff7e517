"""ULR training from texts to an encoder in one call: what `pearl-qdrant train ulr` does.

from pearl_qdrant import UlrRequest, train_ulr

train_ulr(UlrRequest(base="all-MiniLM-L6-v2/", texts="articles.jsonl.gz", out="ulr/"))
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from pearl_qdrant.errors import OptionError, TrainingError
from training.events import TrainingEvents
from training.loop.distributed import shard_of_environment
from training.networks.checkpoints import find_device
from training.options import as_paths, refuse_overwriting
from training.ulr.drawing import UlrData
from training.ulr.encoder_folder import UlrBase, open_ulr_base, refuse_other_model, write_encoder
from training.ulr.request import UlrConfig, UlrRequest, UlrResult
from training.ulr.sequences import open_sequences
from training.ulr.trainer import UlrRecord, fit_ulr
from training.ulr.views import open_masking

TRAINING = "training"
"""Folder within `out` for state, log and curves."""


def train_ulr(
    request: UlrRequest,
    *,
    events: TrainingEvents | None = None,
    on_step: Callable[[UlrRecord], None] = lambda _: None,
) -> UlrResult:
    """Train an encoder with ULR; the same call resumes a run that was interrupted.

    Args:
        request: What to train on, how, and where to write.
        events: Gets `examples_read`: the sequences, and the rows that were skipped.
        on_step: Called with the figures of each step.

    Raises:
        OptionError: If arguments contradict each other, or `out` is an input.
        InputError: If an input cannot be read, or has too many bad rows.
        ModelError: If the base cannot be loaded or trained.
        TrainingError: If `out` holds the state of another run, the loss diverges, or there are several processes.
    """
    request.check()
    refuse_overwriting(request.out, request.base, request.ngrams, *as_paths(request.texts))
    if shard_of_environment().world_size > 1:
        raise TrainingError("ULR training runs in one process. Start it without torchrun")
    out, device = Path(request.out), find_device(request.device)
    refuse_other_model(out)
    base = open_ulr_base(str(request.base), pooling=request.pooling, seed=request.seed)
    with ExitStack() as stack:
        sequences, digest = open_sequences(request, events or TrainingEvents(), stack)
        config = _config(request, base, min(request.sequences, len(sequences)))
        data = UlrData(
            sequences,
            base.tokenizer,
            open_masking(
                base.tokenizer, share=config.mask_share if config.mlm_weight else 0.0, on_rest=config.mlm_on_rest
            ),
            prefix=base.prefix,
            lowercase=base.lowercase,
            digest=digest,
            limit=request.sequences,
        )
        base.network.to(device)
        fit_ulr(
            base.network,
            data,
            config,
            out / TRAINING,
            resume=not request.restart,
            tensorboard=request.tensorboard,
            on_step=on_step,
        )
    record = {"base": str(request.base), **data.identity(), **asdict(config)}
    write_encoder(out, base, training=record)
    return UlrResult(out, config.steps, config.head_steps, len(data), not base.has_head, pooling=config.pooling)


def _config(request: UlrRequest, base: UlrBase, n_sequences: int) -> UlrConfig:
    """The settings of the loop for a model and a number of sequences."""
    steps = request.steps or max(1, math.ceil(request.epochs * n_sequences / request.batch_size))
    head_steps = request.find_head_steps(steps, has_head=base.has_head)
    if head_steps >= steps:
        raise OptionError("head_steps", f"'head_steps' {head_steps} leaves none of {steps} steps.")
    max_tokens = min(request.max_tokens, base.max_length)
    n_frame = len(base.tokenizer.encode(base.prefix).ids)
    if max_tokens < n_frame + 2:
        raise OptionError(
            "max_tokens", f"'max_tokens' {max_tokens} leaves no room beside {n_frame} special tokens and prefix tokens."
        )
    return request.config(
        steps=steps,
        head_steps=head_steps,
        pooling=base.network.pooling,
        max_tokens=max_tokens,
    )
