"""Read and write networks as checkpoint folders with weights for torch, between the stages of training."""

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
    """Read the network of a checkpoint folder, in float32 on the CPU, and its pearl.json.

    Raises:
        CheckpointError: If the folder is not a checkpoint, is broken, or has no weights for torch.
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
        folder: Created if absent.
        network: Has a type head.
        config: pearl.json; its widths and `character` are taken from the network.
        transformer: Folder with the phrase encoder's config.json and tokenizer files.
        onnx_path: Its graph, or None.
        weights_hash: As for `seal`.
        card: README.md; by default made from the config.

    Raises:
        ValueError: If the network has no type head.
        CheckpointError: If the parts do not match.
    """
    if network.type_head is None:
        raise ValueError("the network has no type head. Fit one first: a checkpoint needs it")
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
    """Return the config with the widths, pooling and character encoder of a network."""
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
    """Return the phrase encoder's weights without shared memory, as safetensors requires."""
    return {name: tensor.detach().float().cpu().clone().contiguous() for name, tensor in encoder.state_dict().items()}


def character_arrays(network: PearlNetwork) -> dict[str, FloatArray]:
    """Return the character encoder's weights; empty if there is no character encoder."""
    if network.character_encoder is None:
        return {}
    state = network.character_encoder.state_dict()
    return {name: tensor.detach().float().cpu().numpy() for name, tensor in state.items()}
