"""The end of the shipped model's recipe: type head and checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from mini_en.text_head import fit_text_head
from pearl_qdrant.encoder.checkpoint import PearlConfig
from pearl_qdrant.encoder.runtime.network import PearlNetwork
from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.batches import ExampleSource
from training.export.export_checkpoint import export_checkpoint
from training.networks.checkpoints import write_network

NAME = "pearl-mini-en"
MAX_LENGTH = 64


def write_model(
    network: PearlNetwork,
    sources: list[ExampleSource],
    base: Path,
    data: Path,
    work: Path,
    out: Path,
    *,
    trained: dict[str, Any],
) -> None:
    """Fit the type head of a finished encoder, and write the checkpoint.

    Args:
        network: Was trained from `base`, and has a character encoder.
        sources: What it was trained on; the type head learns from it too.
        data: Has the typed names; see `text_head`.
        work, out: Get the weights for torch, and the checkpoint.
        trained: How it was trained, for the checkpoint.
    """
    network.eval()
    characters = network.character_encoder
    assert characters is not None
    config = PearlConfig(
        name=NAME,
        dim=384 + characters.char_dim,
        phrase_dim=384,
        char_dim=characters.char_dim,
        character=characters.config,
        label_counts=(0,) * len(PHRASE_TYPES),  # the head is fitted to the exported graph
        max_length=MAX_LENGTH,
        precision="fp32",
        training=trained,
    )
    write_network(work / "torch", network, config, transformer=base)
    click.echo(export_checkpoint(work / "torch", out))
    write_head(out, out, sources, data)


def write_head(model: Path, out: Path, sources: list[ExampleSource], data: Path) -> None:
    """Fit the type head of an exported model on names and on mentions in text, and write it with its model card."""
    training = fit_text_head(model, out, sources, data)
    percent = {name: f"{100 * value:.1f}" for name, value in training.items() if name.startswith("type_")}
    text = (Path(__file__).parents[1] / "pearl_mini_en_card.md").read_text("utf-8").format(**{**training, **percent})
    (out / "README.md").write_text(text, encoding="utf-8")
    click.echo(json.dumps(training))
