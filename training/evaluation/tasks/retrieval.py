"""Entity retrieval: how often the name nearest to a mention is the canonical name of its entity.

PEARL's dictionaries (572 and 750 thousand names) are on the hub only. With a folder, the dictionary has the canonical
names of the test set and a sample of the names of the bases in the folder (distractors, seed 0). Search is exact. So
the figure is not comparable with the paper's; `n_names` in the details is the size of the dictionary.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from training.evaluation.data import Data
from training.evaluation.methods import Similarity
from training.evaluation.outcome import Outcome, mean_outcome
from training.evaluation.paper import paper_figures
from training.evaluation.task import EvaluationOptions, Task


def dictionary(data: Data, canonicals: list[str], bases: str, n_distractors: int) -> list[str]:
    """The canonical names and `n_distractors` other names of the bases, all distinct, in random order."""
    own = set(canonicals)
    others = {name for path in data.paths(bases) for (name,) in data.rows(path, "name")} - own - {""}
    rng = random.Random(0)
    names = [*sorted(own), *rng.sample(sorted(others), min(n_distractors, len(others)))]
    # Random order, so that ties favour neither canonical nor other names.
    rng.shuffle(names)
    return names


def _run(path: str, bases: str) -> Callable[[Data, Similarity, EvaluationOptions], Outcome]:
    def run(data: Data, method: Similarity, options: EvaluationOptions) -> Outcome:
        rows = data.rows(path, "mention", "canonical")
        names = dictionary(data, [row[1] for row in rows], bases, options.n_distractors)
        found = method.nearest([row[0] for row in rows], names)
        correct = np.array([names[i] == row[1] for i, row in zip(found.tolist(), rows, strict=True)], dtype=np.float64)
        return mean_outcome([(np.arange(len(rows)), correct)], details={"n_names": len(names)})

    return run


def _task(name: str, head: str, bases: str) -> Task:
    path = f"pearl_bench/{name}_test.tsv"
    return Task(
        name=f"{name}_local",
        head=f"{head} local",
        group="Entity Retrieval",
        metric="accuracy@1, exact search, not the paper's dictionary",
        needs="similarity",
        reads=(path,),
        run=_run(path, bases),
        paper=paper_figures(name),
        in_table_3=True,
    )


TASKS = (_task("yago", "YAGO", "kb/general.tsv"), _task("umls", "UMLS", "kb/biomedical/*.tsv"))
