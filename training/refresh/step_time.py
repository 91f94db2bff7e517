"""How long a step of fine-tuning takes on this machine, measured on a few names before the run."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from training.networks.checkpoints import BaseModel
from training.networks.phrase_vectors import pool_phrases
from training.options import BatchOptions

MICRO_BATCH = 64

REPEATS = 3


FORWARD = 1 / 3
"""The share of a forward pass in a pass with gradients."""


def seconds_a_step(base: BaseModel, names: Sequence[str], batch_size: int, device: torch.device) -> tuple[float, float]:
    """Seconds of a step with `batch_size` phrases and the phrases that are distilled with them; and those of encoding
    one name.

    Args:
        base: The network.
        names: Names like those of the run; at least one.
        batch_size: Phrases of a step.
        device: Where the run takes place.
    """
    network = base.network.to(device).train()
    sample = [names[i % len(names)] for i in range(MICRO_BATCH)]
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        pool_phrases(network, base.tokenizer, sample, max_tokens=24, micro_batch=MICRO_BATCH).sum().backward()  # type: ignore[no-untyped-call]
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
        network.zero_grad(set_to_none=True)
    # The phrases that are distilled go through the network and, without gradients, through its start.
    phrases = batch_size + 2 * BatchOptions().n_plain
    return min(seconds) * phrases / MICRO_BATCH, min(seconds) / MICRO_BATCH * FORWARD
