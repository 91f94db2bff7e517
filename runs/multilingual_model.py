r"""The recipe of a multilingual encoder: 6 layers of multilingual-e5-small, without prefix, on two CPU cores.

    python runs/multilingual_model.py teacher --base E5 --out TEACHER
    python runs/multilingual_model.py start --base E5 --sources sources.xz --out START
    python runs/multilingual_model.py prepare --data FOLDER --wordnet FOLDER --out sources.xz
    python runs/multilingual_model.py targets --teacher TEACHER --english EN --sources sources.xz --out T.npz
    python runs/multilingual_model.py train --start START --sources sources.xz --targets T.npz --steps N --out RUN
    python runs/multilingual_model.py average --start START --state RUN/state.safetensors --out MODEL
    python runs/multilingual_model.py finish --model MODEL --state RUN/state.safetensors --sources sources.xz \
        --out WORLD
    python runs/multilingual_model.py join --english EN --world WORLD --sources sources.xz --out JOINT
    python runs/multilingual_model.py measure JOINT TEACHER --baseline EN
    python runs/multilingual_model.py link JOINT TEACHER EN

WORLD and EN, which `runs/pearl_mini_en.py` makes, are the members of JOINT, the teacher of the shipped model; E5 is a
folder of multilingual-e5-small (MIT, 12 layers). `multilingual/names.py` says where the names come from and
which packages that needs, `multilingual/data.py` what a batch has, docs/experiments/multilingual.md the figures.

The student has the first and last three layers of E5, and reads names without E5's prefix "query: ", which takes three
tokens. The mean vector of names is subtracted in its last bias, as in E5 unrelated names have high cosines.
It learns to give a name the vector of its teachers: E5 with all layers and prefix, and for English names also
`pearl-mini-en`, turned into E5's space by the orthogonal map that fits best; and to tell names apart by NT-Xent.

SIGTERM stops the run; the same command resumes it, with more `--steps` if so wished: the rate does not depend on them.
"""

from __future__ import annotations

import json
import logging
import lzma
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import torch
from development_suite import as_table, compare, measure
from multilingual import joint
from multilingual.data import WEIGHTS, hard_negatives, names_of, plain_names, read_sources, translations
from multilingual.names import read_entities
from multilingual.tasks import multilingual_tasks
from pearl_mini_en import Augment, load_sources, path_option
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from pearl_qdrant import EntityLinker
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.encoder.runtime.network import PearlNetwork, load_phrase_encoder, new_type_head
from pearl_qdrant.encoder.tokens import open_tokenizer
from training.batches import BatchMaker, NegativeTable, NeighbourSampler
from training.examples.example import count_labels
from training.export.export_checkpoint import export_checkpoint
from training.finetune.objective import fit
from training.finetune.request import FitConfig
from training.networks.checkpoints import average_weights, open_base_model, phrase_tensors, write_network
from training.networks.phrase_vectors import pool_phrases

Array = npt.NDArray[np.float32]

LAYERS = (0, 1, 2, 9, 10, 11)
"""Layers of E5 that the student starts with: of those tried the nearest to E5 before training."""
PREFIX = "query: "
"""What E5 reads before a name. The student reads names as they are."""
ENGLISH = 0.5
"""Share of the English teacher in the target of an English name."""
TRANSLATED = 0.5
"""Share of the English names of its entity in the target of a name in another language (Reimers & Gurevych 2020)."""
N_TARGETS = 400_000
N_PLAIN = 100_000
"""Names to distil that `prepare` draws: half in English, text among them."""
N_FOR_MAP = 20_000
"""English names that the map between the teachers is fitted to."""


@click.group()
def main() -> None:
    """Prepare, train, average or measure."""
    logging.basicConfig(level=logging.INFO)


@main.command()
@path_option("--base")
@click.option("--prefix", default=PREFIX)
@path_option("--out", is_made=True)
def teacher(base: Path, prefix: str, out: Path) -> None:
    """Write a plain encoder as a checkpoint in 8 bits, with a type head that has learnt nothing."""
    opened = open_base_model(str(base), name=out.name, prefix=prefix)
    with tempfile.TemporaryDirectory() as work:
        write_network(Path(work) / "torch", opened.network, opened.config, transformer=opened.folder)
        click.echo(export_checkpoint(Path(work) / "torch", out))


