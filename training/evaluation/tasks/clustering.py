"""Entity clustering: how well k-means clusters of mention vectors agree with entity types, by NMI.

K-means has one cluster for each type and ten starts, and runs on all mentions of the test split, with repeats. The
seeds are those of k-means; the first one is the paper's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pearl_qdrant.errors import FormatError
from training.evaluation.data import Data
from training.evaluation.methods import EncoderMethod
from training.evaluation.outcome import Outcome, nmi_outcome
from training.evaluation.paper import paper_figures
from training.evaluation.task import EvaluationOptions, Task


def _run(path: str, types: tuple[str, ...]) -> Callable[[Data, EncoderMethod, EvaluationOptions], Outcome]:
    def run(data: Data, method: EncoderMethod, options: EvaluationOptions) -> Outcome:
        from sklearn.cluster import KMeans

        number = {kind.casefold(): i for i, kind in enumerate(types)}
        rows = data.rows(path, "split", "type", "mention")
        rows = [row for row in rows if row[0] == "test" and row[1].casefold() in number]
        if len({row[2] for row in rows}) < len(types):
            raise FormatError(path, None, f"too few mentions of {', '.join(types)} with split test ({len(rows)}).")
        labels = np.array([number[kind.casefold()] for _, kind, _ in rows], dtype=np.int64)
        vectors = method.vectors([mention for _, _, mention in rows])
        clusters = [
            KMeans(n_clusters=len(types), n_init=10, random_state=seed).fit_predict(vectors).astype(np.int64)
            for seed in range(options.n_seeds)
        ]
        return nmi_outcome(labels, clusters)

    return run


def _task(name: str, head: str, path: str, types: tuple[str, ...]) -> Task:
    return Task(
        name, head, "Entity Clustering", "NMI x 100", "vectors", (path,), _run(path, types), paper_figures(name), True
    )


TASKS = (
    _task("conll", "CoNLL 03", "pearl_bench/conll2003.tsv", ("PER", "LOC", "ORG")),
    _task("bc5cdr", "BC5CDR", "pearl_bench/bc5cdr.tsv", ("Chemical", "Disease")),
)
