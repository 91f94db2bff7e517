r"""The recipe of the shipped model `pearl-mini-en`, in one stage of large batches, on a GPU.

    pearl-qdrant train love BASE LOVE --mimic encoder
    python runs/pearl_mini_en.py prepare --data FOLDER --wordnet FOLDER --out sources.xz
    python runs/pearl_mini_en.py train --base BASE --characters LOVE --sources sources.xz --out RUN
    python runs/pearl_mini_en.py finish --base BASE --characters LOVE --sources sources.xz \
        --trained RUN/trained.safetensors --data FOLDER --work WORK --out OUT
    python runs/pearl_mini_en.py head --model OUT --sources sources.xz --data FOLDER --out OTHER     the type head again

BASE is a folder of all-MiniLM-L6-v2 (Apache-2.0), --wordnet the `dict` folder of WordNet 3.0, --data a folder with
`kb/general.tsv`, `kb/biomedical/*.tsv`, `context/`, `alias_pairs/*.tsv` and `typed_names/onto_typed_names.tsv` (TSV
with a header: id, name, aliases; alias, id, canonical; name, onto_type), and `text/enwiki_sample.jsonl.gz` (JSON Lines
with a field `text`). The model card names the sources.

A step has 1,024 pairs: NT-Xent with GIST's teacher, the type loss, distillation of plain phrases (some of them
misspelt), and the character encoder. SIGTERM stops the run; the same command resumes it. The trained tensors are
written as float16 to `trained.safetensors`; word embeddings are frozen. Sources, besides those of `mini_en/data.py`:

    mesh, craft, news   names of MeSH, the Cell and Sequence Ontologies, and pages of the AIDA base, by training fold
    substituted         a name within a longer name, replaced by an alias of its own
    mined               from text: definitions of abbreviations, and `X, also known as Y`

docs/experiments/large-batches.md has the figures.
"""

from __future__ import annotations

import gzip
import json
import logging
import lzma
import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click
import torch
from mini_en.data import Shares, plain_phrases, proper_names, read_sources
from mini_en.examples import alias_examples, without_strings
from mini_en.finish import write_head, write_model
from recipe_tables import read_tsv
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from pearl_qdrant.encoder.runtime.network import PearlNetwork, load_phrase_encoder, new_type_head
from pearl_qdrant.linking.mention_detection.abbreviations import find_abbreviations
from training.augment import augment, augment_or_abbreviate
from training.data.batches import BatchMaker, ExampleSource, NeighbourSampler
from training.examples.example import Example, sort_examples
from training.examples.splits import TRAIN_SPLITS, split_of
from training.finetune.config import FitConfig, default_micro_batch
from training.finetune.encoders import NetworkTeacher
from training.finetune.trainer import fit
from training.networks.character_files import read_character_encoder
from training.networks.weight_average import average_weights

SHARES = Shares(0.34, 0.02, 0.24, 0.12, 0.10, 0.02, 0.02)
PROPER = 0.05
FURTHER = {"mesh": 0.10, "craft": 0.01, "news": 0.06, "substituted": 0.08, "mined": 0.03}
"""Share of each further source, relative to the shares of the others."""

_KNOWN_AS = re.compile(
    r"\b((?:[A-Z][\w'-]+ ){0,3}[A-Z][\w'-]+),? "
    r"\(?(?:also|formerly|better|previously|commonly) (?:known|called|named) as "
    r"(?:the )?((?:[A-Z][\w'-]+ ){0,3}[A-Z][\w'-]+)"
)


def first_sources(data: Path, wordnet: Path) -> list[ExampleSource]:
    """Return the sources of `mini_en/data.py`, and proper names."""
    sources = read_sources(data, wordnet, random.Random(0), SHARES)
    return [*sources, ExampleSource(proper_names(sources), PROPER)]


