"""The recipe of the shipped model `pearl-mini-en`: character encoder, six stages, average, type head, export.

    python runs/pearl_mini_en.py --base FOLDER --wordnet FOLDER --data FOLDER --work FOLDER --out FOLDER

--base is a folder of all-MiniLM-L6-v2 (Apache-2.0), --wordnet the `dict` folder of WordNet 3.0, --data a folder with
`kb/general.tsv`, `kb/biomedical/*.tsv`, `alias_pairs/*.tsv` and `typed_names/onto_typed_names.tsv` (TSV with a header:
id, name, aliases; alias, id, canonical; name, onto_type), and `text/enwiki_sample.jsonl.gz` (JSON Lines with a field
`text`). Each step keeps its result in --work and is not repeated. The model card names the sources. The run takes
about four hours on two cores.
"""

from __future__ import annotations

import json
import logging
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import torch
from mini_en_data import (
    FIRST_SHARES,
    Shares,
    head_examples,
    held_out_types,
    plain_phrases,
    proper_names,
    read_sources,
)
from tokenizers import Tokenizer
from torch import Tensor

from pearl_qdrant.encoder.checkpoint import PearlConfig
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.runtime.network import PearlNetwork, load_phrase_encoder, new_type_head
from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.augment import augment, augment_or_abbreviate
from training.data.batches import BatchMaker, ExampleSource, NeighbourSampler
from training.examples.example import Example
from training.examples.splits import DEVELOPMENT_SPLITS, TEST_SPLITS
from training.export.export_checkpoint import export_checkpoint
from training.finetune.config import FitConfig
from training.finetune.encoders import as_teacher
from training.finetune.trainer import fit
from training.head.evaluate_types import TypeScores, score_types
from training.head.fit_head import fit_head
from training.love.options import CharacterWidths, LoveConfig
from training.love.pipeline import pretrain_character_encoder
from training.networks.character_files import read_character_encoder
from training.networks.phrase_vectors import pool_phrases
from training.networks.torch_checkpoint import write_network
from training.networks.weight_average import average_weights

NAME = "pearl-mini-en"
MAX_LENGTH = 64
RATIO = 1.0
TRAINED_SHARE, SHARE = 0.1, 0.05
"""Share of the cosine of two names that comes from their characters: in training, and in the shipped model, where it
may cost half a point of relatedness (`development.py`)."""
CONFIG = FitConfig(steps=1100, learning_rate=5e-5, schedule="cosine", temperature=0.05, save_every=50, precision="fp32")
LATER = replace(CONFIG, type_weight=0.3)
LOVE = LoveConfig(epochs=12)
LOVE_WORDS = 6000


@dataclass(frozen=True, slots=True)
class Stage:
    """A run of fine-tuning that starts from the result of the one before.

    Attributes:
        name: Name of its folder.
        config: How to train.
        shares: Share of each source in a batch.
        neighbours: Alphabetical neighbours drawn together.
        seed: Seed of the draws.
        proper: Weight of proper names that people abbreviate.
        short: Share of the variants that may be short forms (NYTimes, nytimes.com).
        characters: Whether the character encoder is trained too.
        plain: Whether phrases of plain text are distilled from the base model, with the base model as the teacher that
            decides what is not a negative.
    """

    name: str
    config: FitConfig
    shares: Shares
    neighbours: int
    seed: int
    proper: float = 0.0
    short: float = 0.0
    characters: bool = False
    plain: bool = False


