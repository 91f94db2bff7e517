"""A layer of BERT written out: launching kernels is what a step of a small network waits for."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class BertLayer(nn.Module):
    """One layer; queries, keys and values in one product.

    Args:
        given: The weights by their names in transformers' BertModel.
        name: The part of the names that stands before those of this layer, such as "encoder.layer.0".
        heads: Attention heads.
    """

    def __init__(self, given: Mapping[str, Tensor], name: str, heads: int) -> None:
        super().__init__()
        own = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
        self.heads = heads
        self.qkv = _linear(*(torch.cat([given[f"{one}.{kind}"] for one in own]) for kind in ("weight", "bias")))
        self.mixed = _linear(
            given[f"{name}.attention.output.dense.weight"], given[f"{name}.attention.output.dense.bias"]
        )
        self.between = layer_norm(given, f"{name}.attention.output.LayerNorm")
        self.inner = _linear(given[f"{name}.intermediate.dense.weight"], given[f"{name}.intermediate.dense.bias"])
        self.outer = _linear(given[f"{name}.output.dense.weight"], given[f"{name}.output.dense.bias"])
        self.after = layer_norm(given, f"{name}.output.LayerNorm")

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:  # (b, t, dim), (b, 1, 1, t) -> (b, t, dim)
        b, t, dim = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.between(self.mixed(mixed.transpose(1, 2).reshape(b, t, dim)) + x)
        found: Tensor = self.after(self.outer(nn.functional.gelu(self.inner(x))) + x)
        return found

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The weights by their names in BertModel."""
        found: dict[str, Tensor] = {}
        for kind, joined in (("weight", self.qkv.weight), ("bias", self.qkv.bias)):
            for part, tensor in zip(("query", "key", "value"), joined.chunk(3), strict=True):
                found[f"{name}.attention.self.{part}.{kind}"] = tensor
        found |= named(f"{name}.attention.output.dense", self.mixed)
        found |= named(f"{name}.attention.output.LayerNorm", self.between)
        found |= named(f"{name}.intermediate.dense", self.inner)
        return found | named(f"{name}.output.dense", self.outer) | named(f"{name}.output.LayerNorm", self.after)


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(bias)
    return layer


def layer_norm(given: Mapping[str, Tensor], name: str) -> nn.LayerNorm:
    """A LayerNorm with the weights of that name."""
    layer = nn.LayerNorm(given[f"{name}.weight"].shape[0], eps=1e-12)
    layer.weight, layer.bias = nn.Parameter(given[f"{name}.weight"]), nn.Parameter(given[f"{name}.bias"])
    return layer


def named(name: str, layer: nn.Linear | nn.LayerNorm) -> dict[str, Tensor]:
    """The weights of a layer by their names in BertModel."""
    return {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}
