"""The network of ULR training: an encoder with pooling, and the MLM head."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pearl_qdrant.encoder.runtime.network import pool_tokens
from training.networks.phrase_vectors import pad_batches
from training.ulr.mlm_head import MlmHead
from training.ulr.request import Pooling


class UlrNetwork(nn.Module):
    """An encoder with its pooling and its MLM head.

    Args:
        encoder: A model of transformers without a head.
        head: Its MLM head.
        pooling: How the vectors of tokens become one vector.
    """

    def __init__(self, encoder: nn.Module, head: MlmHead, *, pooling: Pooling) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.pooling: Pooling = pooling

    def hidden(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the last layer's token vectors, (b, t, dim), float32.

        Args:
            input_ids, attention_mask: (b, t), int64.
        """
        hidden: Tensor = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return hidden.float()

    def pool(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """Return a vector for each row, (b, dim), any norm; special tokens count as when the model is used."""
        if self.pooling == "max":
            return hidden.masked_fill(attention_mask.unsqueeze(-1) == 0, float("-inf")).amax(1)
        return pool_tokens(hidden, attention_mask, pooling=self.pooling)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits of token vectors, (n, dim) to (n, vocabulary), float32."""
        encoder: Any = self.encoder
        logits: Tensor = self.head(hidden, encoder.get_input_embeddings().weight)
        return logits.float()


def pad(rows: list[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Pad rows of token ids to the longest of them: ids and mask, (n, t), int64, in the order of the rows."""
    (batch,) = pad_batches(rows, size=len(rows))
    place = np.argsort(batch.rows, kind="stable")
    ids, mask = batch.input_ids[place], batch.attention_mask[place]
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)
