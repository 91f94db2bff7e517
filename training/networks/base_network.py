"""The network that a training run starts from: an encoder by name, with or without a character encoder and a head."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pearl_qdrant.encoder.checkpoint import PearlConfig, is_checkpoint
from pearl_qdrant.encoder.find_model import find_model
from pearl_qdrant.encoder.plain_model import read_plain_model
from pearl_qdrant.encoder.runtime.network import PearlNetwork, new_type_head
from pearl_qdrant.encoder.runtime.torch_runtime import network_width
from pearl_qdrant.encoder.runtime.transformer import load_transformer
from pearl_qdrant.encoder.tokens import open_tokenizer
from pearl_qdrant.errors import CheckpointError, DeviceError
from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.networks.character_files import read_character_encoder
from training.networks.torch_checkpoint import read_network

MAX_LENGTH = 64
"""Tokens that a checkpoint made here reads; names are short."""


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A network to train.

    Attributes:
        network: In float32 on the CPU, with a type head.
        config: What its pearl.json will say, but for what training changes.
        folder: config.json and tokenizer files of its phrase encoder.
        tokenizer: A `tokenizers.Tokenizer` without padding and truncation.
        has_trained_head: Whether the head is the base's own; a fresh one knows nothing.
    """

    network: PearlNetwork
    config: PearlConfig
    folder: Path
    tokenizer: Any
    has_trained_head: bool


def open_base_model(
    model: str,
    *,
    name: str,
    character: Path | None = None,
    pooling: str | None = None,
    prefix: str | None = None,
    seed: int = 0,
) -> BaseModel:
    """Load what a run starts from.

    Args:
        model: A folder or a hub id, of a plain encoder or of a PEARL checkpoint with weights for torch.
        name: Of the model that will be made.
        character: A character encoder that `train love` made; a checkpoint brings its own.
        pooling: "mean" or "cls", in place of what a plain encoder's folder says.
        prefix: Text before each name, likewise.
        seed: Of a fresh head.

    Raises:
        ModelNotFoundError: If there is no such model.
        CheckpointError: If it has no weights for torch, or is broken.
        ModelError: If it cannot be trained.
    """
    folder = find_model(model).folder
    if is_checkpoint(folder):
        network, config = read_network(folder)
        if pooling not in (None, config.pooling):
            raise CheckpointError(str(folder), f"was trained with {config.pooling} pooling. Leave --pooling out")
        config = config.model_copy(update={"name": name, "weights_hash": ""})
        if prefix is not None:
            config = config.model_copy(update={"prefix": prefix})
    else:
        plain = read_plain_model(folder, pooling=pooling, prefix=prefix)
        folder = plain.folder
        network = PearlNetwork(load_transformer(folder), None, pooling=plain.pooling)
        width = network_width(network)
        config = PearlConfig(
            name=name,
            dim=width,
            phrase_dim=width,
            label_counts=(0,) * len(PHRASE_TYPES),
            pooling=plain.pooling,
            prefix=plain.prefix,
            max_length=min(MAX_LENGTH, plain.max_length),
        )
    if character is not None:
        network.character_encoder = read_character_encoder(character, tokenizer_folder=folder)
        network.type_head = None
    has_trained_head = network.type_head is not None
    if network.type_head is None:
        network.type_head = new_type_head(network_width(network))
        torch.nn.init.normal_(network.type_head.weight, std=0.02, generator=torch.Generator().manual_seed(seed))
    return BaseModel(network, config, folder, open_tokenizer(folder / "tokenizer.json"), has_trained_head)


def find_device(wish: str) -> torch.device:
    """The device to train on.

    Args:
        wish: "cpu", "cuda", "cuda:N", or "auto": a GPU if there is one.

    Raises:
        DeviceError: If there is no such device.
    """
    from pearl_qdrant.encoder.runtime.devices import check_device
    from pearl_qdrant.encoder.runtime.torch_runtime import resolve_cuda

    try:
        check_device(wish)
    except ValueError as error:
        raise DeviceError(wish, str(error)) from error
    if wish == "cpu" or (wish == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    return torch.device(resolve_cuda("cuda" if wish == "auto" else wish))
