r"""The recipe of `pearl-mini-en`, the English teacher of the shipped model, in one stage of large batches, on a GPU.

    pearl-qdrant train love BASE LOVE --mimic encoder
    python runs/pearl_mini_en.py prepare --data FOLDER --wordnet FOLDER --out sources.xz
    python runs/pearl_mini_en.py train --base BASE --characters LOVE --sources sources.xz --out RUN
    python runs/pearl_mini_en.py finish --base BASE --characters LOVE --trained RUN/trained.safetensors --out OUT

BASE is a folder of all-MiniLM-L6-v2 (Apache-2.0), --wordnet the `dict` folder of WordNet 3.0, --data a folder with
`kb/general.tsv`, `kb/biomedical/*.tsv`, `context/`, `alias_pairs/*.tsv` and `typed_names/onto_typed_names.tsv` (TSV
with a header: id, name, aliases; alias, id, canonical; name, onto_type), and `text/enwiki_sample.jsonl.gz` (JSON Lines
with a field `text`).

A step has 1,024 pairs: NT-Xent with GIST's teacher, the type loss, distillation of plain phrases (some of them
misspelt), and the character encoder. SIGTERM stops the run; the same command resumes it. The trained tensors are
written as float16 to `trained.safetensors`; word embeddings are frozen. `mini_en/sources.py` has the sources,
docs/experiments/large-batches.md the figures. In the finished model the share of the characters grows with the tokens
that continue a word (docs/experiments/growing-share.md).
"""

from __future__ import annotations

import json
import logging
import lzma
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import torch
from mini_en.sources import all_plain, first_sources, further_sources
from safetensors.torch import load_file, save_file

from pearl_qdrant.encoder.runtime.network import PearlNetwork, load_phrase_encoder, new_type_head
from pearl_qdrant.encoder.tokens import open_tokenizer
from training.augment.draw import augment, augment_or_abbreviate
from training.batches import BatchMaker, ExampleSource, NeighbourSampler
from training.examples.example import Example
from training.export.export_checkpoint import export_checkpoint
from training.finetune.objective import NetworkTeacher, fit
from training.finetune.request import FitConfig, default_micro_batch
from training.networks.checkpoints import (
    average_weights,
    open_base_model,
    read_character_encoder,
    write_network,
)

NAME = "pearl-mini-en"
TRAINED_SHARE = 0.1
"""Share of the cosine of two names that comes from their characters, in training."""
GROWING_SHARE = (0.03, 0.25)
"""The same in the finished model, in names of whole words and in names all of whose tokens continue a word; chosen on
fold 1 of the development suite."""
PAIRS, RATE, TEMPERATURE = 1024, 1e-4, 0.05
"""Pairs a step, peak learning rate, and temperature of NT-Xent."""
NEIGHBOURS = 2
"""Alphabetical neighbours drawn together."""


@dataclass(frozen=True, slots=True)
class Augment:
    """Makes variants; a share of them may be short forms."""

    short: float = 0.4

    def __call__(self, phrase: str, rng: random.Random) -> str:
        return augment_or_abbreviate(phrase, rng) if rng.random() < self.short else augment(phrase, rng)