@main.command()
@path_option("--data")
@path_option("--wordnet")
@path_option("--out", is_made=True)
def prepare(data: Path, wordnet: Path, out: Path) -> None:
    """Write the sources, hard negatives and names to distil to one file."""
    sources, _ = read_sources(data, wordnet)
    rng = random.Random(8)
    stored = {
        "weights": [source.weight for source in sources],
        "examples": [[(e.name, e.others, e.entity, tuple(e.allowed)) for e in source.examples] for source in sources],
        "plain": plain_names(data, sources, rng, N_PLAIN),
        "negatives": list(hard_negatives(sources, rng)),
    }
    with lzma.open(out, "wt", encoding="utf-8", preset=1) as file:
        json.dump(stored, file, ensure_ascii=False)


@main.command()
@path_option("--base")
@path_option("--sources")
@path_option("--out", is_made=True)
def start(base: Path, sources: Path, out: Path) -> None:
    """Write the student before training."""
    _, plain = load_sources(sources)
    encoder: Any = load_phrase_encoder(base)
    encoder.encoder.layer = torch.nn.ModuleList(encoder.encoder.layer[i] for i in LAYERS)
    encoder.config.num_hidden_layers = len(LAYERS)
    names = plain[:2_000]
    network, tokenizer = PearlNetwork(encoder, None), open_tokenizer(base / "tokenizer.json")
    with torch.inference_mode():
        mean = pool_phrases(network, tokenizer, names, 64, 64).mean(0)
    with torch.no_grad():
        encoder.encoder.layer[-1].output.LayerNorm.bias -= mean
    out.mkdir(parents=True, exist_ok=True)
    _write_plain(encoder, base, out)


