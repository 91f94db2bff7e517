"""Networks in checkpoint folders, for the stages of training: each reads one and writes one, weights for torch."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from pearl_qdrant.encoder.checkpoint import TORCH_FILE, PearlConfig, VerifiedCheckpoint, open_checkpoint
from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.encoder.runtime.network import PearlNetwork
from pearl_qdrant.encoder.runtime.torch_runtime import load_network
from pearl_qdrant.encoder.write_checkpoint import write_checkpoint
from pearl_qdrant.errors import CheckpointError
from training.networks.model_card import model_card


def read_network(folder: Path) -> tuple[PearlNetwork, PearlConfig]:
    """The network of a checkpoint folder, in float32 on the CPU, and its pearl.json.

    Raises:
        CheckpointError: If the folder is no checkpoint, is broken, or has no weights for torch.
    """
    checkpoint = open_checkpoint(folder)
    if checkpoint.torch_path is None:
        raise CheckpointError(
            str(folder),
            f"has no {TORCH_FILE}. Rebuild it from the graph with: pearl-qdrant models export {folder} DIR --torch",
        )
    config = checkpoint.config
    network = load_network(
        folder,
        pooling=config.pooling,
        head_path=checkpoint.head_path,
        character=config.character,
        char_dim=config.char_dim,
    )
    return network, config


def write_network(
    folder: Path,
    network: PearlNetwork,
    config: PearlConfig,
    *,
    transformer: Path,
    onnx_path: Path | None = None,
    weights_hash: str | None = None,
    card: str | None = None,
) -> VerifiedCheckpoint:
    """Write a network as a checkpoint folder with its weights for torch.

    Args:
        folder: Made if it does not exist.
        network: With a type head.
        config: pearl.json; its widths and `character` are taken from the network.
        transformer: Folder with the phrase encoder's config.json and tokenizer files.
        onnx_path: Its graph, or None.
        weights_hash: As for `seal`.
        card: README.md; by default one is made from the config.

    Raises:
        ValueError: If the network has no type head.
        CheckpointError: If the parts do not fit each other.
    """
    if network.type_head is None:
        raise ValueError("only a network with a type head is written: train one first")
    config = with_widths(config, network)
    with tempfile.TemporaryDirectory() as scratch:
        weights = Path(scratch) / TORCH_FILE
        save_file(phrase_tensors(network.phrase_encoder), weights, metadata={"format": "pt"})
        return write_checkpoint(
            folder,
            config,
            transformer=transformer,
            type_head=network.type_head.weight.detach().float().cpu().numpy(),
            character=character_arrays(network),
            onnx_path=onnx_path,
            torch_path=weights,
            model_card=model_card(config) if card is None else card,
            weights_hash=weights_hash,
        )


def with_widths(config: PearlConfig, network: PearlNetwork) -> PearlConfig:
    """The config with the widths, pooling and character encoder of a network."""
    encoder: Any = network.phrase_encoder
    phrase_dim, character = int(encoder.config.hidden_size), network.character_encoder
    char_dim = character.char_dim if character is not None else 0
    return config.model_copy(
        update={
            "dim": phrase_dim + char_dim,
            "phrase_dim": phrase_dim,
            "char_dim": char_dim,
            "character": character.config if character is not None else None,
            "pooling": network.pooling,
        }
    )


def phrase_tensors(encoder: nn.Module) -> dict[str, torch.Tensor]:
    """The phrase encoder's weights, each with memory of its own, as safetensors wants them."""
    return {name: tensor.detach().float().cpu().clone().contiguous() for name, tensor in encoder.state_dict().items()}


def character_arrays(network: PearlNetwork) -> dict[str, FloatArray]:
    """The character encoder's weights; none if there is none."""
    if network.character_encoder is None:
        return {}
    state = network.character_encoder.state_dict()
    return {name: tensor.detach().float().cpu().numpy() for name, tensor in state.items()}
