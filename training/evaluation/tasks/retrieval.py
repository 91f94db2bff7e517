"""Entity retrieval: is the name nearest to a mention, of all in a dictionary, its entity's canonical name?

PEARL's dictionaries (572 and 750 thousand names) are on the hub only. In a folder, the canonical names of the test
serve with names of the bases beside it, up to a number of distractors drawn once (seed 0). Search is exact. So the
figure is not the paper's; `n_names` in the details says among how many names it is.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from training.evaluation.datasets.data import Data
from training.evaluation.methods import Similarity
from training.evaluation.outcome import Outcome, mean_outcome
from training.evaluation.paper import paper_figures
from training.evaluation.task import EvaluationOptions, Task


def dictionary(data: Data, canonicals: list[str], bases: str, n_distractors: int) -> list[str]:
    """The canonical names and as many distinct other names of the bases, in random order."""
    own = set(canonicals)
    others = {name for path in data.paths(bases) for (name,) in data.rows(path, "name")} - own - {""}
    rng = random.Random(0)
    names = [*sorted(own), *rng.sample(sorted(others), min(n_distractors, len(others)))]
    # So that neither canonical nor other names win where several are equally near.
    rng.shuffle(names)
    return names


def _run(path: str, bases: str) -> Callable[[Data, Similarity, EvaluationOptions], Outcome]:
    def run(data: Data, method: Similarity, options: EvaluationOptions) -> Outcome:
        rows = data.rows(path, "mention", "canonical")
        names = dictionary(data, [row[1] for row in rows], bases, options.n_distractors)
        found = method.nearest([row[0] for row in rows], names)
        credit = np.array([names[i] == row[1] for i, row in zip(found.tolist(), rows, strict=True)], dtype=np.float64)
        return mean_outcome([(np.arange(len(rows)), credit)], details={"n_names": len(names)})

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