def further_sources(data: Path, sources: list[ExampleSource]) -> list[ExampleSource]:
    """Return the further sources; `sources` are those whose names are looked for within longer ones."""
    context = data / "context"
    held_out = _held_out(context)
    mesh = alias_examples(context / "base_mesh.tsv", kb="mesh", entity_types=("OTHER",))
    ontologies = [
        e for kb in ("cl", "so") for e in alias_examples(context / f"base_{kb}.tsv", kb=kb, entity_types=("OTHER",))
    ]
    found = {
        "mesh": _short(mesh),
        "craft": [_spaced(example) for example in _short(ontologies)],
        "news": _short([*alias_examples(context / "base_aida.tsv", kb="aida"), *_news_mentions(context)]),
        "mined": list(mined_pairs(data / "text" / "enwiki_sample.jsonl.gz")),
    }
    found["substituted"] = list(substituted([*found["mesh"], *(e for s in sources for e in s.examples if e.others)]))
    return [
        ExampleSource(sort_examples(without_strings(examples, held_out)), FURTHER[name])
        for name, examples in found.items()
    ]


def all_plain(data: Path, sources: list[ExampleSource], rng: random.Random) -> list[str]:
    """Return phrases to distil: of plain text, and a quarter names."""
    plain = plain_phrases(data / "text" / "enwiki_sample.jsonl.gz", rng)
    names = sorted({e.name for source in sources for e in source.examples if e.others})
    return [*plain, *rng.sample(names, min(len(names), len(plain) // 3))]


def _held_out(context: Path) -> set[str]:
    """Case-folded names of the entities outside the training folds."""
    held: set[str] = set()
    for kb in ("mesh", "cl", "so", "aida"):
        for row in read_tsv(context / f"base_{kb}.tsv"):
            if split_of(row["id"]) not in TRAIN_SPLITS:
                held.update(alias.casefold() for alias in row["aliases"].split("|") if alias)
    return held


def _news_mentions(context: Path) -> Iterator[Example]:
    """Mentions of the training part of AIDA beside the name of their page."""
    found: dict[tuple[str, str], set[str]] = {}
    for row in read_tsv(context / "mentions.tsv"):
        if row["corpus"] == "aida-train" and row["gold_id"] != "NIL" and split_of(row["gold_id"]) in TRAIN_SPLITS:
            found.setdefault((row["gold_name"], row["gold_id"]), set()).add(row["mention"])
    for (name, page), mentions in found.items():
        if others := sorted(mentions - {name}):
            yield Example(name, tuple(others), f"aida:{page}", ())


def _short(examples: Iterable[Example]) -> list[Example]:
    """Leave out other names of more than 80 characters, and examples without one."""
    kept = []
    for example in examples:
        others = tuple(other for other in example.others if len(other) <= 80)
        if others and len(example.name) <= 80:
            kept.append(replace(example, others=others))
    return kept


def _spaced(example: Example) -> Example:
    name = example.name.replace("_", " ")
    others = dict.fromkeys(other.replace("_", " ") for other in example.others)
    return replace(example, name=name, others=tuple(other for other in others if other != name))


def substituted(examples: Iterable[Example], *, limit: int = 60_000) -> Iterator[Example]:
    """Yield names that hold another entity's name, with its aliases in its place."""
    examples = list(examples)
    # A word of everyday language has many senses: its synonyms do not fit within a name.
    is_word = re.compile("noun|verb|adj|adv")
    by_name = {e.name.casefold(): e for e in examples if len(e.name) >= 5 and not is_word.match(e.entity)}
    rng = random.Random(3)
    rng.shuffle(examples)
    made = 0
    for example in examples:
        words = example.name.split()
        if not 2 <= len(words) <= 8:
            continue
        variants = []
        for length in range(len(words) - 1, 0, -1):
            for start in range(len(words) - length + 1):
                part = " ".join(words[start : start + length])
                inner = by_name.get(part.casefold())
                if inner is None or inner.entity == example.entity or (length == 1 and part != inner.name):
                    continue
                folded = inner.name.casefold()
                short = [other for other in inner.others if len(other) <= 40 and other.casefold() != folded]
                chosen = rng.sample(short, min(2, len(short)))
                variants += [" ".join([*words[:start], other, *words[start + length :]]) for other in chosen]
        if variants:
            made += 1
            yield Example(example.name, tuple(dict.fromkeys(variants[:4])), example.entity, ())
        if made == limit:
            return


def mined_pairs(path: Path) -> Iterator[Example]:
    """Yield pairs of phrases that a text says mean the same."""
    seen: set[tuple[str, str]] = set()
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            text = json.loads(line)["text"]
            defined = find_abbreviations(text)
            pairs = [(found.long, found.short) for found in defined if sum(map(str.isupper, found.short)) >= 2]
            pairs += [(match[1], match[2]) for match in _KNOWN_AS.finditer(text)]
            for pair in pairs:
                if pair not in seen and pair[0].casefold() != pair[1].casefold() and len(pair[0]) <= 80:
                    seen.add(pair)
                    yield Example(pair[0], (pair[1],), f"text:{pair[0].casefold()}", ())


TRAINED_SHARE, SHARE = 0.1, 0.05
"""Share of the cosine of two names that comes from their characters: in training, and in the shipped model, where it
may cost half a point of relatedness (`development.py`)."""
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


def open_tokenizer(base: Path) -> Any:
    """Open the tokenizer of the base, without padding and truncation."""
    tokenizer: Any = Tokenizer.from_file(str(base / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def new_network(base: Path, characters: Path, *, share: float) -> PearlNetwork:
    """Return the network before training, with a share of the cosine for the characters."""
    encoder = read_character_encoder(characters, tokenizer_folder=base, share=share)
    return PearlNetwork(load_phrase_encoder(base), new_type_head(384 + encoder.char_dim), character_encoder=encoder)


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


def _option(flag: str, *, is_made: bool = False) -> Callable[[F], F]:
    """A required path: of an input, or of what is made."""
    return click.option(flag, type=click.Path(path_type=Path, exists=not is_made), required=True)


@click.group()
def main() -> None:
    """Prepare, train, or finish."""


@main.command()
@_option("--data")
@_option("--wordnet")
@_option("--out", is_made=True)
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
@_option("--base")
@_option("--characters")
@_option("--sources")
@_option("--out", is_made=True)
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
    tokenizer = open_tokenizer(base)
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
@_option("--base")
@_option("--characters")
@_option("--sources")
@_option("--trained")
@_option("--data")
@_option("--work", is_made=True)
@_option("--out", is_made=True)
@click.option("--ratio", type=float, default=0.7, help="Share of the trained weights in the average.")
@click.option("--steps", type=int, default=20_000, help="How many steps were taken, for the model card.")
def finish(
    base: Path,
    characters: Path,
    sources: Path,
    trained: Path,
    data: Path,
    work: Path,
    out: Path,
    ratio: float,
    steps: int,
) -> None:
    """Average the trained tensors with the base, fit the type head, and write the checkpoint."""
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    examples, _ = load_sources(sources)
    network = new_network(base, characters, share=SHARE)
    load_trained(network, trained)
    average_weights(load_phrase_encoder(base), network.phrase_encoder, ratio=ratio)
    how = {
        "base": "sentence-transformers/all-MiniLM-L6-v2",
        "steps": steps,
        "pairs": PAIRS,
        "learning_rate": RATE,
        "temperature": TEMPERATURE,
        "average_ratio": ratio,
    }
    write_model(network, examples, open_tokenizer(base), base, data, work, out, trained=how)


@main.command()
@_option("--model")
@_option("--sources")
@_option("--data")
@_option("--out", is_made=True)
def head(model: Path, sources: Path, data: Path, out: Path) -> None:
    """Write a copy of a finished model whose type head is fitted again."""
    write_head(model, out, load_sources(sources)[0], data)


if __name__ == "__main__":
    main()
