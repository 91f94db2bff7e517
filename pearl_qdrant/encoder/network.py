"""The PEARL network in torch: phrase encoder and type head in one forward pass.

    u = mean over the real tokens of the phrase encoder's last layer        (b, dim)
    embedding = u / |u|                                                     (b, dim)
    type_logits = u W                                                       (b, 95)   Eq. 1

The character encoder (v, concatenated to u) is not part of this version: `char_dim` is 0 in every checkpoint.

Source: PEARL (Chen et al. 2024), sections 3.2 and 3.3.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from pearl_qdrant.phrase_types import PHRASE_TYPES


class PearlNetwork(nn.Module):
    """Phrase encoder with mean pooling, and the type head on the pooled vector.

    Args:
        phrase_encoder: Any transformer that returns `last_hidden_state`, (b, t, dim).
        type_head: Linear layer (dim -> 95) without a bias, or None for a plain encoder.
        pooling: "mean" over the real tokens, or "cls".
    """

    def __init__(self, phrase_encoder: nn.Module, type_head: nn.Linear | None, *, pooling: str = "mean") -> None:
        super().__init__()
        if pooling not in ("mean", "cls"):
            raise ValueError(f"pooling is mean or cls, not {pooling!r}")
        self.phrase_encoder = phrase_encoder
        self.type_head = type_head
        self.pooling = pooling

    def pool(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The phrase vector u before normalisation.

        Args:
            input_ids: (b, t), int64.
            attention_mask: (b, t), int64; 1 for a real token.

        Returns:
            (b, dim).
        """
        hidden = self.phrase_encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return pool_tokens(hidden, attention_mask, pooling=self.pooling)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """Embedding and type logits of a batch.

        Args:
            input_ids: (b, t), int64.
            attention_mask: (b, t), int64; 1 for a real token.

        Returns:
            The embedding, (b, dim), L2-normalised, and the logits of the phrase types, (b, 95), or None.
        """
        pooled = self.pool(input_ids, attention_mask)
        embedding = nn.functional.normalize(pooled, dim=-1)
        return embedding, None if self.type_head is None else self.type_head(pooled)


def pool_tokens(hidden: Tensor, attention_mask: Tensor, *, pooling: str) -> Tensor:
    """One vector a phrase from those of its tokens.

    Args:
        hidden: (b, t, dim).
        attention_mask: (b, t); 1 for a real token.
        pooling: "mean" or "cls".

    Returns:
        (b, dim).
    """
    if pooling == "cls":
        return hidden[:, 0]
    weights = attention_mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1.0)


def new_type_head(dim: int) -> nn.Linear:
    """A fresh type head: W of Eq. 1, (95, dim), no bias; to be trained before use."""
    return nn.Linear(dim, len(PHRASE_TYPES), bias=False)


def load_phrase_encoder(folder: Path) -> nn.Module:
    """The transformer of a folder, in fp32, from safetensors only and without running any code of the folder."""
    from transformers import AutoModel

    kwargs = {"add_pooling_layer": False} if _is_bert(folder) else {}
    model: nn.Module = AutoModel.from_pretrained(
        folder, use_safetensors=True, trust_remote_code=False, dtype=torch.float32, **kwargs
    )
    return model.eval()


def _is_bert(folder: Path) -> bool:
    """Only BERT-like models know `add_pooling_layer`, which spares an unused matrix."""
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(folder).model_type in ("bert", "roberta", "xlm-roberta", "albert")
