"""The judge of two names: the encoder's first layers over both at once, and what the vectors of the two have in common.

    <s> mention </s> name </s>  ->  layers  ->  u, v: means over the tokens of each
    |u - v|, u * v, u + v, cos(u, v)  ->  logit

The word table is the encoder's and stays as it is; a vector is added to the tokens of the name. So the judge starts
from what the encoder knows of two names apart, and learns what one says of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from training.networks.bert_layers import BertLayer, layer_norm, named

WIDTH = 128  # columns between the vectors of a pair and its logit
LONGEST = 32  # tokens of each name that are read


class Judge(nn.Module):
    """The network.

    Args:
        tensors: Weights of the encoder by their names in transformers' BertModel.
        n_layers: How many of its layers are used, the first ones.
        heads: Attention heads.
    """

    words: Tensor
    first: nn.LayerNorm

    def __init__(self, tensors: Mapping[str, npt.NDArray[Any]], *, n_layers: int, heads: int = 12) -> None:
        super().__init__()
        given = {name: torch.from_numpy(np.array(array)) for name, array in tensors.items()}
        # No part of the state: the table is the encoder's.
        self.register_buffer("words", given["embeddings.word_embeddings.weight"], persistent=False)
        positions = given["embeddings.position_embeddings.weight"]
        self.positions = nn.Parameter(positions + given["embeddings.token_type_embeddings.weight"][0])
        self.first = layer_norm(given, "embeddings.LayerNorm")
        self._heads = heads
        self.layers = nn.ModuleList(BertLayer(given, f"encoder.layer.{i}", heads) for i in range(n_layers))
        dim = self.words.shape[1]
        self.of_name = nn.Parameter(torch.zeros(dim))
        self.inner = nn.Linear(3 * dim + 1, WIDTH)
        self.outer = nn.Linear(WIDTH, 1)

    def forward(self, ids: Tensor, part: Tensor) -> Tensor:
        """Return the logit that both are names of one thing, (b,).

        Args:
            ids: Tokens of pairs, (b, t).
            part: 1 for tokens of the mention, 2 for those of the name, 0 for padding, (b, t).
        """
        x = self._read(ids, part).float()
        u, v = _mean(x, part == 1), _mean(x, part == 2)
        cosine = nn.functional.cosine_similarity(u, v, dim=1).unsqueeze(1)
        both = torch.cat([(u - v).abs(), u * v, u + v, cosine], dim=1)
        logits: Tensor = self.outer(nn.functional.gelu(self.inner(both)))[:, 0]
        return logits

    def _read(self, ids: Tensor, part: Tensor) -> Tensor:  # (b, t), (b, t) -> (b, t, dim)
        is_name = (part == 2).unsqueeze(-1)
        x = nn.functional.embedding(ids, self.words) + self.positions[: ids.shape[1]] + is_name * self.of_name
        x, wide = self.first(x), (part != 0)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, wide)
        found: Tensor = x
        return found

    def grow(self, tensors: Mapping[str, npt.NDArray[Any]], n_layers: int, ids: Tensor, part: Tensor) -> None:
        """Add the encoder's next layers, up to so many, which return about what they are given until they have learnt
        (Chen et al. 2016, Net2Net): what they add is 0, and their norms give back the mean and the deviation that the
        last layer's vectors have in a batch of pairs.
        """
        n_layers = min(n_layers, sum(name.endswith(".attention.self.query.weight") for name in tensors))
        given = {name: torch.from_numpy(np.array(array)) for name, array in tensors.items()}
        with torch.no_grad():
            x = self._read(ids, part)[part != 0]
            mean, deviation = x.mean(1).mean(), x.std(1, correction=0).mean()
            for i in range(len(self.layers), n_layers):
                layer = BertLayer(given, f"encoder.layer.{i}", self._heads).to(x.device)
                for dense in (layer.mixed, layer.outer):
                    dense.weight.zero_()
                    dense.bias.zero_()
                for norm in (layer.between, layer.after):
                    norm.weight.fill_(deviation)
                    norm.bias.fill_(mean)
                self.layers.append(layer)

    def bert_tensors(self) -> dict[str, Tensor]:
        """The weights of the layers by their names in BertModel, without the word table; token types are in the
        positions.
        """
        found = {"embeddings.position_embeddings.weight": self.positions} | named("embeddings.LayerNorm", self.first)
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, BertLayer)
            found |= layer.tensors(f"encoder.layer.{i}")
        return found


def _mean(x: Tensor, chosen: Tensor) -> Tensor:  # (b, t, dim), (b, t) -> (b, dim)
    weights = chosen.unsqueeze(-1).float()
    found: Tensor = (x * weights).sum(1) / weights.sum(1).clamp(min=1)
    return found


def pair_tokens(mention: Sequence[int], name: Sequence[int], *, begin: int, end: int) -> tuple[list[int], list[int]]:
    """Tokens of a pair, and the part of each, from the tokens of both without special ones, cut to `LONGEST`."""
    a, b = list(mention[:LONGEST]), list(name[:LONGEST])
    return [begin, *a, end, *b, end], [1] * (len(a) + 2) + [2] * (len(b) + 1)


def pad(pairs: Sequence[tuple[Sequence[int], Sequence[int]]], *, padding: int) -> tuple[Tensor, Tensor]:
    """Tokens and parts of pairs as arrays, (b, t) each."""
    t = max(len(ids) for ids, _ in pairs)
    ids = torch.full((len(pairs), t), padding, dtype=torch.int64)
    parts = torch.zeros((len(pairs), t), dtype=torch.int64)
    for i, (tokens, part) in enumerate(pairs):
        ids[i, : len(tokens)] = torch.tensor(tokens)
        parts[i, : len(part)] = torch.tensor(part)
    return ids, parts