STAGES = (
    Stage("names", CONFIG, FIRST_SHARES, 8, 1),
    Stage("short-forms", replace(CONFIG, steps=300, learning_rate=4e-5), FIRST_SHARES, 8, 5, short=1.0),
    Stage("proper-names", replace(CONFIG, steps=450, learning_rate=4e-5), FIRST_SHARES, 8, 6, proper=0.5, short=1.0),
    Stage(
        "aliases",
        replace(LATER, steps=1500, learning_rate=6e-5),
        Shares(0.24, 0.02, 0.30, 0.11, 0.11, 0.03, 0.03),
        4,
        11,
        proper=0.06,
        short=0.5,
    ),
    Stage(
        "characters",
        replace(LATER, steps=1600),
        Shares(0.32, 0.02, 0.25, 0.11, 0.09, 0.03, 0.03),
        4,
        21,
        proper=0.06,
        short=0.5,
        characters=True,
    ),
    Stage(
        "distilled",
        replace(LATER, steps=1800, teacher_floor=0.5),
        Shares(0.34, 0.02, 0.24, 0.12, 0.10, 0.02, 0.02),
        2,
        71,
        proper=0.05,
        short=0.4,
        characters=True,
        plain=True,
    ),
)
N_PAIRS = 128
TRAINED = {
    "steps": sum(stage.config.steps for stage in STAGES),
    "pairs": N_PAIRS,
    "learning_rate": max(stage.config.learning_rate for stage in STAGES),
}
"""How the network was trained, for its checkpoint."""

_log = logging.getLogger(NAME)


@torch.inference_mode()
def phrase_vectors(network: PearlNetwork, tokenizer: Any, names: list[str]) -> Tensor:
    """Vectors before normalisation, (n, dim), in chunks."""
    chunks = [names[start : start + 4096] for start in range(0, len(names), 4096)]
    return torch.cat([pool_phrases(network, tokenizer, chunk, MAX_LENGTH, 64) for chunk in chunks])


def train_head(network: PearlNetwork, tokenizer: Any, examples: list[Example]) -> tuple[Any, tuple[int, ...]]:
    """Fit the head on the averaged encoder; returns it, and the number of examples per label."""
    allowed = torch.zeros(len(examples), len(PHRASE_TYPES), dtype=torch.bool)
    for i, example in enumerate(examples):
        allowed[i, list(example.allowed)] = True
    # Between equal weights for names and equal weights for sets of types; tuned on the development splits.
    kinds = [example.allowed for example in examples]
    sizes = {kind: kinds.count(kind) for kind in set(kinds)}
    weights = torch.tensor([sizes[kind] ** -0.25 for kind in kinds])
    vectors = phrase_vectors(network, tokenizer, [e.name for e in examples])
    generator = torch.Generator().manual_seed(0)
    head = fit_head(vectors, allowed, weights=weights, epochs=60, generator=generator)
    return head, tuple(allowed.sum(0).tolist())


def fit_stages(
    base: Path, characters: Path, tokenizer: Any, data: Path, wordnet: Path, work: Path
) -> tuple[PearlNetwork, list[ExampleSource]]:
    """Train all stages; returns the network before it is averaged, and the sources of the last stage."""
    plain = plain_phrases(data / "text" / "enwiki_sample.jsonl.gz", random.Random(7))
    teacher = as_teacher(load_encoder(str(base), device="cpu"))
    network = PearlNetwork(load_phrase_encoder(base), new_type_head(384))
    sources: list[ExampleSource] = []
    for stage in STAGES:
        if stage.characters and network.character_encoder is None:
            encoder = read_character_encoder(characters, tokenizer_folder=base, share=TRAINED_SHARE)
            head = new_type_head(384 + encoder.char_dim)
            network = PearlNetwork(network.phrase_encoder, head, character_encoder=encoder)
        sources = read_sources(data, wordnet, random.Random(0), stage.shares)
        drawn = [*sources, ExampleSource(proper_names(sources), stage.proper)]
        sampler = NeighbourSampler(drawn, neighbours=stage.neighbours)
        distilled = plain if stage.plain else ()
        maker = BatchMaker(sampler, n_pairs=N_PAIRS, seed=stage.seed, augment=_Augment(stage.short), plain=distilled)
        stage_teacher = teacher if stage.plain else None
        fit(
            network, tokenizer, maker, stage.config, work / stage.name, teacher=stage_teacher, distil_from=stage_teacher
        )
    return network, sources


