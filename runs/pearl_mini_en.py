"""The recipe of `pearl-mini-en`, the model that ships: fit, average, type head, export.

    python runs/pearl_mini_en.py --base FOLDER --wordnet FOLDER --data FOLDER --work FOLDER --out FOLDER

--base is a folder of all-MiniLM-L6-v2 (Apache-2.0), --wordnet the `dict` folder of WordNet 3.0, --data a folder with
`kb/general.tsv`, `kb/biomedical/*.tsv`, `alias_pairs/*.tsv` and `typed_names/onto_typed_names.tsv` (TSV with a header:
id, name, aliases; alias, id, canonical; name, onto_type). Each step keeps its result in --work and is not repeated.
The model card names the sources. About 75 minutes on two cores.
"""

from __future__ import annotations

import json
import logging
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from pearl_qdrant.encoder.checkpoint import PearlConfig
from pearl_qdrant.encoder.network import PearlNetwork, load_phrase_encoder, new_type_head
from pearl_qdrant.encoder.writing import write_checkpoint
from pearl_qdrant.phrase_types import LEXICAL_CLASSES, PHRASE_TYPES
from training.augment import abbreviate, augment_or_abbreviate
from training.batches import BatchMaker, Source, WeightedRuns
from training.evaluate_types import TypeScores, score_types
from training.export import export_onnx
from training.head import fit_head
from training.int8_graph import PRECISION, write_int8_graph
from training.sources import (
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
from training.splits import DEVELOPMENT_FOLDS, TEST_FOLDS, fold, name_key
from training.trainer import FitConfig, fit, pool_phrases
from training.weight_average import average_weights

NAME = "pearl-mini-en"
MAX_LENGTH = 64
RATIO = 0.5
CONFIG = FitConfig(steps=1100, learning_rate=5e-5, schedule="cosine", temperature=0.05, save_every=50, precision="fp32")
ABBREVIATIONS = replace(CONFIG, steps=300, learning_rate=4e-5)
"""A second stage, with short forms of proper names among the variants."""
MORE_ABBREVIATIONS = replace(CONFIG, steps=450, learning_rate=4e-5)
"""A third one, with a third of each batch proper names."""
PROPER = ("ORG", "WORK_OF_ART", "FAC", "EVENT", "LAW")
N_PAIRS = 128
RUN = 8
RARE = 30
"""Types with fewer names than this are not drawn by themselves."""

_log = logging.getLogger(NAME)


def sources(data: Path, wordnet: Path, rng: random.Random) -> list[Source]:
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
    shares = [
        ([e for e in synsets if e.others], 0.28),
        (synsets, 0.04),
        (biomedical, 0.24),
        (wikidata, 0.08),
        (others, 0.08),
        (numbers, 0.05),
        (prepositional, 0.05),
    ]
    by_type: dict[str, list[Example]] = {}
    for example in typed:
        kinds = {PHRASE_TYPES[i].partition("-")[2] for i in example.allowed}
        by_type.setdefault(kinds.pop() if len(kinds) == 1 else "several", []).append(example)
    # Rare types more often than their numbers, common ones less.
    weights = {kind: len(found) ** 0.4 for kind, found in by_type.items() if len(found) >= RARE}
    shares += [(by_type[kind], 0.18 * weight / sum(weights.values())) for kind, weight in weights.items()]
    return [Source(_alphabetical(without_strings(found, held_out)), share) for found, share in shares]


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
    # Each set of types weighs as the square root of its size.
    kinds = [example.allowed for example in examples]
    sizes = {kind: kinds.count(kind) for kind in set(kinds)}
    weights = torch.tensor([sizes[kind] ** -0.5 for kind in kinds])
    vectors = phrase_vectors(network, tokenizer, [e.name for e in examples])
    generator = torch.Generator().manual_seed(0)
    head = fit_head(vectors, allowed, weights=weights, epochs=12, generator=generator)
    return head, tuple(allowed.sum(0).tolist())


def held_out_types(data: Path, folds: range) -> list[tuple[str, set[str]]]:
    """A natural sample of typed names that training never saw, with all types of each."""
    types: dict[str, set[str]] = {}
    for row in read_tsv(data / "typed_names" / "onto_typed_names.tsv"):
        types.setdefault(row["name"], set()).add(row["onto_type"])
    held_out = [(name, found) for name, found in types.items() if fold(name_key(name)) in folds]
    return random.Random(4).sample(held_out, min(8000, len(held_out)))


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
    material = sources(data, wordnet, random.Random(0))

    network = PearlNetwork(load_phrase_encoder(base), new_type_head(384))
    drawn = BatchMaker(WeightedRuns(material, run=RUN), n_pairs=N_PAIRS, seed=1)
    fit(network, tokenizer, drawn, CONFIG, work)
    varied = replace(drawn, seed=5, vary=augment_or_abbreviate)
    fit(network, tokenizer, varied, ABBREVIATIONS, work / "abbreviations")
    with_names = WeightedRuns([*material, Source(proper_names(material), 0.5)], run=RUN)
    fit(
        network, tokenizer, replace(varied, sampler=with_names, seed=6), MORE_ABBREVIATIONS, work / "more-abbreviations"
    )
    average_weights(load_phrase_encoder(base), network.phrase_encoder, ratio=RATIO)

    head, label_counts = train_head(network, tokenizer, head_examples(material, random.Random(2), 12_000))
    network.type_head = head
    scores: dict[str, TypeScores] = {}
    for split, folds in (("development", DEVELOPMENT_FOLDS), ("test", TEST_FOLDS)):
        named = held_out_types(data, folds)
        with torch.inference_mode():
            logits = head(phrase_vectors(network, tokenizer, [name for name, _ in named]))
        scores[split] = score_types(logits, [kinds for _, kinds in named])
        _log.info("types on %s: %s", split, scores[split])

    fp32, int8 = work / "fp32.onnx", work / "int8.onnx"
    export_onnx(network, fp32)
    write_int8_graph(network, int8)
    training = {
        "base": "sentence-transformers/all-MiniLM-L6-v2",
        "steps": sum(stage.steps for stage in (CONFIG, ABBREVIATIONS, MORE_ABBREVIATIONS)),
        "pairs": N_PAIRS,
        "learning_rate": CONFIG.learning_rate,
        "temperature": CONFIG.temperature,
        "average_ratio": RATIO,
        "type_accuracy": round(scores["test"].accuracy, 4),
        "type_macro_f1": round(scores["test"].macro_f1, 4),
    }
    config = PearlConfig(
        name=NAME,
        dim=384,
        phrase_dim=384,
        label_counts=label_counts,
        max_length=MAX_LENGTH,
        precision=PRECISION,
        training=training,
    )
    weight: Tensor = head.weight.detach()
    write_checkpoint(
        out,
        config,
        transformer=base,
        type_head=weight.numpy().astype(np.float32),
        onnx_path=int8,
        model_card=_card(training),
    )
    click.echo(json.dumps(training))


if __name__ == "__main__":
    main()
