"""Average a fine-tuned phrase encoder with the one that it started from, against forgetting.

Type head and character encoder are not averaged: the original may have neither, and half of a random head is useless.
The fine-tuned head loses a few points on the averaged vectors (`training.head.fit_head` fits a new one). A head that
was not trained (type_weight 0) fits the averaged vectors better.

Source: PEARL (Chen et al. 2024), section 3.4.
"""

from __future__ import annotations

import torch
from torch import nn

from pearl_qdrant.encoder.runtime.network import PearlNetwork


def average_weights(original: nn.Module, tuned: nn.Module, *, ratio: float) -> None:
    """Set `tuned` to ratio x tuned + (1 - ratio) x original, in place.

    Args:
        original: The phrase encoder before fine-tuning.
        tuned: The phrase encoder after fine-tuning, of the same shape; or its network, of which nothing else changes.
        ratio: In [0, 1]. PEARL: 0.5.

    Raises:
        ValueError: If the ratio is out of range, or the two have different tensors.
    """
    if not 0 <= ratio <= 1:
        raise ValueError(f"ratio must be in [0, 1], not {ratio}")
    before, after = _phrase_encoder(original).state_dict(), _phrase_encoder(tuned).state_dict()
    if before.keys() != after.keys():
        raise ValueError(f"the encoders differ in {sorted(before.keys() ^ after.keys())[:5]}")
    for name, tensor in after.items():
        if tensor.shape != before[name].shape:
            raise ValueError(f"the encoders differ: {name} is {tuple(before[name].shape)} and {tuple(tensor.shape)}")
    with torch.no_grad():
        for name, tensor in after.items():
            if tensor.is_floating_point():
                tensor.lerp_(before[name].to(tensor), 1 - ratio)


def _phrase_encoder(module: nn.Module) -> nn.Module:
    return module.phrase_encoder if isinstance(module, PearlNetwork) else module
