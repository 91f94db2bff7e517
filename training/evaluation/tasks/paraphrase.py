"""Paraphrase classification: accuracy of a classifier on the two frozen vectors of a pair.

There are two protocols. The paper splits rows at random. The stricter one keeps a pair and its reverse on the same side
of the split; PPDB-filtered contains both for 3,148 pairs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from pearl_qdrant.errors import FormatError
from training.evaluation.data import Data
from training.evaluation.methods import EncoderMethod
from training.evaluation.outcome import Outcome, mean_outcome
from training.evaluation.paper import paper_figures
from training.evaluation.task import EvaluationOptions, Task
from training.evaluation.tasks.probe import probe, split_rows

_LABELS = ("neg", "pos")


def _run(path: str, by_pair: bool) -> Callable[[Data, EncoderMethod, EvaluationOptions], Outcome]:
    def run(data: Data, method: EncoderMethod, options: EvaluationOptions) -> Outcome:
        rows = data.rows(path, "phrase1", "phrase2", "label")
        if unknown := {label for _, _, label in rows} - set(_LABELS):
            raise FormatError(path, None, f"labels must be pos or neg, not {', '.join(sorted(unknown))}.")
        left, right = [row[0] for row in rows], [row[1] for row in rows]
        labels = np.array([_LABELS.index(row[2]) for row in rows], dtype=np.int64)
        groups = [frozenset(row[:2]) for row in rows] if by_pair else list(range(len(rows)))
        features = torch.from_numpy(np.concatenate([method.vectors(left), method.vectors(right)], axis=1))
        by_seed = []
        for seed in range(options.n_seeds):
            split = split_rows(groups, np.random.default_rng(seed))
            correct = probe(features, labels, split, seed=seed, max_epochs=options.max_epochs)
            by_seed.append((split.test, correct))
        return mean_outcome(by_seed)

    return run


def _task(name: str, head: str, path: str, *, by_pair: bool) -> Task:
    return Task(
        name=f"{name}_by_pair" if by_pair else name,
        head=f"{head} by pair" if by_pair else head,
        group="Paraphrase Classification",
        metric="accuracy, split by unordered pair" if by_pair else "accuracy",
        needs="vectors",
        reads=(path,),
        run=_run(path, by_pair),
        paper=paper_figures(name),
        in_table_3=not by_pair,
    )


TASKS = tuple(
    _task(name, head, f"pearl_bench/{name}.tsv", by_pair=by_pair)
    for name, head in (("ppdb", "PPDB"), ("ppdb_filtered", "PPDB filtered"))
    for by_pair in (False, True)
)
