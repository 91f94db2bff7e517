"""Networks in training as encoders, and encoders as teachers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from pearl_qdrant.encoder.protocol import Encoder, ModelInfo
from pearl_qdrant.encoder.runtime.network import PearlNetwork
from pearl_qdrant.encoder.runtime.torch_runtime import TorchEncoder, fast_precision, network_width
from pearl_qdrant.encoder.tokens import NameTokenizer
from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.networks.checkpoints import BaseModel
from training.networks.phrase_vectors import MicroBatch, PhraseVectors, device_of, micro_batches

Teacher = Callable[[Sequence[str]], torch.Tensor]
"""Encodes phrases as vectors, (n, dim), L2-normalised, without gradients."""

MAX_TOKENS, MICRO_BATCH = 64, 640
"""How a `NetworkTeacher` reads phrases that come without token ids."""


def live_encoder(network: PearlNetwork, base: BaseModel) -> Encoder:
    """Wrap the network in its present state as an encoder, to evaluate it between two steps."""
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
    """Turn an encoder into a teacher; its vectors come from the encoder through main memory."""

    def teach(names: Sequence[str]) -> torch.Tensor:
        return torch.from_numpy(encoder.encode(names).vectors)

    return teach


class NetworkTeacher:
    """A teacher whose vectors stay on its device, and which reads the token ids of the network that it teaches.

    Its tokens need no second pass of the tokenizer, so that a step on a GPU does not wait for one. It reads phrases as
    that network does: with its prefix, and truncated where it truncates.

    Args:
        network: Moved in place to the device, and its encoder to bfloat16 if the hardware computes in that.
        tokenizer: A `tokenizers.Tokenizer` without padding and truncation, the same as the taught network's.
        device: "cpu", or "cuda:N".
    """

    def __init__(self, network: PearlNetwork, tokenizer: Any, *, device: str) -> None:
        self._network, self._tokenizer = network.to(device).eval(), tokenizer
        self._device = device_of(network)
        if fast_precision(device) == "bf16":
            network.phrase_encoder.to(torch.bfloat16)

    def __call__(self, names: Sequence[str]) -> torch.Tensor:
        """See `Teacher`; the names have their prefix already."""
        return self.encode(micro_batches(self._tokenizer, names, max_tokens=MAX_TOKENS, size=MICRO_BATCH))

    @torch.no_grad()
    def encode(self, batches: Sequence[MicroBatch]) -> torch.Tensor:
        """Encode tokenised phrases, (n, dim), L2-normalised, on the device."""
        vectors = PhraseVectors(self._network, batches, device=self._device, cached=False).vectors
        return nn.functional.normalize(vectors, dim=-1)


def read_alike(first: BaseModel, second: BaseModel) -> bool:
    """Whether two models make the same token ids of every phrase."""
    texts = [(model.folder / "tokenizer.json").read_bytes() for model in (first, second)]
    return texts[0] == texts[1] and first.config.prefix == second.config.prefix
