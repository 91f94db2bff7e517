"""The network of ULR training: an encoder with pooling, and the MLM head.

The head takes token vectors to logits over the vocabulary, tied to the input embeddings.

    logits = LayerNorm(act(h W + b)) E^T + c        E: the encoder's input embeddings, (vocabulary, embedding width)

BERT, ALBERT, ELECTRA (its generator), RoBERTa, MPNet and DistilBERT all have this head, under different names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pearl_qdrant.encoder.runtime.torch_runtime import pool_tokens
from pearl_qdrant.errors import ModelError
from training.networks.phrase_vectors import device_of, pad
from training.ulr.request import Pooling


@dataclass(frozen=True, slots=True)
class HeadNames:
    """Where a family of models keeps W and b, the layer norm, and c in the weights of transformers; and the class."""

    dense: str
    norm: str
    bias: str
    model_class: str


_ROBERTA = ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias")

HEAD_NAMES: Mapping[str, HeadNames] = {
    "bert": HeadNames(
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.bias",
        "BertForMaskedLM",
    ),
    "albert": HeadNames("predictions.dense", "predictions.LayerNorm", "predictions.bias", "AlbertForMaskedLM"),
    "electra": HeadNames(
        "generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias", "ElectraForMaskedLM"
    ),
    "roberta": HeadNames(*_ROBERTA, "RobertaForMaskedLM"),
    "xlm-roberta": HeadNames(*_ROBERTA, "XLMRobertaForMaskedLM"),
    "mpnet": HeadNames(*_ROBERTA, "MPNetForMaskedLM"),
    "distilbert": HeadNames("vocab_transform", "vocab_layer_norm", "vocab_projector.bias", "DistilBertForMaskedLM"),
}
"""The families that can be trained, by `model_type` of config.json."""


class MlmHead(nn.Module):
    """The head without its output matrix, which is that of the input embeddings; new weights by a generator."""

    def __init__(self, config: Any, embeddings: Tensor, *, generator: torch.Generator) -> None:
        super().__init__()
        from transformers.activations import ACT2FN

        vocabulary_size, width = embeddings.shape
        self.dense = nn.Linear(int(config.hidden_size), width)
        self.norm = nn.LayerNorm(width, eps=float(getattr(config, "layer_norm_eps", 1e-12)))
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))
        functions: Any = ACT2FN
        self._activation = functions[getattr(config, "hidden_act", None) or getattr(config, "activation", "gelu")]
        nn.init.normal_(self.dense.weight, std=0.02, generator=generator)
        nn.init.zeros_(self.dense.bias)

    def forward(self, hidden: Tensor, embeddings: Tensor) -> Tensor:
        """Return the logits of tokens, (n, vocabulary_size), from their vectors and the encoder's input embeddings."""
        transformed = self.norm(self._activation(self.dense(hidden)))
        return nn.functional.linear(transformed, embeddings, self.bias)


def open_head(encoder: Any, weights: Sequence[Path], *, seed: int) -> tuple[MlmHead, bool]:
    """Make the head of an encoder, with the weights of its checkpoint (safetensors) where it has them. Returns the
    head, and whether its weights are those of the checkpoint; otherwise it is new, by the seed. Raises ModelError if
    the family of the model is not supported.
    """
    names = head_names(encoder.config.model_type)
    generator = torch.Generator().manual_seed(seed)
    head = MlmHead(encoder.config, encoder.get_input_embeddings().weight, generator=generator)
    found = _read(weights, names)
    shapes = {name: tensor.shape for name, tensor in head.state_dict().items()}
    if {name: tensor.shape for name, tensor in found.items()} != shapes:
        return head, False
    head.load_state_dict({name: tensor.float() for name, tensor in found.items()})
    return head, True


def head_names(model_type: str) -> HeadNames:
    """Return the names of a family's head. Raises ModelError if the family is not supported."""
    if model_type not in HEAD_NAMES:
        raise ModelError(
            f"Models of type '{model_type}' cannot be trained with ULR; these can: {', '.join(sorted(HEAD_NAMES))}."
        )
    return HEAD_NAMES[model_type]


def head_tensors(head: MlmHead, names: HeadNames) -> dict[str, Tensor]:
    """Return the head's weights under the names of its family."""
    tensors = {name: tensor.detach().float().cpu().clone() for name, tensor in head.state_dict().items()}
    return {theirs: tensors[ours] for ours, theirs in _pairs(names)}


def _pairs(names: HeadNames) -> list[tuple[str, str]]:
    """Names of the head's tensors here and in the weights of its family."""
    parts = [("dense", names.dense), ("norm", names.norm)]
    return [(f"{ours}.{kind}", f"{theirs}.{kind}") for ours, theirs in parts for kind in ("weight", "bias")] + [
        ("bias", names.bias)
    ]


def _read(weights: Sequence[Path], names: HeadNames) -> dict[str, Tensor]:
    """Return the tensors of a head that are in these files, by their names here."""
    from safetensors import safe_open

    # The first checkpoints of BERT came from TensorFlow, which calls the layer norm's weights gamma and beta. The bias
    # of the output may be under the name of the layer it belongs to.
    ours = {theirs: ours for ours, theirs in _pairs(names)}
    ours |= {f"{names.norm}.gamma": "norm.weight", f"{names.norm}.beta": "norm.bias"}
    found = {}
    for path in weights:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                if name in ours:
                    found[ours[name]] = file.get_tensor(name)
    return found


class UlrNetwork(nn.Module):
    """A model of transformers without a head, its MLM head, and how vectors of tokens become one."""

    def __init__(self, encoder: nn.Module, head: MlmHead, *, pooling: Pooling) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.pooling: Pooling = pooling

    def encode(self, rows: list[list[int]]) -> tuple[Tensor, Tensor]:
        """Return the token vectors of rows of ids, (b, t, dim), and their mask, (b, t)."""
        ids, mask = pad(rows, device_of(self))
        return self.hidden(ids, mask), mask

    def hidden(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the last layer's token vectors, (b, t, dim), float32, of ids and mask, (b, t)."""
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
