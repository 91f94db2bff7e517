"""Networks in training as encoders, and encoders as teachers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from pearl_qdrant.encoder.protocol import Encoder, ModelInfo
from pearl_qdrant.encoder.runtime.network import PearlNetwork
from pearl_qdrant.encoder.runtime.torch_runtime import TorchEncoder, network_width
from pearl_qdrant.encoder.tokens import NameTokenizer
from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.finetune.objective import Teacher
from training.networks.base_network import BaseModel
from training.networks.phrase_vectors import device_of


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
    """Turn an encoder into a teacher."""

    def teach(names: Sequence[str]) -> torch.Tensor:
        return torch.from_numpy(encoder.encode(names).vectors)

    return teach
