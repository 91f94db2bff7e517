"""Measures how many phrases a second the batches of `train fit` hold: drawn, augmented and tokenised.

    python benchmarks/training/augmentation.py --wordnet /usr/share/wordnet --tokenizer MODEL_FOLDER
    python benchmarks/training/augmentation.py --phrases corpus/freq_phrase.txt --workers 0 --workers 1 --workers 2

Phrases come from a file (freq_phrase.txt, or one a line) or are names of WordNet. Nine in ten have five precomputed
paraphrases in a generated file of variants; synonyms come from WordNet; levels are drawn as in the paper. Each pair is
a phrase and its variant, both tokenised, in batches of 512 pairs, made by the data loader of training. The rate counts
variants only: a training step of n pairs needs n of them. The clock starts when the workers are ready, and stops at the
last batch in the process that would train. `0 workers` is that process itself, with the tokenizer's threads off.

`per cpu s` is the rate by the processor time of all processes; it says more where other programs use the cores. The
last column follows from it: the number of workers, each on its own core, that give 100,000 phrases a second.
"""

from __future__ import annotations

import json
import math
import os
import random
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import click
import psutil
from tokenizers import Tokenizer

from ingest.io.report import ReadReport
from training.augment.draw import AugmentationSources, Augmenter
from training.data.batches import BatchDataset, load_batches, new_batch_maker
from training.examples.example import Example, sort_examples
from training.examples.files import read_frequencies
from training.examples.wordnet import read_synsets
from training.options import BatchOptions

BATCH = 512
WANTED = 100_000
WARM_UP = 12  # batches, after which every worker has opened its files


def read_phrases(path: Path | None, wordnet: Path, limit: int) -> list[str]:
    """Phrases in random order, as training draws them."""
    if path is None:
        phrases = [name for synset in read_synsets(wordnet) for name in synset.names]
    elif "__" in path.open(encoding="utf-8").readline():
        phrases = [phrase for phrase, _, _ in read_frequencies(path, ReadReport())]
    else:
        phrases = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    random.Random(0).shuffle(phrases)
    return phrases[:limit]


def write_variants(phrases: Sequence[str], path: Path) -> None:
    """Write paraphrases of nine phrases in ten, as long as those of a model."""
    rng = random.Random(1)
    with path.open("w", encoding="utf-8") as file:
        for phrase in phrases:
            if rng.random() < 0.9:
                aug = [f"{before} {phrase}" for before in ("the so-called", "a kind of", "this", "such a", "one")]
                file.write(json.dumps({"phrase": phrase, "aug": aug}) + "\n")


def cpu_seconds() -> float:
    """Processor time of this process and its workers."""
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


def rates(
    examples: list[Example], augmenter: Augmenter, tokenizer: Any, workers: int, seconds: float
) -> tuple[float, float]:
    """Variants a second of wall clock, and a second of processor time."""
    maker = new_batch_maker(examples, BatchOptions(batch_size=2 * BATCH), augment=augmenter)
    dataset = BatchDataset(maker, tokenizer, max_tokens=24, micro_batch=64)
    loaded = load_batches(dataset, range(1, 1_000_000), workers=workers)
    for _ in islice(loaded, WARM_UP):
        pass
    start, cpu, n_phrases = time.perf_counter(), cpu_seconds(), 0
    while (passed := time.perf_counter() - start) < seconds:
        n_phrases += len(next(loaded).batch.positives)
    cpu = cpu_seconds() - cpu
    return n_phrases / passed, n_phrases / cpu


@click.command()
@click.option("--wordnet", type=click.Path(path_type=Path, exists=True), default=Path("/usr/share/wordnet"))
@click.option("--tokenizer", type=click.Path(path_type=Path, exists=True), help="Folder; default: the shipped model.")
@click.option("--phrases", "path", type=click.Path(path_type=Path, exists=True))
@click.option("--limit", type=int, default=200_000, show_default=True, help="Phrases.")
@click.option("--workers", type=int, multiple=True, default=(0, 1, 2), show_default=True)
@click.option("--seconds", type=float, default=6.0, show_default=True, help="Length of each measurement.")
def main(
    wordnet: Path, tokenizer: Path | None, path: Path | None, limit: int, workers: tuple[int, ...], seconds: float
) -> None:
    """Measure and print a table."""
    shipped = Path(__file__).resolve().parents[2] / "pearl_qdrant" / "encoder" / "models" / "pearl-mini-en"
    phrases = read_phrases(path, wordnet, limit)
    with tempfile.TemporaryDirectory() as folder:
        variants = Path(folder) / "phrase_aug.jsonl"
        write_variants(phrases, variants)
        augmenter = AugmentationSources(wordnet=wordnet, paraphrases=(variants,)).open()
        examples = sort_examples(Example(phrase, (), "") for phrase in phrases)
        tokens = Tokenizer.from_file(str((tokenizer or shipped) / "tokenizer.json"))
        tokens.no_padding()
        tokens.no_truncation()
        click.echo(f"{len(phrases):,} phrases, batches of {BATCH} pairs, {os.cpu_count()} cores")
        click.echo(f"{'workers':>8}{'phrases/s':>12}{'per cpu s':>12}{'to one':>8}{'for 100k/s':>12}")
        one = 0.0
        for n_workers in workers:
            found, by_cpu = rates(examples, augmenter, tokens, n_workers, seconds)
            one = found if n_workers == 1 else one or found
            wanted = math.ceil(WANTED / by_cpu)
            click.echo(f"{n_workers:>8}{found:>12,.0f}{by_cpu:>12,.0f}{found / one:>8.2f}{wanted:>12}")


if __name__ == "__main__":
    main()
