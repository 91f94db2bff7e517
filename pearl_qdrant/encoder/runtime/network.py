"""The PEARL network in torch: phrase encoder, character encoder and type head in one forward pass.

    u = mean over the real tokens of the phrase encoder's last layer            (b, phrase_dim)
    v = the character encoder's vector                                          (b, char_dim)
    f = (u, r |u| v / |v|),     r = sqrt(s / (1 - s))                           (b, dim)
    embedding = f / |f|         type_logits = f W                               (b, dim), (b, 95)   Eq. 1

So the cosine of two embeddings is (1 - s) cos(u, u') + s cos(v, v') for all lengths of u and v. The weight s of the
characters is `CharacterConfig.share`, stored in pearl.json. The paper concatenates u and v unchanged, so that their
lengths decide. `pool` returns f; without a character encoder (char_dim 0) f is u.

Source: PEARL (Chen et al. 2024), sections 3.2 and 3.3.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pearl_qdrant.encoder.character.network import CharacterEncoder
from pearl_qdrant.phrase_types import PHRASE_TYPES


class PearlNetwork(nn.Module):
    """Phrase encoder with pooling, optional character encoder, and the type head on both.

    Args:
        phrase_encoder: Any transformer that returns `last_hidden_state`, (b, t, phrase_dim).
        type_head: Linear layer (dim -> 95) without bias, or None for a plain encoder.
        pooling: "mean" over the real tokens, or "cls".
        character_encoder: Maps token ids to v, (b, char_dim); None for PEARL without characters.
    """

    def __init__(
        self,
        phrase_encoder: nn.Module,
        type_head: nn.Linear | None,
        *,
        pooling: str = "mean",
        character_encoder: CharacterEncoder | None = None,
    ) -> None:
        super().__init__()
        if pooling not in ("mean", "cls"):
            raise ValueError(f"pooling is mean or cls, not {pooling!r}")
        self.phrase_encoder = phrase_encoder
        self.type_head = type_head
        self.pooling = pooling
        self.character_encoder = character_encoder

    def pool(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The vector f of each phrase before normalisation, (b, dim), float32; the input of the type head.

        Ids and mask, 1 for a real token, are (b, t), int64.
        """
        hidden = self.phrase_encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        phrase = pool_tokens(hidden.float(), attention_mask, pooling=self.pooling)
        if self.character_encoder is None:
            return phrase
        character = self.character_encoder(input_ids, attention_mask).float()
        return join_parts(phrase, character, share=self.character_encoder.config.share)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """The embedding, (b, dim), L2-normalised, and the logits of the phrase types, (b, 95), or None."""
        pooled = self.pool(input_ids, attention_mask)
        embedding = nn.functional.normalize(pooled, dim=-1)
        return embedding, None if self.type_head is None else self.type_head(pooled)


def join_parts(phrase: Tensor, character: Tensor, *, share: float | Tensor) -> Tensor:
    """The vector f, (b, phrase_dim + char_dim): u, (b, phrase_dim), and v, (b, char_dim), of any lengths, concatenated.

    v, unless it is zero, has the given share of the squared length, in (0, 1); one, or one a phrase, (b, 1).
    """
    ratio = (share / (1 - share)) ** 0.5
    # Not detached: the embedding does not depend on the length of u, and its gradient must not either.
    length = phrase.norm(dim=-1, keepdim=True)
    return torch.cat([phrase, nn.functional.normalize(character, dim=-1) * (ratio * length)], dim=-1)


def pool_tokens(hidden: Tensor, attention_mask: Tensor, *, pooling: str) -> Tensor:
    """One vector per phrase, (b, dim), from those of its tokens, (b, t, dim), and their mask; "mean" or "cls"."""
    if pooling == "cls":
        return hidden[:, 0]
    weights = attention_mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1.0)


def new_type_head(dim: int) -> nn.Linear:
    """An untrained type head: W of Eq. 1, (95, dim), without bias."""
    return nn.Linear(dim, len(PHRASE_TYPES), bias=False)