def _write_plain(encoder: Any, base: Path, out: Path) -> None:
    """Write an encoder as a plain one, with the tokenizer of another folder."""
    shutil.copytree(base, out, ignore=shutil.ignore_patterns("*.safetensors", "config.json"), dirs_exist_ok=True)
    # Without spaces and line ends the tokenizer is half as large.
    tokenizer = json.loads((base / "tokenizer.json").read_text("utf-8"))
    compact = json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":"))
    (out / "tokenizer.json").write_text(compact, encoding="utf-8")
    save_file(phrase_tensors(encoder), out / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((base / "config.json").read_text("utf-8"))
    config["num_hidden_layers"] = encoder.config.num_hidden_layers
    (out / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


@main.command()
@path_option("--teacher")
@path_option("--english")
@path_option("--sources")
@click.option("--names", "n_names", type=int, default=N_TARGETS, help="So many English names and names to translate.")
@path_option("--out", is_made=True)
def targets(teacher: Path, english: Path, sources: Path, n_names: int, out: Path) -> None:
    """Write names to distil, and the vector that the student shall give each, those of both teachers in one space."""
    examples, plain = load_sources(sources)
    translated, aliases = translations(examples[: len(WEIGHTS) + 1]), names_of(examples[len(WEIGHTS) + 1 :])
    rng = random.Random(8)
    foreign = rng.sample(sorted(translated), min(len(translated), n_names // 2))
    chosen = [*plain, *foreign, *(name for key in foreign for name in translated[key])]
    names = list(dict.fromkeys([*chosen, *rng.sample(aliases, min(len(aliases), n_names // 2))]))
    vectors = _centred(load_encoder(str(teacher), device="cpu").encode(names).vectors)
    rows = np.array([i for i, name in enumerate(names) if name.isascii() and name not in translated])
    second = _centred(load_encoder(str(english), device="cpu").encode([names[i] for i in rows]).vectors)
    # Orthogonal Procrustes (Schoenemann 1966): the R with R^T R = 1 that brings second R nearest to the first teacher.
    some = rows[:N_FOR_MAP]
    u, _, v = np.linalg.svd(second[: len(some)].T @ vectors[some], full_matrices=False)
    vectors[rows] = _unit((1 - ENGLISH) * vectors[rows] + ENGLISH * _unit(second @ (u @ v)))
    place = {name: i for i, name in enumerate(names)}
    own = vectors.copy()
    for name in names:
        if near := [place[other] for other in translated.get(name, ()) if other in place]:
            vectors[place[name]] = (1 - TRANSLATED) * own[place[name]] + TRANSLATED * own[near].mean(axis=0)
    np.savez(out, names=np.frombuffer("\0".join(names).encode(), np.uint8), vectors=_unit(vectors).astype(np.float16))


def _unit(vectors: Array) -> Array:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    found: Array = vectors / np.maximum(norms, np.float32(1e-9))
    return found


def _centred(vectors: Array) -> Array:
    """Unit vectors less their mean, as unit vectors."""
    return _unit(vectors - vectors.mean(axis=0))


@main.command()
@path_option("--start")
@path_option("--sources")
@path_option("--targets")
@path_option("--out", is_made=True)
@click.option("--initial", type=click.Path(path_type=Path, exists=True), help="State of another run, to begin with.")
@click.option("--steps", type=int, required=True)
@click.option("--pairs", type=int, default=256)
@click.option("--plain", "n_plain", type=int, default=512)
@click.option("--rate", type=float, default=3e-4)
@click.option("--distil-weight", type=float, default=6.0, help="100 leaves nearly nothing of the contrastive loss.")
@click.option("--seed", type=int, default=43)
def train(
    start: Path,
    sources: Path,
    targets: Path,
    out: Path,
    initial: Path | None,
    steps: int,
    pairs: int,
    n_plain: int,
    rate: float,
    distil_weight: float,
    seed: int,
) -> None:
    """Train, or resume."""
    torch.manual_seed(0)
    examples, _ = load_sources(sources)
    with lzma.open(sources, "rt", encoding="utf-8") as file:
        negatives = NegativeTable(json.load(file)["negatives"])
    encoder: Any = load_phrase_encoder(start)
    network = PearlNetwork(encoder, new_type_head(encoder.config.hidden_size))
    if initial is not None:
        network.load_state_dict(_read_state(initial, "network."))
    distilled = np.load(targets)
    plain, vectors = bytes(distilled["names"]).decode().split("\0"), torch.from_numpy(distilled["vectors"])
    place = {name: i for i, name in enumerate(plain)}
    maker = BatchMaker(
        NeighbourSampler(examples, neighbours=2),
        n_pairs=pairs,
        seed=seed,
        augment=Augment(),
        negatives=negatives,
        n_negatives=1,
        plain=plain,
        n_plain=n_plain,
        misspelt_plain=0.25,
    )
    config = FitConfig(
        steps=steps,
        learning_rate=rate,
        decay=0.97,
        decay_every=50,
        temperature=0.05,
        type_weight=0.1,
        distil_weight=distil_weight,
        head_rate=10.0,
        micro_batch=128,
        max_tokens=24,
        save_every=steps,
        save_seconds=600.0,
    )
    tokenizer = open_tokenizer(start / "tokenizer.json")
    fit(
        network,
        tokenizer,
        maker,
        config,
        out,
        distil_from=lambda names: vectors[[place[name] for name in names]].float(),
    )


def _read_state(path: Path, own: str) -> dict[str, torch.Tensor]:
    """The tensors of a part of a saved state, by their names in it."""
    return {name.removeprefix(own): tensor for name, tensor in load_file(path).items() if name.startswith(own)}


@main.command()
@path_option("--start")
@path_option("--state")
@click.option("--ratio", type=float, default=0.7, help="Share of the trained weights in the average.")
@path_option("--out", is_made=True)
def average(start: Path, state: Path, ratio: float, out: Path) -> None:
    """Average the network of a saved state with the start, and write a plain encoder."""
    encoder = load_phrase_encoder(start)
    encoder.load_state_dict(_read_state(state, "network.phrase_encoder."))
    average_weights(load_phrase_encoder(start), encoder, ratio=ratio)
    _write_plain(encoder, start, out)


@main.command()
@path_option("--model")
@path_option("--state")
@path_option("--sources")
@path_option("--out", is_made=True)
def finish(model: Path, state: Path, sources: Path, out: Path) -> None:
    """Write the averaged encoder with the type head of the run as a checkpoint in 8 bits, the words in 4."""
    examples, _ = load_sources(sources)
    opened = open_base_model(str(model), name=out.name, prefix="")
    assert opened.network.type_head is not None
    opened.network.type_head.load_state_dict(_read_state(state, "network.type_head."))
    with safe_open(state, "pt") as saved:
        trained = {"recipe": "runs/multilingual_model.py", "steps": int(saved.metadata()["step"])}
    counts = count_labels(example for source in examples for example in source.examples)
    config = opened.config.model_copy(update={"label_counts": counts, "training": trained})
    with tempfile.TemporaryDirectory() as work:
        write_network(Path(work) / "torch", opened.network, config, transformer=opened.folder)
        click.echo(export_checkpoint(Path(work) / "torch", out))


@main.command()
@path_option("--english")
@path_option("--world")
@path_option("--sources")
@click.option("--share", type=float, default=ENGLISH, help="Share of the English model in the cosine.")
@click.option("--dim", type=int, default=384, help="Width of the vectors.")
@path_option("--out", is_made=True)
def join(english: Path, world: Path, sources: Path, share: float, dim: int, out: Path) -> None:
    """Write the joint model: the directions in which the vectors of names in many languages differ most are kept."""
    examples, plain = load_sources(sources)
    translated, aliases = translations(examples[: len(WEIGHTS) + 1]), names_of(examples[len(WEIGHTS) + 1 :])
    rng = random.Random(9)
    names = [*rng.sample(plain, 8_000), *rng.sample(sorted(translated), 8_000), *rng.sample(aliases, 8_000)]
    for model in (english, world):
        shutil.copytree(model, out / model.name)
    members = [
        joint.Member(english.name, share, latin=True),
        joint.Member(world.name, 1 - share, latin=False),
    ]
    wide = sum(load_encoder(str(model), device="cpu").info.dim for model in (english, world))
    joint.write_joint(out, members, np.eye(wide, dtype=np.float32))
    vectors = joint.load(str(out)).encode(names).vectors.astype(np.float64)
    _, directions = np.linalg.eigh(vectors.T @ vectors)
    joint.write_joint(out, members, directions[:, ::-1][:, :dim].astype(np.float32))


@main.command("measure")
@click.argument("models", nargs=-1)
@click.option("--baseline", required=True)
def measure_models(models: tuple[str, ...], baseline: str) -> None:
    """Measure encoders on held-out names in many languages, by vectors: first candidate, in percent."""
    suite = {1: multilingual_tasks(read_entities())}
    first = None
    for model in (baseline, *models):
        encoder = joint.load(model)

        def encode(names: list[str], encoder: Encoder = encoder) -> Array:
            found: Array = encoder.encode(names).vectors
            return found

        found = measure(encode, suite)[1]
        first = first or found
        click.echo("\n".join([model, *as_table(compare(found, first))]))


@main.command("link")
@click.argument("models", nargs=-1, required=True)
def link_models(models: tuple[str, ...]) -> None:
    """Link the same mentions: the first candidate is right, and at the defaults the answer is right, or wrong."""
    tasks = multilingual_tasks(read_entities())
    for model in models:
        encoder = joint.load(model)
        for task in tasks:
            rows = [{"id": key, "name": name} for name, key in task.searches[0].names]
            asked = [mention for search in task.searches for mention in search.mentions]
            with EntityLinker.build(rows, model=encoder) as linker:
                links = list(linker.link_batch([mention for mention, _ in asked]))
            pairs = [(link, gold) for link, (_, gold) in zip(links, asked, strict=True)]
            first = sum(bool(link.candidates) and link.candidates[0].entity_id in gold for link, gold in pairs)
            right = sum(link.entity_id in gold for link, gold in pairs)
            wrong = sum(link.entity_id is not None for link, _ in pairs) - right
            shares = "  ".join(f"{100 * n / len(pairs):5.1f}" for n in (first, right, wrong))
            click.echo(f"{model}  {task.name:34} {len(pairs):5}  {shares}")


if __name__ == "__main__":
    main()
