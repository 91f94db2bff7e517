"""Encode phrases with gradients, in micro-batches of similar length, with or without gradient caching.

Gradient caching (GradCache) needs the memory of one micro-batch for a batch of any size:

    encode all without gradients -> loss and its gradient for each vector -> encode each micro-batch again, with
    gradients, and propagate the gradients of the vectors to the weights

It costs one more forward pass. The random state is restored for the second pass, so that dropout drops the same units.

Source: Gao et al. (2021), Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from pearl_qdrant.encoder.batching import tokenizer_errors
from pearl_qdrant.encoder.runtime.torch_runtime import PearlNetwork


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Phrases of similar length."""

    rows: npt.NDArray[np.int64]  # their indices in the whole batch, (b,)
    # input_ids, attention_mask: (b, t) int64
    input_ids: npt.NDArray[np.int64]
    attention_mask: npt.NDArray[np.int64]


def micro_batches(tokenizer: Any, phrases: Sequence[str], *, max_tokens: int, size: int) -> list[MicroBatch]:
    """Tokenise phrases and split them into micro-batches of at most `size`, shortest phrases first. Longer ones than
    `max_tokens` are truncated; the end token stays, as when the model is used. Raises CheckpointError if the tokenizer,
    a `tokenizers.Tokenizer` without padding and truncation, fails on a phrase.
    """
    shown = f"{phrases[:1]!r:.80}"
    with tokenizer_errors("the tokenizer", f"cannot tokenise one of {len(phrases):,} phrases, the first {shown}"):
        found = [encoding.ids for encoding in tokenizer.encode_batch(list(phrases))]
    cut = [ids if len(ids) <= max_tokens else [*ids[: max_tokens - 1], ids[-1]] for ids in found]
    return pad_batches(cut, size=size)


def pad_batches(ids: Sequence[Sequence[int]], *, size: int) -> list[MicroBatch]:
    """Split tokenised phrases into micro-batches of at most `size`, shortest phrases first."""
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    found = []
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        width = max(1, *(len(ids[i]) for i in rows)) if rows else 1
        input_ids = np.zeros((len(rows), width), dtype=np.int64)
        mask = np.zeros((len(rows), width), dtype=np.int64)
        for place, i in enumerate(rows):
            input_ids[place, : len(ids[i])] = ids[i]
            mask[place, : len(ids[i])] = 1
        found.append(MicroBatch(np.array(rows, dtype=np.int64), input_ids, mask))
    return found


def pad(rows: list[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Pad rows of token ids to the longest of them: ids and mask, (n, t), int64, in the order of the rows."""
    (batch,) = pad_batches(rows, size=len(rows))
    place = np.argsort(batch.rows, kind="stable")
    ids, mask = batch.input_ids[place], batch.attention_mask[place]
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


class PhraseVectors:
    """The vectors of one batch, through which gradients reach the network.

    `vectors` are (n, dim) in the order of the phrases, before normalisation, float32. With `cached` gradients are
    cached; otherwise the activations of the whole batch are kept. The precision of the encoder is "fp32" or "bf16".
    """

    def __init__(
        self, network: PearlNetwork, batches: Sequence[MicroBatch], *, cached: bool = False, precision: str = "fp32"
    ) -> None:
        self._network, self._batches, self._cached, self._precision = network, batches, cached, precision
        self._device = device_of(network)
        self._gpus = [self._device.index] if self._device.type == "cuda" else []
        self._states: list[tuple[Tensor, list[Tensor]]] = []  # torch's random state before each micro-batch
        with torch.set_grad_enabled(not cached and torch.is_grad_enabled()):
            self._leaf = torch.cat([self._encode(batch, remember=cached) for batch in batches])
        if cached:
            self._leaf.requires_grad_()
        order = np.concatenate([batch.rows for batch in batches])
        self.vectors: Tensor = self._leaf[torch.from_numpy(np.argsort(order, kind="stable")).to(self._device)]

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a loss over `vectors`, (), to the network's parameters; it may depend on others too."""
        torch.autograd.backward(loss)
        if not self._cached:
            return
        assert self._leaf.grad is not None
        gradients = torch.split(self._leaf.grad, [len(batch.rows) for batch in self._batches])
        for batch, gradient, (cpu, on_gpu) in zip(self._batches, gradients, self._states, strict=True):
            with torch.random.fork_rng(self._gpus):
                torch.set_rng_state(cpu)
                for gpu, state in zip(self._gpus, on_gpu, strict=True):
                    torch.cuda.set_rng_state(state, gpu)
                vectors = self._encode(batch)
            torch.autograd.backward(vectors, gradient)

    def _encode(self, batch: MicroBatch, *, remember: bool = False) -> Tensor:
        """Encode one micro-batch, (b, dim), float32."""
        if remember:
            self._states.append((torch.get_rng_state(), [torch.cuda.get_rng_state(gpu) for gpu in self._gpus]))
        # On a CPU, torch's fused kernel is made for long texts. With plain products a training step takes 0.7 to 0.9 of
        # the time in bf16, and 0.95 in fp32 (320 names of 1 to 8 words, 6 layers of 384).
        attention = nullcontext() if self._gpus else sdpa_kernel(SDPBackend.MATH)
        with autocast(self._device, self._precision), attention:
            ids = torch.from_numpy(batch.input_ids).to(self._device, non_blocking=True)
            mask = torch.from_numpy(batch.attention_mask).to(self._device, non_blocking=True)
            return self._network.pool(ids, mask).float()


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Return a context in which matrix products are bfloat16 if the precision is "bf16"; weights stay float32."""
    context: AbstractContextManager[Any] = torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")
    return context


def find_precision(requested: str, device: torch.device) -> str:
    """Return the precision of the encoder's forward passes: "bf16" or "fp32"; "auto": bf16 where the device has it."""
    if requested != "auto":
        return requested
    from pearl_qdrant.encoder.runtime.torch_runtime import fast_precision

    return fast_precision(str(device))


def pool_phrases(
    network: PearlNetwork, tokenizer: Any, phrases: Sequence[str], max_tokens: int, micro_batch: int
) -> Tensor:
    """Encode phrases: vectors before normalisation, (n, dim), in their order, with gradients."""
    batches = micro_batches(tokenizer, phrases, max_tokens=max_tokens, size=micro_batch)
    return PhraseVectors(network, batches).vectors


def device_of(network: torch.nn.Module) -> torch.device:
    """Return the device of a network's weights."""
    return next(network.parameters()).device