@dataclass(frozen=True, slots=True)
class _Augment:
    """Makes variants; a share of them may be short forms."""

    short: float

    def __call__(self, phrase: str, rng: random.Random) -> str:
        return augment_or_abbreviate(phrase, rng) if rng.random() < self.short else augment(phrase, rng)


@click.command()
@click.option("--base", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--wordnet", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--work", type=click.Path(path_type=Path), required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--threads", type=int, default=2)
def main(base: Path, wordnet: Path, data: Path, work: Path, out: Path, threads: int) -> None:
    """Make the checkpoint."""
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    widths = CharacterWidths(share=TRAINED_SHARE)
    characters = work / "love"
    pretrain_character_encoder(base, characters, mimic="encoder", max_words=LOVE_WORDS, widths=widths, config=LOVE)
    network, sources = fit_stages(base, characters, tokenizer, data, wordnet, work)
    finish(network, sources, tokenizer, base, data, work, out)


def finish(
    network: PearlNetwork,
    sources: list[ExampleSource],
    tokenizer: Any,
    base: Path,
    data: Path,
    work: Path,
    out: Path,
    *,
    name: str = NAME,
    ratio: float = RATIO,
    share: float = SHARE,
    trained: dict[str, Any] | None = None,
    card: str = "pearl_mini_en_card.md",
) -> None:
    """Average, set the share of the characters, fit the type head, and write the checkpoint.

    Args:
        network: Was trained from `base`, with `tokenizer`.
        sources: What it was trained on; the type head learns from it too.
        data: Has the typed names.
        work, out: Get the weights for torch, and the checkpoint.
        ratio, share: Shares of the trained weights in the average, and of the cosine that comes from characters.
        trained: How it was trained, for the checkpoint; by default `TRAINED`.
        card: The text of its model card, beside this file.
    """
    average_weights(load_phrase_encoder(base), network.phrase_encoder, ratio=ratio)
    characters = network.character_encoder
    assert characters is not None
    characters.config = characters.config.model_copy(update={"share": share})
    network.eval()
    head, label_counts = train_head(network, tokenizer, head_examples(sources, random.Random(2), 12_000))
    network.type_head = head
    scores = _score_held_out(network, tokenizer, data)
    training = {
        "base": "sentence-transformers/all-MiniLM-L6-v2",
        **(TRAINED if trained is None else trained),
        "temperature": CONFIG.temperature,
        "average_ratio": ratio,
        "type_accuracy": round(scores.accuracy, 4),
        "type_macro_f1": round(scores.macro_f1, 4),
    }
    config = PearlConfig(
        name=name,
        dim=384 + characters.char_dim,
        phrase_dim=384,
        char_dim=characters.char_dim,
        character=characters.config,
        label_counts=label_counts,
        max_length=MAX_LENGTH,
        precision="fp32",
        training=training,
    )
    text = Path(__file__).with_name(card).read_text("utf-8").format(**training)
    write_network(work / "torch", network, config, transformer=base)
    click.echo(export_checkpoint(work / "torch", out))
    (out / "README.md").write_text(text, encoding="utf-8")
    click.echo(json.dumps(training))


def _score_held_out(network: PearlNetwork, tokenizer: Any, data: Path) -> TypeScores:
    """The type head on held-out names: development is logged, test is returned."""
    assert network.type_head is not None
    for split, numbers in (("development", DEVELOPMENT_SPLITS), ("test", TEST_SPLITS)):
        named = held_out_types(data, numbers)
        with torch.inference_mode():
            logits = network.type_head(phrase_vectors(network, tokenizer, [name for name, _ in named]))
        scores = score_types(logits, [kinds for _, kinds in named])
        _log.info("types on %s: %s", split, scores)
    return scores


if __name__ == "__main__":
    main()
