"""The end of the shipped model's recipe: type head and checkpoint."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor

from mini_en.data import head_examples
from mini_en.text_head import fit_text_head
from pearl_qdrant.encoder.checkpoint import PearlConfig
from pearl_qdrant.encoder.runtime.network import PearlNetwork
from training.data.batches import ExampleSource
from training.examples.example import Example
from training.export.export_checkpoint import export_checkpoint
from training.head import fit_head, label_matrix
from training.networks.checkpoints import write_network
from training.networks.phrase_vectors import pool_phrases

NAME = "pearl-mini-en"
MAX_LENGTH = 64


@torch.inference_mode()
def phrase_vectors(network: PearlNetwork, tokenizer: Any, names: list[str]) -> Tensor:
    """Vectors before normalisation, (n, dim), in chunks."""
    chunks = [names[start : start + 4096] for start in range(0, len(names), 4096)]
    return torch.cat([pool_phrases(network, tokenizer, chunk, MAX_LENGTH, 64) for chunk in chunks])


def train_head(network: PearlNetwork, tokenizer: Any, examples: list[Example]) -> tuple[Any, tuple[int, ...]]:
    """Fit a first head on the averaged encoder; returns it, and the number of examples per label."""
    allowed = label_matrix(examples)
    # Between equal weights for names and equal weights for sets of types; tuned on the development splits.
    kinds = [example.allowed for example in examples]
    sizes = {kind: kinds.count(kind) for kind in set(kinds)}
    weights = torch.tensor([sizes[kind] ** -0.25 for kind in kinds])
    vectors = phrase_vectors(network, tokenizer, [e.name for e in examples])
    generator = torch.Generator().manual_seed(0)
    head = fit_head(vectors, allowed, weights=weights, epochs=60, generator=generator)
    return head, tuple(allowed.sum(0).tolist())


def write_model(
    network: PearlNetwork,
    sources: list[ExampleSource],
    tokenizer: Any,
    base: Path,
    data: Path,
    work: Path,
    out: Path,
    *,
    trained: dict[str, Any],
) -> None:
    """Fit the type head of a finished encoder, and write the checkpoint.

    Args:
        network: Was trained from `base`, with `tokenizer`, and has a character encoder.
        sources: What it was trained on; the type head learns from it too.
        data: Has the typed names; see `text_head`.
        work, out: Get the weights for torch, and the checkpoint.
        trained: How it was trained, for the checkpoint.
    """
    network.eval()
    head, label_counts = train_head(network, tokenizer, head_examples(sources, random.Random(2), 12_000))
    network.type_head = head
    characters = network.character_encoder
    assert characters is not None
    config = PearlConfig(
        name=NAME,
        dim=384 + characters.char_dim,
        phrase_dim=384,
        char_dim=characters.char_dim,
        character=characters.config,
        label_counts=label_counts,
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
