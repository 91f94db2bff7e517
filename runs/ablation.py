"""Measure what each part of the training contributes, like Table 3 of PEARL, at small scale.

    python runs/ablation.py --base FOLDER --wordnet FOLDER --data FOLDER --characters FOLDER --work FOLDER

Each row fine-tunes the base model from the start, with all else equal, and is measured on fold 1 of the development
suite: 200 steps of 48 pairs, the sources of the
shipped model, averaged half and half with the base model. --characters is the folder that `pearl-qdrant train love
BASE FOLDER --mimic encoder` wrote. Character encoders of other widths are trained here in the same way. Each row
keeps its network in --work and is not repeated. A row takes about five minutes on one core.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import torch
from development_suite import measure, read_suite
from mini_en.data import read_sources

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.runtime.network import PearlNetwork, load_phrase_encoder, new_type_head
from pearl_qdrant.encoder.tokens import open_tokenizer
from pearl_qdrant.settings import DEFAULT_CHARACTER_DIM
from training.augment.draw import augment, edit_character, respell, swap_words
from training.batches import Augment, BatchMaker, ExampleSource, NegativeTable, NeighbourSampler, Shard
from training.examples.example import Example
from training.examples.files import as_phrases, index_by_name
from training.finetune.objective import fit
from training.finetune.request import FitConfig
from training.hard_negatives import mine_hard_negatives
from training.love import pretrain_character_encoder
from training.networks.checkpoints import average_weights, read_character_encoder
from training.networks.phrase_vectors import pool_phrases
from training.options import CharacterWidths, LoveConfig

SHARE = 0.1
LOVE = LoveConfig(epochs=12)
LOVE_WORDS = 6000
N_PAIRS = 48
N_OTHERS = 60_000
"""Names among which hard negatives are mined, besides those that are drawn."""
NEIGHBOURS = 4
CONFIG = FitConfig(
    steps=200,
    learning_rate=5e-5,
    schedule="cosine",
    temperature=0.05,
    type_weight=0.3,
    save_every=100,
    precision="fp32",
)


def words_and_letters(phrase: str, rng: random.Random) -> str:
    """Make variants without respelling the whole phrase."""
    draw = rng.random()
    return edit_character(phrase, rng) if draw < 0.8 else swap_words(phrase, rng)


def whole_phrases(phrase: str, rng: random.Random) -> str:
    """Make variants without editing characters."""
    draw = rng.random()
    return swap_words(phrase, rng) if draw < 0.2 else respell(phrase, rng)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: a part that is removed or added."""

    name: str
    config: FitConfig = CONFIG
    characters: bool = True
    width: int = DEFAULT_CHARACTER_DIM
    neighbours: int = NEIGHBOURS
    mined: bool = False
    augment: Augment = augment
    aliases: bool = True
    ratio: float = 0.5
    trained_as: str = ""


ROWS = (
    Row("full"),
    Row("not averaged", ratio=1.0, trained_as="full"),
    Row("no character encoder", characters=False),
    Row("characters 32 wide, not 64", width=32),
    Row("characters 128 wide", width=128),
    Row("no type loss", config=replace(CONFIG, type_weight=0.0)),
    Row("no hard negatives", neighbours=1),
    Row("mined hard negatives in their place", neighbours=1, mined=True),
    Row("no edited characters", augment=whole_phrases),
    Row("no spellings of phrases", augment=words_and_letters),
    Row("no other names as positives", aliases=False),
    Row("false negatives not masked", config=replace(CONFIG, mask="none")),
)


def _new_network(base: Path, characters: Path | None) -> PearlNetwork:
    torch.manual_seed(0)
    if characters is None:
        return PearlNetwork(load_phrase_encoder(base), new_type_head(384))
    encoder = read_character_encoder(characters, tokenizer_folder=base, share=SHARE)
    return PearlNetwork(load_phrase_encoder(base), new_type_head(384 + encoder.char_dim), character_encoder=encoder)


def _mine(maker: BatchMaker, sources: list[ExampleSource], base: Path) -> NegativeTable:
    """Mine hard negatives for the names that will be drawn, among a sample of the other names."""
    rngs = (random.Random(f"{maker.seed}/0/{step}") for step in range(1, CONFIG.steps + 1))
    drawn = [example for rng in rngs for example in maker.sampler.draw(1, N_PAIRS, Shard(), rng)]
    every = [example for source in sources for example in source.examples]
    pool = [*drawn, *random.Random(0).sample(every, min(N_OTHERS, len(every)))]
    encoder = load_encoder(str(base), device="cpu")
    found = mine_hard_negatives(list(as_phrases(pool)), lambda names: encoder.encode(names).vectors)
    wanted = {example.name for example in drawn}
    rows = [(phrase, negatives) for phrase, negatives in found if phrase in wanted]
    return NegativeTable(rows, known=index_by_name(pool))


def _train_characters(base: Path, given: Path, width: int, work: Path) -> Path:
    """Return the folder of a character encoder of this width; trained if it is not the given one."""
    if width == DEFAULT_CHARACTER_DIM:
        return given
    folder = work / f"characters-{width}"
    if not folder.exists():
        widths = CharacterWidths(char_dim=width, share=SHARE)
        pretrain_character_encoder(base, folder, mimic="encoder", max_words=LOVE_WORDS, widths=widths, config=LOVE)
    return folder


def _remove_others(sources: list[ExampleSource]) -> list[ExampleSource]:
    def alone(example: Example) -> Example:
        return replace(example, others=())

    return [ExampleSource([alone(example) for example in source.examples], source.weight) for source in sources]


@click.command()
@click.option("--base", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--wordnet", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--characters", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--work", type=click.Path(path_type=Path), required=True)
@click.option("--threads", type=int, default=2)
def main(base: Path, wordnet: Path, data: Path, characters: Path, work: Path, threads: int) -> None:
    """Print the table, one line per row."""
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(threads)
    tokenizer = open_tokenizer(base / "tokenizer.json")
    sources = read_sources(data, wordnet, random.Random(0))
    suite = read_suite(data, wordnet, folds=[1])

    def show(name: str, network: PearlNetwork) -> None:
        def encode(names: list[str]) -> Any:
            parts = (names[start : start + 4096] for start in range(0, len(names), 4096))
            with torch.inference_mode():
                vectors = torch.cat([pool_phrases(network.eval(), tokenizer, part, 64, 64) for part in parts])
            return torch.nn.functional.normalize(vectors, dim=-1).numpy()

        figures = measure(encode, suite)[1]
        click.echo(f"{name}: " + ", ".join(f"{task} {figure.value:.1f}" for task, figure in figures.items()))

    show("base", _new_network(base, None))
    for row in ROWS:
        network = _new_network(base, _train_characters(base, characters, row.width, work) if row.characters else None)
        drawn = NeighbourSampler(sources if row.aliases else _remove_others(sources), neighbours=row.neighbours)
        maker = BatchMaker(drawn, n_pairs=N_PAIRS, seed=1, augment=row.augment)
        if row.mined:
            maker = replace(maker, negatives=_mine(maker, sources, base))
        fit(network, tokenizer, maker, row.config, work / (row.trained_as or row.name).replace(" ", "-"))
        average_weights(load_phrase_encoder(base), network.phrase_encoder, ratio=row.ratio)
        show(row.name, network)


if __name__ == "__main__":
    main()