def load_sources(path: Path) -> tuple[list[ExampleSource], list[str]]:
    """Read the sources, and the phrases to distil."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        stored = json.load(file)
    found = []
    for weight, rows in zip(stored["weights"], stored["examples"], strict=True):
        examples = [Example(name, tuple(others), entity, tuple(allowed)) for name, others, entity, allowed in rows]
        found.append(ExampleSource(examples, weight))
    return found, stored["plain"]


def config_of(*, steps: int, workers: int, device: str) -> FitConfig:
    """Return the settings of the run."""
    return FitConfig(
        steps=steps,
        learning_rate=RATE,
        schedule="cosine",
        temperature=TEMPERATURE,
        type_weight=0.3,
        teacher_floor=0.5,
        distil_weight=3.0,
        head_rate=10.0,
        character_rate=5.0,
        micro_batch=default_micro_batch(device, cached=False),
        precision="auto",
        workers=workers,
        save_every=steps,
        save_seconds=1e9,
    )


def new_network(base: Path, characters: Path, *, share: float, continuation_share: float | None = None) -> PearlNetwork:
    """Return the network before training, with a share of the cosine for the characters."""
    phrase_encoder = load_phrase_encoder(base)
    encoder = read_character_encoder(characters, tokenizer_folder=base, share=share)
    encoder.config = encoder.config.model_copy(update={"continuation_share": continuation_share})
    return PearlNetwork(phrase_encoder, new_type_head(384 + encoder.char_dim), character_encoder=encoder)


def write_trained(network: PearlNetwork, path: Path) -> None:
    """Write all tensors but the word embeddings, as float16."""
    tensors = {
        name: tensor.detach().to("cpu", torch.float16).contiguous()
        for name, tensor in network.state_dict().items()
        if "word_embeddings" not in name and tensor.is_floating_point()
    }
    save_file(tensors, path)


def load_trained(network: PearlNetwork, path: Path) -> None:
    """Load what `write_trained` wrote."""
    tensors = {key: tensor.float() for key, tensor in load_file(path).items()}
    network.load_state_dict({**network.state_dict(), **tensors})


F = TypeVar("F", bound=Callable[..., Any])


def path_option(flag: str, *, is_made: bool = False) -> Callable[[F], F]:
    """A required path: of an input, or of what is made."""
    return click.option(flag, type=click.Path(path_type=Path, exists=not is_made), required=True)


@click.group()
def main() -> None:
    """Prepare, train, or finish."""


@main.command()
@path_option("--data")
@path_option("--wordnet")
@path_option("--out", is_made=True)
def prepare(data: Path, wordnet: Path, out: Path) -> None:
    """Write the sources to one file, some 9 MB, which can travel to the machine with the GPU."""
    first = first_sources(data, wordnet)
    sources = [*first, *further_sources(data, first)]
    stored = {
        "weights": [source.weight for source in sources],
        "examples": [[(e.name, e.others, e.entity, tuple(e.allowed)) for e in source.examples] for source in sources],
        "plain": all_plain(data, sources, random.Random(7)),
    }
    with lzma.open(out, "wt", encoding="utf-8") as file:
        json.dump(stored, file, ensure_ascii=False)


@main.command()
@path_option("--base")
@path_option("--characters")
@path_option("--sources")
@path_option("--out", is_made=True)
@click.option("--initial", type=click.Path(path_type=Path, exists=True), help="Trained tensors to go on from.")
@click.option("--device", default="cuda")
@click.option("--steps", type=int, default=20_000)
@click.option("--pairs", type=int, default=PAIRS)
@click.option("--workers", type=int, default=6)
@click.option("--seed", type=int, default=71)
def train(
    base: Path,
    characters: Path,
    sources: Path,
    out: Path,
    initial: Path | None,
    device: str,
    steps: int,
    pairs: int,
    workers: int,
    seed: int,
) -> None:
    """Train, or resume."""
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    tokenizer = open_tokenizer(base / "tokenizer.json")
    examples, plain = load_sources(sources)
    network = new_network(base, characters, share=TRAINED_SHARE)
    if initial is not None:
        load_trained(network, initial)
    network.to(device)
    teacher = NetworkTeacher(PearlNetwork(load_phrase_encoder(base), None), tokenizer, device=device)
    maker = BatchMaker(
        NeighbourSampler(examples, neighbours=NEIGHBOURS),
        n_pairs=pairs,
        seed=seed,
        augment=Augment(),
        augmented_aliases=0.25,
        plain=plain,
        n_plain=pairs // 2,
        misspelt_plain=0.25,
    )
    config = config_of(steps=steps, workers=workers, device=device)
    fit(network, tokenizer, maker, config, out, teacher=teacher, distil_from=teacher)
    write_trained(network, out / "trained.safetensors")


@main.command()
@path_option("--base")
@path_option("--characters")
@path_option("--trained")
@path_option("--out", is_made=True)
@click.option("--ratio", type=float, default=0.7, help="Share of the trained weights in the average.")
@click.option("--steps", type=int, default=20_000, help="How many steps were taken, for the record.")
def finish(base: Path, characters: Path, trained: Path, out: Path, ratio: float, steps: int) -> None:
    """Average the trained tensors with the base, and write the checkpoint; its type head has learnt nothing."""
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    network = new_network(base, characters, share=GROWING_SHARE[0], continuation_share=GROWING_SHARE[1])
    load_trained(network, trained)
    average_weights(load_phrase_encoder(base), network.phrase_encoder, ratio=ratio)
    opened = open_base_model(str(base), name=NAME)
    how = {
        "base": "sentence-transformers/all-MiniLM-L6-v2",
        "steps": steps,
        "pairs": PAIRS,
        "learning_rate": RATE,
        "temperature": TEMPERATURE,
        "average_ratio": ratio,
    }
    with tempfile.TemporaryDirectory() as work:
        config = opened.config.model_copy(update={"training": how})
        write_network(Path(work) / "torch", network.eval(), config, transformer=opened.folder)
        click.echo(export_checkpoint(Path(work) / "torch", out))


if __name__ == "__main__":
    main()
