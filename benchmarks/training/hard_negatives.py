"""Measures the mining of hard negatives: time and memory by number of phrases, and recall of pairs within distance 2.

    python benchmarks/training/hard_negatives.py base.tsv --phrases 100000 --phrases 300000
    python benchmarks/training/hard_negatives.py base.tsv --phrases 1000000 --model pearl-mini

Phrases are a random sample of the names and aliases of a TSV; if there are too few, names with one changed letter are
added. Without --model, random vectors take the place of the encoder, so that the search alone is measured. --recall
compares with brute force on that many phrases.
"""

from __future__ import annotations

import csv
import random
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from training.examples.example import Phrase
from training.hard_negatives import Encode, FloatArray, edit_pairs, mine_hard_negatives

DIM = 384


def read_names(path: Path) -> list[Phrase]:
    """Names and aliases with their entities."""
    entities: dict[str, list[str]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            for name in (row["name"], *(row.get("aliases") or "").split("|")):
                if name:
                    entities.setdefault(name, []).append(row["id"])
    return [Phrase(name, tuple(dict.fromkeys(ids))) for name, ids in entities.items()]


def sample(phrases: Sequence[Phrase], n: int, rng: random.Random) -> list[Phrase]:
    """`n` different phrases."""
    if n <= len(phrases):
        return rng.sample(phrases, n)
    chosen = {phrase.text: phrase for phrase in phrases}
    while len(chosen) < n:
        name = rng.choice(phrases).text
        at = rng.randrange(len(name))
        changed = name[:at] + rng.choice("abcdefghijklmnopqrstuvwxyz") + name[at + 1 :]
        chosen.setdefault(changed, Phrase(changed))
    return list(chosen.values())


def random_vectors(seed: int) -> Encode:
    """A stand-in for the encoder."""
    rng = np.random.default_rng(seed)

    def encode(names: Sequence[str]) -> FloatArray:
        vectors = rng.standard_normal((len(names), DIM), dtype=np.float32)
        unit: FloatArray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit

    return encode


def vectors_of(model: str) -> Encode:
    """The vectors of a model."""
    from pearl_qdrant.encoder.loading import load_encoder

    encoder = load_encoder(model)

    def encode(names: Sequence[str]) -> FloatArray:
        return encoder.encode(names).vectors

    return encode


def timed(encode: Encode, spent: list[float]) -> Encode:
    """The same encoder; its seconds are appended to `spent`."""

    def encode_timed(names: Sequence[str]) -> FloatArray:
        start = time.perf_counter()
        vectors = encode(names)
        spent.append(time.perf_counter() - start)
        return vectors

    return encode_timed


def recall(texts: Sequence[str]) -> tuple[int, int]:
    """Number of pairs within distance 2 that mining finds, and of all such pairs."""
    from rapidfuzz.distance import Levenshtein
    from rapidfuzz.process import cdist

    pairs, _ = edit_pairs(texts)
    n_all = 0
    for start in range(0, len(texts), 500):
        rows = texts[start : start + 500]
        near = cdist(rows, texts, scorer=Levenshtein.distance, score_cutoff=2, dtype=np.uint8, workers=-1) <= 2
        n_all += int(np.triu(near, start + 1).sum())
    return len(pairs), n_all


@click.command()
@click.argument("base", type=click.Path(path_type=Path, exists=True))
@click.option("--phrases", "sizes", type=int, multiple=True, default=(100_000,), show_default=True)
@click.option("--model", help="An encoder instead of random vectors.")
@click.option("--recall", "n_recall", type=int, default=0, help="Phrases to compare with brute force.")
@click.option("--seed", type=int, default=0, show_default=True)
def main(base: Path, sizes: tuple[int, ...], model: str | None, n_recall: int, seed: int) -> None:
    """Measure each size and print a row for it."""
    rng = random.Random(seed)
    names = read_names(base)
    click.echo(f"{len(names):,} names, {np.mean([len(p.text) for p in names]):.1f} characters")
    if n_recall:
        for kind, chosen in (("at random", rng.sample(names, n_recall)), ("neighbours", names[:n_recall])):
            found, n_all = recall(sorted({" ".join(p.text.casefold().split()) for p in chosen}))
            click.echo(f"{n_recall:,} phrases {kind}: {found:,} of {n_all:,} pairs within distance 2")
    for size in sizes:
        encode = random_vectors(seed) if model is None else vectors_of(model)
        phrases, spent = sample(names, size, rng), list[float]()
        start, worked = time.perf_counter(), time.process_time()
        counts = [len(negatives) for _, negatives in mine_hard_negatives(phrases, timed(encode, spent))]
        seconds, worked = time.perf_counter() - start, time.process_time() - worked
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 30 if sys.platform == "darwin" else 1 << 20)
        click.echo(
            f"{size:,} phrases: {seconds:.0f} s ({worked:.0f} s of processor), {sum(spent):.0f} s of it the encoder; "
            f"{memory:.1f} GiB at most; {len(counts):,} have negatives, {np.mean(counts):.1f} each"
        )


if __name__ == "__main__":
    main()
