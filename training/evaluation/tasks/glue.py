"""GLUE on frozen vectors: a classifier on the vector of a text, or of the two texts of a pair.

The classifier is that of `tasks.probe`. It learns from the rows of the split `train`, of which 15 % choose its epoch,
and is tested on the validation rows, since GLUE keeps the labels of its test rows. A pair is the two vectors, their
absolute difference and their product (as in InferSent). STS-B needs no classifier: it is Pearson's correlation of the
cosine with the human scores.

The paper fine-tunes the whole encoder for three epochs, which reads both texts of a pair at once, and tests on GLUE's
server. So the figures are lower than its Table 3, and say what the vectors hold, not what the network can learn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from pearl_qdrant.errors import FormatError
from training.evaluation.data import Data, as_number
from training.evaluation.methods import EncoderMethod
from training.evaluation.outcome import FloatArray, IntArray, Outcome, mean_outcome, pearson, pearson_outcome
from training.evaluation.task import EvaluationOptions, Task
from training.evaluation.tasks.classification import Split, probe

GROUP = "glue"
_VALIDATION_SHARE = 0.15
_FEWEST = 3
"""Minimum number of training rows."""

Score = Callable[[FloatArray, IntArray, IntArray], float]
"""From weights of the rows, true and predicted labels, (n,) each, to a figure in [-1, 1]."""


def f1(weights: FloatArray, gold: IntArray, found: IntArray) -> float:
    """F1 of label 1; 0 where it is neither true nor predicted."""
    hits = float(weights @ ((gold == 1) & (found == 1)))
    total = float(weights @ ((gold == 1).astype(np.float64) + (found == 1)))
    return 2 * hits / total if total > 0 else 0.0


def matthews(weights: FloatArray, gold: IntArray, found: IntArray) -> float:
    """Matthews' correlation of two labels, 0 and 1; 0 where one of the two never occurs."""
    return pearson(weights, gold.astype(np.float64), found.astype(np.float64))


@dataclass(frozen=True, slots=True)
class _Set:
    """A set of GLUE.

    Attributes:
        name: Of its table.
        head: Heading of its column.
        is_pair: Whether a row has two texts.
        tested: Its validation rows.
        figure: What is measured in place of accuracy, and its name.
        paper: The paper's figures by model, fine-tuned, on the test rows.
    """

    name: str
    head: str
    is_pair: bool
    paper: tuple[float, float, float]
    tested: str = "validation"
    figure: tuple[str, Score] | None = None

    @property
    def path(self) -> str:
        return f"glue/{self.name}.tsv"


_MODELS = ("BERT-base", "MLM-BERT-base", "ULR-BERT-base")
_SETS = (
    _Set("cola", "CoLA", False, (53.5, 51.9, 56.5), figure=("Matthews correlation x 100", matthews)),
    _Set("sst2", "SST-2", False, (92.1, 94.0, 94.3)),
    _Set("mnli", "MNLI-m", True, (84.5, 84.5, 84.6), "validation_matched"),
    _Set("mnli", "MNLI-mm", True, (83.7, 83.9, 84.0), "validation_mismatched"),
    _Set("qnli", "QNLI", True, (90.6, 90.4, 91.0)),
    _Set("rte", "RTE", True, (67.1, 66.6, 68.0)),
    _Set("mrpc", "MRPC", True, (87.5, 88.1, 89.0), figure=("F1", f1)),
    _Set("qqp", "QQP", True, (71.6, 71.6, 71.6), figure=("F1", f1)),
)
_STS = _Set("stsb", "STS-B", True, (85.3, 86.2, 86.6))


def _features(method: EncoderMethod, rows: list[tuple[str, ...]], *, is_pair: bool) -> torch.Tensor:
    """The input of the classifier, (n, width)."""
    first = method.vectors([row[1] for row in rows])
    if not is_pair:
        return torch.from_numpy(first)
    second = method.vectors([row[2] for row in rows])
    return torch.from_numpy(np.concatenate([first, second, np.abs(first - second), first * second], axis=1))


