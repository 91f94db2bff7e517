"""`Task`, and what the papers have for tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from training.evaluation.data import Data
from training.evaluation.methods import Need
from training.evaluation.outcome import Outcome
from training.options import EvaluationOptions


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the evaluation."""

    name: str  # name by which a user selects it
    head: str  # short name, the heading of its column
    group: str  # its family, as in PEARL's Table 3. Tasks of one group share a table
    metric: str  # name of the figure, which is in percent
    needs: Need  # what a method must support
    # tables that it needs; a pattern needs at least one match. If one is missing, the task is skipped
    reads: tuple[str, ...]
    # computes the outcome from data, a method that supports `needs`, and options. The items and their order depend
    # on data and options only, so that methods can be compared item by item
    run: Callable[[Data, Any, EvaluationOptions], Outcome]

    @property
    def paper(self) -> dict[str, float]:
        """The papers' figures in percent by model, `MAIN` first; empty if they have none."""
        return _paper().get(self.name.removesuffix("_by_pair"), {})

    @property
    def in_table_3(self) -> bool:
        """Whether it counts in the mean of its group: one task for each data set, the one with the paper's protocol."""
        return self.name in _TABLE_1

    @property
    def description(self) -> str:
        """Group, metric and files, in one line."""
        return f"{self.group}: {self.metric}. Reads {', '.join(self.reads)}"


MAIN = "PEARL-small"
"""The model whose figures come first."""

_TABLE_1 = ("autofj", "ppdb", "ppdb_filtered", "turney", "bird", "yago_local", "umls_local", "conll", "bc5cdr")


@cache
def _paper() -> dict[str, dict[str, float]]:
    """Figures of both papers in percent, by task and model: tables 1 and 2 of the first one; of the second one, the
    means of semantic and syntactic accuracy on all questions, and top-1, top-5 and top-10 accuracy.
    """
    found: dict[str, dict[str, float]] = {}
    for line in Path(__file__).with_name("paper_figures.tsv").read_text("utf-8").splitlines()[1:]:
        task, model, percent = line.split("\t")
        found.setdefault(task, {})[model] = float(percent)
    return found
