"""The recipe of `pearl-mini-en`, the model that ships: character encoder, six stages, average, type head, export.

    python runs/pearl_mini_en.py --base FOLDER --wordnet FOLDER --data FOLDER --work FOLDER --out FOLDER

--base is a folder of all-MiniLM-L6-v2 (Apache-2.0), --wordnet the `dict` folder of WordNet 3.0, --data a folder with
`kb/general.tsv`, `kb/biomedical/*.tsv`, `alias_pairs/*.tsv` and `typed_names/onto_typed_names.tsv` (TSV with a header:
id, name, aliases; alias, id, canonical; name, onto_type), and `text/enwiki_sample.jsonl.gz` (JSON Lines with a field
`text`). Each step keeps its result in --work and is not repeated. The model card names the sources. About four hours on
two cores.
"""

from __future__ import annotations

import gzip
import json
import logging
import random
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import torch
from tokenizers import Tokenizer
from torch import Tensor

from pearl_qdrant.encoder.checkpoint import PearlConfig
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.runtime.network import PearlNetwork, load_phrase_encoder, new_type_head
from pearl_qdrant.phrase_types import LEXICAL_CLASSES, PHRASE_TYPES
from training.augment import abbreviate, augment, augment_or_abbreviate
from training.data.batches import BatchMaker, NeighbourSampler, Source
from training.examples.sources import (
    Example,
    base_examples,
    held_out_aliases,
    number_examples,
    prepositional_examples,
    read_tsv,
    typed_examples,
    without_strings,
    wordnet_examples,
)
from training.examples.splits import DEVELOPMENT_FOLDS, TEST_FOLDS, TRAIN_FOLDS, fold, name_key
from training.export.export_checkpoint import export_checkpoint
from training.finetune.run import as_teacher
from training.finetune.trainer import FitConfig, fit, pool_phrases
from training.head.evaluate_types import TypeScores, score_types
from training.head.fit_head import fit_head
from training.love.pretrain import LoveConfig
from training.love.run import CharacterWidths, pretrain_character_encoder
from training.networks.character_files import read_character_encoder
from training.networks.torch_checkpoint import write_network
from training.networks.weight_average import average_weights

NAME = "pearl-mini-en"
MAX_LENGTH = 64
RATIO = 1.0
TRAINED_SHARE, SHARE = 0.1, 0.05
"""Of the cosine of two names, what comes from their characters: in training, and in the model that ships, where they
may cost half a point of relatedness (`development.py`)."""
CONFIG = FitConfig(steps=1100, learning_rate=5e-5, schedule="cosine", temperature=0.05, save_every=50, precision="fp32")
LATER = replace(CONFIG, type_weight=0.3)
LOVE = LoveConfig(epochs=12)
LOVE_WORDS = 6000
N_PLAIN = 160_000


@dataclass(frozen=True, slots=True)
class Shares:
    """What each batch is made of; the rest are typed names and proper names."""

    synonyms: float
    words: float
    biomedical: float
    wikidata: float
    others: float
    numbers: float
    prepositional: float


@dataclass(frozen=True, slots=True)
class Stage:
    """A run of fine-tuning that goes on from the one before.

    Attributes:
        name: Of its folder.
        config: How to train.
        shares: What batches are made of.
        run: Alphabetical neighbours drawn together.
        seed: Of the draws.
        proper: Weight of proper names that people abbreviate.
        short: Share of the variants among which there are short forms (NYTimes, nytimes.com).
        characters: With the character encoder.
        plain: With phrases of plain text that are distilled from the base, and the base as the teacher of what is no
            negative.
    """

    name: str
    config: FitConfig
    shares: Shares
    run: int
    seed: int
    proper: float = 0.0
    short: float = 0.0
    characters: bool = False
    plain: bool = False


