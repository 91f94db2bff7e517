r"""Ablation of both papers' objectives from one start: PEARL, ULR, and MLM alone, at the same number of steps.

    pearl-qdrant train ngrams FOLDER/text/enwiki_sample.jsonl.gz NGRAMS
    python runs/ulr.py prepare --base BASE --ngrams NGRAMS --data FOLDER --work WORK
    python runs/ulr.py train mlm ulr held pearl --ngrams NGRAMS --work WORK --seed 0
    python runs/ulr.py train spans --steps 400 --ngrams NGRAMS --work WORK --seed 0
    python runs/ulr.py measure --base BASE --data FOLDER --work WORK --part test
    python runs/ulr.py table --work WORK --part test

BASE is a folder of all-MiniLM-L6-v2, FOLDER has the evaluation sets, `kb/`, `context/` and `text/`. `prepare` writes
the start, which is BASE with an MLM head that was trained alone, and names with aliases for PEARL. Every run keeps its
folder in WORK and is not repeated; one that was stopped resumes. `average` is the mean of the start and `spans`.

Settings are chosen on `--part development`: analogies of half of the pairs, the questions of GEOGRANNO that the paper's
set leaves out, and BIRD. `--part test` has the other half of the pairs, the paper's questions, short texts, long names,
and passages that shall find the names in them. docs/experiments/ulr.md has the figures.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Literal

import click
import numpy as np
import torch
from development_tasks.readers import fold_of
from mini_en.examples import alias_examples, held_out_aliases, without_strings
from recipe_tables import read_tsv

from pearl_qdrant import FitRequest, UlrRequest, average_checkpoint, fit_model, train_ulr
from pearl_qdrant.cells import join_list, split_list
from pearl_qdrant.encoder.loading import load_encoder
from training.evaluation.data import FolderData, Row
from training.evaluation.methods import EncoderMethod
from training.evaluation.run import evaluate
from training.evaluation.tasks import find_tasks
from training.evaluation.tasks.analogy import LEVELS
from training.evaluation.tasks.analogy import PATH as ANALOGIES
from training.evaluation.tasks.retrieval import GEOGRANNO
from training.examples.example import DEVELOPMENT_SPLITS, split_of
from training.options import EvaluationOptions

Part = Literal["development", "test"]
VARIANTS = ("mlm", "ulr", "held", "spans", "pearl")
FOLD = {"development": 1, "test": 2}
GEO_SPLITS = {"development": ("train_nat", "dev_nat"), "test": ("train", "dev")}
THIN = {"intent/atis.tsv": 4}
"""Of these tables every n-th row is used."""

HEAD_STEPS = 400
N_NAMES = 12_000
LONG, N_ENTITIES, N_LONG, N_PASSAGES = 5, 800, 300, 200
ULR: Mapping[str, Any] = {"misad_weight": 384.0, "mlm_weight": 0.1, "renormalise": True}
"""Weights of the terms of ULR: 384 is the number of dimensions, so that MiSAD is the squared distance."""

WEIGHTS: Mapping[str, Mapping[str, Any]] = {
    "mlm": {"misad_weight": 0.0},
    "ulr": ULR,
    "held": {**ULR, "mlm_weight": 0.0, "hold": 1.0},
    "spans": {**ULR, "mlm_weight": 0.0, "hold": 1.0, "sampling": "random_span"},
}
"""Of the variants of `train ulr`; in `held` and `spans` whole sequences stay where the start has them."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What all runs share."""

    steps: int
    rate: float
    sequences: int = 16
    tokens: int = 40
    names: int = 64


def warm_head(base: Path, ngrams: Path, out: Path, *, steps: int = HEAD_STEPS) -> None:
    """Write the base with an MLM head; the encoder stays as it is but for a last step that is too small to matter."""
    train_ulr(
        UlrRequest(
            base=base,
            out=out,
            ngrams=ngrams,
            sampling="random_ngram",
            steps=steps + 1,
            head_steps=steps,
            batch_size=32,
            max_tokens=48,
            learning_rate=1e-12,
            head_learning_rate=3e-3,
            precision="fp32",
            device="cpu",
        )
    )


def write_names(data: Path, out: Path) -> None:
    """Write names of the training folds with their aliases, a table that `train fit --aliases` reads."""
    bases = [data / "kb" / "general.tsv", *sorted((data / "kb" / "biomedical").glob("*.tsv"))]
    held_out = set().union(
        *(held_out_aliases(path) for path in (*bases, *sorted((data / "alias_pairs").glob("*.tsv"))))
    )
    found = [e for path in bases for e in without_strings(alias_examples(path, kb=path.stem), held_out)]
    chosen = random.Random(0).sample(found, min(N_NAMES, len(found)))
    with out.open("w", encoding="utf-8") as file:
        file.write("id\tname\taliases\n")
        for example in chosen:
            others = join_list(example.others[:8])
            file.write(f"{example.entity}\t{example.name}\t{others}\n")


