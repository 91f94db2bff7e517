"""The student and its English teacher, written out: launching kernels is what a step of this size waits for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from multilingual.packed import POSITIONS, Arrays
from pearl_qdrant.encoder.character.network import CharacterEncoder
from pearl_qdrant.encoder.character.table import CharacterConfig, read_character_table
from pearl_qdrant.encoder.runtime.torch_runtime import join_parts
from training.networks.bert_layers import BertLayer, layer_norm, named


def blocks(table: Tensor) -> Tensor:
    """Rows of word embeddings as the 4-bit blocks in which they ship; the gradient passes through. Shape as given."""
    parts = table.reshape(-1, 32)
    with torch.no_grad():
        largest = parts.gather(1, parts.abs().argmax(1, keepdim=True))
        scales = (largest / -8).half().float()
        whole = torch.where(scales == 0, 0.0, parts / torch.where(scales == 0, 1.0, scales)).round().clamp(-8, 7)
        error = whole * scales - parts
    return (parts + error).reshape(table.shape)


class Encoder(nn.Module):
    """A BERT with mean pooling.

    Args:
        tensors: The weights by their names in transformers' BertModel.
        heads: Attention heads.
    """

    def __init__(self, tensors: Mapping[str, npt.NDArray[Any]], *, heads: int = 12) -> None:
        super().__init__()
        given = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in tensors.items()}
        self.heads = heads
        self.words = nn.Parameter(given["embeddings.word_embeddings.weight"])
        positions = given["embeddings.position_embeddings.weight"][:POSITIONS]
        self.positions = nn.Parameter(positions + given["embeddings.token_type_embeddings.weight"][0])
        self.first = layer_norm(given, "embeddings.LayerNorm")
        n = 1 + max(int(name.split(".")[2]) for name in given if name.startswith("encoder.layer."))
        self.layers = nn.ModuleList(BertLayer(given, f"encoder.layer.{i}", heads) for i in range(n))

    def forward(self, ids: Tensor, mask: Tensor, *, in_blocks: bool = False) -> Tensor:
        """Return the mean of the last layer over real tokens, (b, dim), float32."""
        words = nn.functional.embedding(ids, self.words)
        x = self.first((blocks(words) if in_blocks else words) + self.positions[: ids.shape[1]])
        wide = mask[:, None, None, :]
        for layer in self.layers:
            x = layer(x, wide)
        weights = mask.unsqueeze(-1).float()
        pooled: Tensor = (x.float() * weights).sum(1) / weights.sum(1).clamp(min=1)
        return pooled

    def tensors(self) -> dict[str, Tensor]:
        """The weights by their names in BertModel, on the CPU; token types are in the positions."""
        found: dict[str, Tensor] = {
            "embeddings.word_embeddings.weight": self.words,
            "embeddings.position_embeddings.weight": self.positions,
        }
        found |= named("embeddings.LayerNorm", self.first)
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, BertLayer)
            found |= layer.tensors(f"encoder.layer.{i}")
        return {name: tensor.detach().float().cpu() for name, tensor in found.items()}


class English(nn.Module):
    """The English teacher: phrase encoder and character encoder."""

    def __init__(self, tensors: Arrays, characters: Arrays, config: Mapping[str, Any], tokenizer: Path) -> None:
        super().__init__()
        self.phrase = Encoder(tensors)
        table = read_character_table(tokenizer)
        own = config["character"]
        self.characters = CharacterEncoder(table, CharacterConfig(**own), int(config["char_dim"]))
        self.shares = own["share"], own.get("continuation_share") or own["share"]
        state = {name: torch.from_numpy(array) for name, array in characters.items()}
        self.characters.load_state_dict(state, strict=False)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        phrase = self.phrase(ids, mask)
        with torch.autocast(ids.device.type, enabled=False):
            # The English teacher's share grows with the part of the tokens that continue a word.
            real = (mask != 0) & ~self.characters.special[ids]
            continuing = (real & self.characters.continuation[ids]).sum(1, keepdim=True)
            low, high = self.shares
            share = low + (high - low) * continuing / real.sum(1, keepdim=True).clamp(min=1)
            return join_parts(phrase, self.characters(ids, mask).float(), share=share)