def _run(one: _Set) -> Callable[[Data, EncoderMethod, EvaluationOptions], Outcome]:
    texts = ("text1", "text2") if one.is_pair else ("text",)

    def run(data: Data, method: EncoderMethod, options: EvaluationOptions) -> Outcome:
        rows = [row for row in data.rows(one.path, "split", *texts, "label") if row[0] in ("train", one.tested)]
        names = sorted({row[-1] for row in rows})
        labels = np.array([names.index(row[-1]) for row in rows], dtype=np.int64)
        is_test = np.array([row[0] == one.tested for row in rows])
        train, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
        _check(one, len(train), len(test), names)
        features = _features(method, rows, is_pair=one.is_pair)
        by_seed = []
        for seed in range(options.n_seeds):
            order = np.random.default_rng(seed).permutation(train)
            n_validation = max(1, round(_VALIDATION_SHARE * len(train)))
            split = Split(order[n_validation:], order[:n_validation], test)
            by_seed.append((test, probe(features, labels, split, seed=seed, max_epochs=options.max_epochs)))
        accuracy = mean_outcome(by_seed)
        return accuracy if one.figure is None else _with_figure(one.figure[1], accuracy, labels, by_seed)

    return run


def _check(one: _Set, n_train: int, n_test: int, names: list[str]) -> None:
    """Refuse a table that nothing can be learnt from, or measured on."""
    if n_train < _FEWEST or not n_test:
        raise FormatError(
            one.path, None, f"{n_train} rows of the split train and {n_test} of {one.tested} are too few."
        )
    if len(names) < 2 or (one.figure is not None and len(names) > 2):
        raise FormatError(one.path, None, f"labels must be two or more, for F1 and Matthews two: {', '.join(names)}.")


def _with_figure(
    figure: Score, accuracy: Outcome, labels: IntArray, by_seed: list[tuple[IntArray, FloatArray]]
) -> Outcome:
    """The outcome with another figure than accuracy, which becomes a detail; labels are 0 and 1."""
    found = [(labels[rows], np.where(correct > 0, labels[rows], 1 - labels[rows])) for rows, correct in by_seed]

    def score(weights: FloatArray) -> float:
        return 100 * float(np.mean([figure(weights, *pair) for pair in found]))

    ones = np.ones(len(found[0][0]))
    values = tuple(100 * figure(ones, *pair) for pair in found)
    return Outcome(values, accuracy.n, score, details={"accuracy": accuracy.value})


def _sts(data: Data, method: EncoderMethod, options: EvaluationOptions) -> Outcome:
    """Pearson's correlation of the cosine with the human scores."""
    rows = [row for row in data.rows(_STS.path, "split", "text1", "text2", "label") if row[0] == _STS.tested]
    _check(_STS, _FEWEST, len(rows), ["0", "5"])
    gold = np.array([as_number(row[3], _STS.path, "a label") for row in rows])
    return pearson_outcome(method.pair_scores([row[1] for row in rows], [row[2] for row in rows]), gold)


def _task(one: _Set, run: Callable[[Data, EncoderMethod, EvaluationOptions], Outcome], metric: str, needs: str) -> Task:
    part = one.tested.removeprefix("validation").removeprefix("_")
    return Task(
        name=f"glue_{one.name}" + (f"_{part}" if part else ""),
        head=one.head,
        group="GLUE",
        metric=metric,
        needs="vectors" if needs == "vectors" else "similarity",
        reads=(one.path,),
        run=run,
        paper=dict(zip(_MODELS, one.paper, strict=True)),
    )


TASKS = (
    *(_task(one, _run(one), one.figure[0] if one.figure else "accuracy", "vectors") for one in _SETS),
    _task(_STS, _sts, "Pearson r x 100 of the cosine", "similarity"),
)
