"""Averaging a fine-tuned phrase encoder with the one it started from, against forgetting.

The type head is left out: the original has none, and half a random head is no head. Fit it afterwards, on the
averaged encoder (`training.head`).

Source: PEARL (Chen et al. 2024), section 3.4.
"""

from __future__ import annotations

import torch
from torch import nn


def average_weights(original: nn.Module, tuned: nn.Module, *, ratio: float) -> None:
    """Set `tuned` to ratio x tuned + (1 - ratio) x original, in place.

    Args:
        original: The encoder before fine-tuning.
        tuned: The encoder after it, of the same shape.
        ratio: In [0, 1]. PEARL takes 0.5.

    Raises:
        ValueError: If the ratio is out of range, or the two have different tensors.
    """
    if not 0 <= ratio <= 1:
        raise ValueError(f"ratio is in [0, 1], not {ratio}")
    before, after = original.state_dict(), tuned.state_dict()
    if before.keys() != after.keys():
        raise ValueError(f"the encoders differ in {sorted(before.keys() ^ after.keys())[:5]}")
    with torch.no_grad():
        for name, tensor in after.items():
            if tensor.is_floating_point():
                tensor.lerp_(before[name], 1 - ratio)