FIRST = Shares(0.28, 0.04, 0.24, 0.08, 0.08, 0.05, 0.05)
STAGES = (
    Stage("names", CONFIG, FIRST, 8, 1),
    Stage("short-forms", replace(CONFIG, steps=300, learning_rate=4e-5), FIRST, 8, 5, short=1.0),
    Stage("proper-names", replace(CONFIG, steps=450, learning_rate=4e-5), FIRST, 8, 6, proper=0.5, short=1.0),
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
PROPER = ("ORG", "WORK_OF_ART", "FAC", "EVENT", "LAW")
N_PAIRS = 128
RARE = 30
"""Types with fewer names than this are not drawn by themselves."""

_log = logging.getLogger(NAME)


def sources(data: Path, wordnet: Path, rng: random.Random, shares: Shares = FIRST) -> list[Source]:
    """The training material, with its share of each batch."""
    bases = sorted((data / "kb" / "biomedical").glob("*.tsv"))
    general = data / "kb" / "general.tsv"
    held_out: set[str] = set()
    for path in (*sorted((data / "alias_pairs").glob("*.tsv")), general, *bases):
        held_out |= held_out_aliases(path)

    synsets = wordnet_examples(wordnet)
    biomedical = [e for path in bases for e in base_examples(path, kb=path.stem, entity_types=("OTHER",))]
    named = base_examples(general, kb="general")
    wikidata = [e for e in named if e.entity.startswith("general:Q")]
    others = [e for e in named if not e.entity.startswith("general:Q")]
    typed = typed_examples(data / "typed_names" / "onto_typed_names.tsv")
    numbers = number_examples(4000, rng)
    nouns = [e for e in synsets if e.entity.startswith("noun") and e.allowed]
    prepositional = [
        *prepositional_examples(typed, 8000, rng),
        *prepositional_examples(numbers, 4000, rng),
        *prepositional_examples(nouns, 8000, rng),
    ]
    parts = [
        ([e for e in synsets if e.others], shares.synonyms),
        (synsets, shares.words),
        (biomedical, shares.biomedical),
        (wikidata, shares.wikidata),
        (others, shares.others),
        (numbers, shares.numbers),
        (prepositional, shares.prepositional),
    ]
    by_type: dict[str, list[Example]] = {}
    for example in typed:
        kinds = {PHRASE_TYPES[i].partition("-")[2] for i in example.allowed}
        by_type.setdefault(kinds.pop() if len(kinds) == 1 else "several", []).append(example)
    # Rare types more often than their numbers, common ones less.
    weights = {kind: len(found) ** 0.4 for kind, found in by_type.items() if len(found) >= RARE}
    parts += [(by_type[kind], 0.18 * weight / sum(weights.values())) for kind, weight in weights.items()]
    untyped = held_out_typed(data)
    return [
        Source(_alphabetical(without_types(without_strings(found, held_out), untyped)), share) for found, share in parts
    ]


def held_out_typed(data: Path) -> set[str]:
    """Keys of the typed names outside the training folds: their types may not be learnt from any source."""
    rows = read_tsv(data / "typed_names" / "onto_typed_names.tsv")
    return {key for row in rows if fold(key := name_key(row["name"])) not in TRAIN_FOLDS}


def without_types(examples: list[Example], held_out: set[str]) -> list[Example]:
    """The examples with no phrase type where the name's key is held out."""
    return [replace(e, allowed=()) if e.allowed and name_key(e.name) in held_out else e for e in examples]


def plain_phrases(path: Path, rng: random.Random) -> list[str]:
    """Runs of one to eight words of plain text, from within clauses, each once; a third in lower case."""
    clause = re.compile(r"(?<=[.!?;:,()\n])\s+")
    marks = " .,;:!?()\"'"
    found: set[str] = set()
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            clauses = [words for part in clause.split(json.loads(line)["text"][:6000]) if (words := part.split())]
            for words in rng.choices(clauses, k=8) if clauses else ():
                n = rng.choices(range(1, 9), (8, 22, 20, 15, 12, 9, 8, 6))[0]
                if len(words) < n:
                    continue
                start = rng.randrange(len(words) - n + 1)
                phrase = " ".join(words[start : start + n]).strip(marks)
                if 3 <= len(phrase) <= 80 and any(letter.isalpha() for letter in phrase):
                    found.add(phrase.lower() if rng.random() < 0.3 else phrase)
    kept = sorted(found)
    return rng.sample(kept, min(N_PLAIN, len(kept)))


def _alphabetical(examples: list[Example]) -> list[Example]:
    return sorted(examples, key=lambda e: (e.name.casefold(), e.entity))


def proper_names(material: list[Source]) -> list[Example]:
    """Names of two words or more, all capitalised, of the types that people abbreviate."""
    kinds = {f"NP-{kind}" for kind in PROPER}
    chosen = {
        example.name: example
        for source in material
        for example in source.examples
        if not example.others
        and any(PHRASE_TYPES[i] in kinds for i in example.allowed)
        and abbreviate(example.name, random.Random(0)) != example.name
    }
    return _alphabetical(list(chosen.values()))


@torch.inference_mode()
def phrase_vectors(network: PearlNetwork, tokenizer: Any, names: list[str]) -> Tensor:
    """Vectors before normalisation, (n, dim), in chunks."""
    chunks = [names[start : start + 4096] for start in range(0, len(names), 4096)]
    return torch.cat([pool_phrases(network, tokenizer, chunk, MAX_LENGTH, 64) for chunk in chunks])


def head_examples(material: list[Source], rng: random.Random, n: int) -> list[Example]:
    """Examples with a known phrase type, at most `n` of each source."""
    chosen: dict[tuple[str, tuple[int, ...]], Example] = {}
    for source in material:
        typed = [e for e in source.examples if e.allowed]
        for example in rng.sample(typed, min(n, len(typed))):
            allowed = _as_noun_phrase(example.allowed)
            chosen[example.name, allowed] = replace(example, allowed=allowed)
    return list(chosen.values())


def _as_noun_phrase(allowed: tuple[int, ...]) -> tuple[int, ...]:
    """Names are noun phrases: where the class was left open, say so, or nothing would decide between the five."""
    nouns = tuple(i for i in allowed if PHRASE_TYPES[i].startswith("NP-"))
    return nouns if len(allowed) == len(nouns) * len(LEXICAL_CLASSES) else allowed


def train_head(network: PearlNetwork, tokenizer: Any, examples: list[Example]) -> tuple[Any, tuple[int, ...]]:
    """The head on the averaged encoder, and how often each label was seen."""
    allowed = torch.zeros(len(examples), len(PHRASE_TYPES), dtype=torch.bool)
    for i, example in enumerate(examples):
        allowed[i, list(example.allowed)] = True
    # Between each name alike and each set of types alike: searched on the development folds.
    kinds = [example.allowed for example in examples]
    sizes = {kind: kinds.count(kind) for kind in set(kinds)}
    weights = torch.tensor([sizes[kind] ** -0.25 for kind in kinds])
    vectors = phrase_vectors(network, tokenizer, [e.name for e in examples])
    generator = torch.Generator().manual_seed(0)
    head = fit_head(vectors, allowed, weights=weights, epochs=60, generator=generator)
    return head, tuple(allowed.sum(0).tolist())


def held_out_types(data: Path, folds: range) -> list[tuple[str, set[str]]]:
    """A natural sample of typed names that training never saw, with all types of each."""
    types: dict[str, set[str]] = {}
    for row in read_tsv(data / "typed_names" / "onto_typed_names.tsv"):
        types.setdefault(row["name"], set()).add(row["onto_type"])
    held_out = [(name, found) for name, found in types.items() if fold(name_key(name)) in folds]
    return random.Random(4).sample(held_out, min(8000, len(held_out)))


def fit_stages(
    base: Path, characters: Path, tokenizer: Any, data: Path, wordnet: Path, work: Path
) -> tuple[PearlNetwork, list[Source]]:
    """The network after all stages, before it is averaged, and the material of the last one."""
    plain = plain_phrases(data / "text" / "enwiki_sample.jsonl.gz", random.Random(7))
    teacher = as_teacher(load_encoder(str(base), device="cpu"))
    network = PearlNetwork(load_phrase_encoder(base), new_type_head(384))
    material: list[Source] = []
    for stage in STAGES:
        if stage.characters and network.character_encoder is None:
            encoder = read_character_encoder(characters, tokenizer_folder=base, share=TRAINED_SHARE)
            head = new_type_head(384 + encoder.char_dim)
            network = PearlNetwork(network.phrase_encoder, head, character_encoder=encoder)
        material = sources(data, wordnet, random.Random(0), stage.shares)
        drawn = [*material, Source(proper_names(material), stage.proper)]
        sampler = NeighbourSampler(drawn, run=stage.run)
        kept = plain if stage.plain else ()
        maker = BatchMaker(sampler, n_pairs=N_PAIRS, seed=stage.seed, vary=_Vary(stage.short), plain=kept)
        asked = teacher if stage.plain else None
        fit(network, tokenizer, maker, stage.config, work / stage.name, teacher=asked, distil_from=asked)
    return network, material


@dataclass(frozen=True, slots=True)
class _Vary:
    """Variants, of which a share may be short forms."""

    short: float

    def __call__(self, phrase: str, rng: random.Random) -> str:
        return augment_or_abbreviate(phrase, rng) if rng.random() < self.short else augment(phrase, rng)


def _card(training: dict[str, Any]) -> str:
    return (Path(__file__).parent / "pearl_mini_en_card.md").read_text("utf-8").format(**training)


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
    pretrain_character_encoder(base, characters, own="encoder", max_words=LOVE_WORDS, widths=widths, config=LOVE)
    network, material = fit_stages(base, characters, tokenizer, data, wordnet, work)
    finish(network, material, tokenizer, base, data, work, out)


def finish(
    network: PearlNetwork, material: list[Source], tokenizer: Any, base: Path, data: Path, work: Path, out: Path
) -> None:
    """Average, set the share of the characters, fit the type head, and write the checkpoint."""
    average_weights(load_phrase_encoder(base), network.phrase_encoder, ratio=RATIO)
    characters = network.character_encoder
    assert characters is not None
    characters.config = characters.config.model_copy(update={"share": SHARE})
    network.eval()
    head, label_counts = train_head(network, tokenizer, head_examples(material, random.Random(2), 12_000))
    network.type_head = head
    scores: dict[str, TypeScores] = {}
    for split, folds in (("development", DEVELOPMENT_FOLDS), ("test", TEST_FOLDS)):
        named = held_out_types(data, folds)
        with torch.inference_mode():
            logits = head(phrase_vectors(network, tokenizer, [name for name, _ in named]))
        scores[split] = score_types(logits, [kinds for _, kinds in named])
        _log.info("types on %s: %s", split, scores[split])

    training = {
        "base": "sentence-transformers/all-MiniLM-L6-v2",
        "steps": sum(stage.config.steps for stage in STAGES),
        "pairs": N_PAIRS,
        "learning_rate": max(stage.config.learning_rate for stage in STAGES),
        "temperature": CONFIG.temperature,
        "average_ratio": RATIO,
        "type_accuracy": round(scores["test"].accuracy, 4),
        "type_macro_f1": round(scores["test"].macro_f1, 4),
    }
    config = PearlConfig(
        name=NAME,
        dim=384 + characters.char_dim,
        phrase_dim=384,
        char_dim=characters.char_dim,
        character=characters.config,
        label_counts=label_counts,
        max_length=MAX_LENGTH,
        precision="fp32",
        training=training,
    )
    write_network(work / "torch", network, config, transformer=base)
    click.echo(export_checkpoint(work / "torch", out))
    (out / "README.md").write_text(_card(training), encoding="utf-8")
    click.echo(json.dumps(training))


if __name__ == "__main__":
    main()