def train_variant(variant: str, work: Path, ngrams: Path, settings: Settings, *, seed: int) -> None:
    """Train one variant; resumes, and does nothing where it is complete."""
    out = work / f"{variant}-{seed}"
    if (out / "done").exists():
        return
    if variant in WEIGHTS:
        train_ulr(_ulr_request(variant, work, out, ngrams, settings, seed))
    else:
        fit_model(_fit_request(work, out, settings, seed))
    (out / "done").touch()


def _ulr_request(variant: str, work: Path, out: Path, ngrams: Path, settings: Settings, seed: int) -> UlrRequest:
    return UlrRequest(
        base=work / "start",
        out=out,
        ngrams=ngrams,
        steps=settings.steps,
        batch_size=settings.sequences,
        max_tokens=settings.tokens,
        learning_rate=settings.rate,
        dropout=False,
        precision="fp32",
        device="cpu",
        seed=seed,
        **{"sampling": "random_ngram", **WEIGHTS[variant]},
    )


def _fit_request(work: Path, out: Path, settings: Settings, seed: int) -> FitRequest:
    return FitRequest(
        base_model=work / "start",
        out=out,
        aliases=work / "names.tsv",
        steps=settings.steps,
        batch_size=settings.names,
        learning_rate=settings.rate,
        schedule="cosine",
        temperature=0.05,
        type_weight=0.0,
        precision="fp32",
        device="cpu",
        seed=seed,
    )


class PartData(FolderData):
    """The evaluation sets, of which a part is used."""

    def __init__(self, folder: Path, part: Part) -> None:
        super().__init__(folder)
        self._part = part

    def rows(self, path: str, *columns: str) -> list[Row]:
        """As `FolderData.rows`, for the rows of the part."""
        rows = super().rows(path, *columns)
        if path == ANALOGIES:
            pairs = super().rows(path, "relation", "a", "b", "c", "d_gold")
            wanted = {FOLD[self._part]}
            return [
                row
                for row, (relation, a, b, c, d) in zip(rows, pairs, strict=True)
                if {fold_of(f"{relation}{a}{b}"), fold_of(f"{relation}{c}{d}")} == wanted
            ]
        if path == GEOGRANNO:
            splits = super().rows(path, "split")
            # The task reads the splits train and dev, and all rows where there are none of them.
            return [row for row, (split,) in zip(rows, splits, strict=True) if split in GEO_SPLITS[self._part]]
        return rows[:: THIN.get(path, 1)]


