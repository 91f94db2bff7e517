"""Tiny runs of fine-tuning: examples, networks, settings, and runs in other processes."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tiny_models import DIM

from pearl_qdrant.encoder import batching
from pearl_qdrant.encoder.runtime.torch_runtime import PearlNetwork, load_transformer, new_type_head
from training.augment.draw import Augmenter
from training.batches import BatchDataset, BatchMaker, EpochSampler, NegativeTable
from training.examples.example import Example, any_class
from training.finetune.objective import PairObjective
from training.finetune.request import FitConfig
from training.training_loop import LOG, TrainingLoop, process_group

ROOT = Path(__file__).resolve().parents[2]
PATHS = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])

EXAMPLES = [Example(f"new york w{i}", (f"city {i}",), str(i), any_class(["GPE"])) for i in range(40)]
NEGATIVES = NegativeTable([(e.name, [f"new yorks {i}", f"york {i}"]) for i, e in enumerate(EXAMPLES)])
SOME_NEGATIVES = NegativeTable([(e.name, [f"york {i}", f"yorks {i}"]) for i, e in enumerate(EXAMPLES) if i % 3])


def open_tokenizer(folder: Path) -> Any:
    """The tokenizer of a folder, without padding."""
    return batching.open_tokenizer(folder / "tokenizer.json")


def new_network(bert: Path) -> PearlNetwork:
    """The same network each time."""
    torch.manual_seed(0)
    return PearlNetwork(load_transformer(bert), new_type_head(DIM))


def maker(**changes: Any) -> BatchMaker:
    """Batches of eight pairs, with hard negatives."""
    made = BatchMaker(EpochSampler(EXAMPLES, seed=2), n_pairs=8, seed=1, augment=Augmenter(), negatives=NEGATIVES)
    return replace(made, **changes)


def fit(network: PearlNetwork, tokenizer: Any, made: BatchMaker, settings: FitConfig, folder: Path, **run: Any) -> int:
    """Train a network in place; returns the steps done."""
    dataset = BatchDataset(made, tokenizer, settings.max_tokens, settings.micro_batch)
    saving = {"save_every": settings.save_every, "save_seconds": settings.save_seconds, "shard": made.shard}
    objective = PairObjective(network, dataset, settings)
    done = TrainingLoop(name="fit", objective=objective, steps=settings.steps, folder=folder, **{**saving, **run}).run()
    network.eval()
    return done


def config(**changes: Any) -> FitConfig:
    """Six quick steps."""
    known: dict[str, Any] = {"steps": 6, "learning_rate": 1e-3, "save_every": 2, "precision": "fp32", "micro_batch": 8}
    return FitConfig(**{**known, **changes})


def read_log(folder: Path) -> list[dict[str, float]]:
    """The rows of a run's log.csv."""
    with (folder / LOG).open(encoding="utf-8", newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def losses_of(folder: Path) -> list[tuple[float, float, float]]:
    """Step and losses of each row of a run's log."""
    return [(row["step"], row["contrastive"], row["type_loss"]) for row in read_log(folder)]


def write_corpus(folder: Path) -> Path:
    """A corpus as PEARL publishes it."""
    folder.mkdir()
    places = [f"new york w{i}" for i in range(20)]
    people = [f"heart attack a{chr(97 + i)}" for i in range(20)]
    rows = "".join(f"NP__{name}\t{3 + i}\n" for i, name in enumerate([*places, *people]))
    (folder / "freq_phrase.txt").write_text(rows, encoding="utf-8")
    types = "".join(f"{name}\tGPE\n" for name in places) + "".join(f"{name}\tPERSON\n" for name in people)
    (folder / "phrase_with_etype.txt").write_text(types, encoding="utf-8")
    (folder / "hard_negative.txt").write_text("new york w1\tnew york w2\tnew york w3\n", encoding="utf-8")
    return folder


class Stopped(BaseException):
    """What the handler of a signal raises."""


@contextmanager
def stopped_by(number: signal.Signals) -> Iterator[None]:
    """What runs within is stopped by the handler of a signal, which is in its place again afterwards."""

    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(number, stop)
    try:
        with pytest.raises(Stopped):
            yield
        assert signal.getsignal(number) is stop
    finally:
        signal.signal(number, before)


def add_word(name: str, _: Any) -> str:
    """A variant without chance, so that one process and two see the same."""
    return f"{name} post"


def train_together(bert: Path, tokenizer: Any, out: Path) -> None:
    """Four steps of eight pairs over any number of processes."""
    with process_group(torch.device("cpu")) as shard:
        network = new_network(bert)
        made = BatchMaker(
            EpochSampler(EXAMPLES, seed=5), n_pairs=8 // shard.world_size, seed=0, augment=add_word, shard=shard
        )
        made = replace(made, alias_share=0, negatives=SOME_NEGATIVES)
        fit(network, tokenizer, made, config(steps=4, cache_gradients=True), out)
        save_file(network.state_dict(), out / f"weights-{shard.rank}.safetensors")


_START = """
import sys, time
from pathlib import Path
import fit_cases as t
bert, out = Path(sys.argv[1]), Path(sys.argv[2])
t.torch.set_num_threads(1)
tokenizer = t.open_tokenizer(bert)
"""


def run_script(code: str, words: Sequence[Path], **environment: str) -> subprocess.Popen[bytes]:
    """Start a Python that knows this module as `t`."""
    return subprocess.Popen(
        [sys.executable, "-c", _START + code, *map(str, words)],
        env=os.environ | {"PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"} | environment,
        stderr=subprocess.PIPE,
    )
