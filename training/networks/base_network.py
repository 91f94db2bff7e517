"""Load the network that a training run starts from, with or without a character encoder and a type head."""

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
        config: pearl.json of the new model, except for what training changes.
        folder: Has config.json and the tokenizer files of its phrase encoder.
        tokenizer: A `tokenizers.Tokenizer` without padding and truncation.
        has_trained_head: Whether the head is that of the model; otherwise it has random weights.
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
    """Load the network that a run starts from.

    Args:
        model: A folder or a hub id, of a plain encoder or of a PEARL checkpoint with weights for torch.
        name: Name of the new model.
        character: Folder of a pre-trained character encoder; a checkpoint may have its own.
        pooling: "mean" or "cls", instead of the setting of a plain encoder.
        prefix: Text before each name, instead of the setting of the model.
        seed: Seed of a new head.

    Raises:
        ModelNotFoundError: If there is no such model.
        CheckpointError: If it has no weights for torch, or is broken.
        ModelError: If it cannot be trained.
    """
    folder = find_model(model).folder
    if is_checkpoint(folder):
        network, config = read_network(folder)
        if pooling not in (None, config.pooling):
            raise CheckpointError(str(folder), f"was trained with {config.pooling} pooling. Leave out 'pooling'")
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


def find_device(requested: str) -> torch.device:
    """Return the device to train on.

    Args:
        requested: "cpu", "cuda", "cuda:N", or "auto": a GPU if there is one.

    Raises:
        DeviceError: If there is no such device.
    """
    from pearl_qdrant.encoder.runtime.devices import check_device
    from pearl_qdrant.encoder.runtime.torch_runtime import resolve_cuda

    try:
        check_device(requested)
    except ValueError as error:
        raise DeviceError(requested, str(error)) from error
    if requested == "cpu" or (requested == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    return torch.device(resolve_cuda("cuda" if requested == "auto" else requested))