def long_names(data: Path, method: EncoderMethod) -> float:
    """Return how often an alias of five words or more finds its entity among all names of its base, in percent."""
    rng, found = random.Random(1), []
    for name in ("go_2022.tsv", "mondo_2026.tsv"):
        rows = [row for row in read_tsv(data / "kb" / "biomedical" / name) if split_of(row["id"]) in DEVELOPMENT_SPLITS]
        rows = rng.sample(rows, min(len(rows), N_ENTITIES))
        names = [row["name"] for row in rows]
        mentions = [(alias, i) for i, row in enumerate(rows) for alias in split_list(row["aliases"])[:1]]
        mentions = [(alias, i) for alias, i in mentions if len(alias.split()) >= LONG][: N_LONG // 2]
        best = method.nearest([alias for alias, _ in mentions], names)
        found += [names[int(i)] == names[gold] for i, (_, gold) in zip(best, mentions, strict=True)]
    return 100 * mean(found)


def passages(data: Path) -> Iterator[tuple[str, str]]:
    """Yield passages of about 24 words around a mention, without the mention, and the name of its entity."""
    texts: dict[tuple[str, str], str] = {}
    with (data / "context" / "documents.jsonl").open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            texts[row["corpus"], row["doc_id"]] = row["text"]
    for row in read_tsv(data / "context" / "mentions.tsv"):
        if row["corpus"] in ("aida-dev", "craft-cl") and row["gold_id"] != "NIL":
            text = texts[row["corpus"], row["doc_id"]]
            before, after = text[: int(row["start"])].split()[-12:], text[int(row["end"]) :].split()[:12]
            yield " ".join([*before, row["mention"], *after]), row["gold_name"]


def names_in_passages(data: Path, method: EncoderMethod) -> tuple[float, float]:
    """Return how often a passage has the name in it first, and among the first five, of all names, in percent."""
    rows = random.Random(2).sample(list(passages(data)), N_PASSAGES)
    names = sorted({name for _, name in rows})
    scores = method.score_matrix([passage for passage, _ in rows], names)
    gold = np.array([names.index(name) for _, name in rows])
    rank = (scores > scores[np.arange(len(rows)), gold][:, None]).sum(1)
    return 100 * float((rank < 1).mean()), 100 * float((rank < 5).mean())


def measure_model(model: Path, data: Path, part: Part) -> dict[str, float]:
    """Return the figures of a model on a part, in percent."""
    method = EncoderMethod(load_encoder(str(model), device="cpu"))
    names = [*(f"analogy_{level}" for level in LEVELS), "geogranno_top1", "geogranno_top5", "geogranno_top10"]
    names += ["atis_s", "atis_l"] if part == "test" else ["bird"]
    report = evaluate(PartData(data, part), method, [], find_tasks(tuple(names)), EvaluationOptions(n_seeds=3))
    figures = {result.task.name: result.outcomes[method.name].value for result in report.results}
    if part == "test":
        whole = evaluate(FolderData(data), method, [], find_tasks(tuple(names[:3])), EvaluationOptions(n_seeds=1))
        figures |= {f"{one.task.name}, whole": one.outcomes[method.name].value for one in whole.results}
        figures["long names"] = long_names(data, method)
        figures["passage to name, first"], figures["passage to name, first five"] = names_in_passages(data, method)
    return figures


_PATH = click.Path(path_type=Path)
_READ = click.Path(path_type=Path, exists=True)
_part = click.option("--part", type=click.Choice(["development", "test"]), default="development")


@click.group()
def main() -> None:
    """Prepare, train, measure, or print the table."""


@main.command()
@click.option("--base", type=_READ, required=True)
@click.option("--ngrams", type=_READ, required=True)
@click.option("--data", type=_READ, required=True)
@click.option("--work", type=_PATH, required=True)
def prepare(base: Path, ngrams: Path, data: Path, work: Path) -> None:
    """Write the start with its MLM head, and the names."""
    torch.set_num_threads(1)
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "start" / "model.safetensors").exists():
        warm_head(base, ngrams, work / "start")
    write_names(data, work / "names.tsv")


@main.command()
@click.argument("variants", nargs=-1, type=click.Choice(VARIANTS), required=True)
@click.option("--ngrams", type=_READ, required=True)
@click.option("--work", type=_READ, required=True)
@click.option("--seed", type=int, multiple=True, default=(0,))
@click.option("--steps", type=int, default=40)
@click.option("--rate", type=float, default=3e-5)
def train(variants: tuple[str, ...], ngrams: Path, work: Path, seed: tuple[int, ...], steps: int, rate: float) -> None:
    """Train variants."""
    torch.set_num_threads(1)
    for one in seed:
        for variant in variants:
            train_variant(variant, work, ngrams, Settings(steps, rate), seed=one)
        if (work / f"spans-{one}" / "done").exists():
            average_checkpoint(work / "start", work / f"spans-{one}", work / f"average-{one}")


@main.command()
@click.argument("runs", nargs=-1)
@click.option("--base", type=_READ, required=True)
@click.option("--data", type=_READ, required=True)
@click.option("--work", type=_READ, required=True)
@_part
def measure(runs: tuple[str, ...], base: Path, data: Path, work: Path, part: Part) -> None:
    """Measure the base and all complete runs, or those that are named."""
    torch.set_num_threads(1)
    found = runs or ("base", *sorted(path.parent.name for path in work.glob("*/done")))
    for name in found:
        out = work / f"{name}.{part}.json"
        if not out.exists():
            figures = measure_model(base if name == "base" else work / name, data, part)
            out.write_text(json.dumps(figures, indent=1), encoding="utf-8")
        click.echo(f"{name}: {out.read_text(encoding='utf-8')}")


@main.command()
@click.option("--work", type=_READ, required=True)
@_part
def table(work: Path, part: Part) -> None:
    """Print the mean over seeds, and the lowest and the highest."""
    read: dict[str, list[dict[str, float]]] = {}
    for path in sorted(work.glob(f"*.{part}.json")):
        read.setdefault(path.name.partition(".")[0].partition("-")[0], []).append(json.loads(path.read_text("utf-8")))
    columns = [name for name in ("base", *VARIANTS, "average") if name in read]
    click.echo("| | " + " | ".join(f"{name} ({len(read[name])})" for name in columns) + " |")
    click.echo("|---" * (len(columns) + 1) + "|")
    for task in read["base"][0]:
        cells = []
        for name in columns:
            values = [figures[task] for figures in read[name]]
            spread = f" ({min(values):.1f} to {max(values):.1f})" if len(values) > 1 else ""
            cells.append(f"{mean(values):.1f}{spread}")
        click.echo(f"| {task} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
