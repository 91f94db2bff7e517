"""`Task`, and what the papers have for tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
        for tasks, by_model in _PAPER:
            if (name := self.name.removesuffix("_by_pair")) in tasks:
                place = tasks.index(name)
                return {model: figures[place] for model, figures in by_model.items() if place < len(figures)}
        return {}

    @property
    def in_table_3(self) -> bool:
        """Whether it counts in the mean of its group: one task for each data set, the one with the paper's protocol."""
        return self.name in _TABLE_1

    @property
    def is_linking(self) -> bool:
        """Whether it measures linking methods, not encoders or string similarities."""
        return self.needs in ("linking", "large_linking")

    @property
    def description(self) -> str:
        """Group, metric and files, in one line."""
        return f"{self.group}: {self.metric}. Reads {', '.join(self.reads)}"


MAIN = "PEARL-small"
"""The model whose figures come first."""

_TABLE_1 = ("autofj", "ppdb", "ppdb_filtered", "turney", "bird", "yago_local", "umls_local", "conll", "bc5cdr")

_PAPER: tuple[tuple[tuple[str, ...], Mapping[str, tuple[float, ...]]], ...] = (
    (
        _TABLE_1,
        {
            "PEARL-small": (74.6, 97.2, 69.2, 56.1, 69.7, 48.1, 43.4, 48.7, 61.0),
            "Sentence-BERT": (57.2, 94.6, 66.8, 50.4, 62.6, 21.6, 23.6, 25.5, 48.4),
            "Phrase-BERT": (66.9, 96.8, 68.7, 57.2, 68.8, 23.7, 26.1, 35.4, 59.5),
            "E5-small": (74.8, 96.0, 56.8, 55.9, 63.1, 43.3, 42.0, 27.6, 53.7),
            "E5-base": (76.1, 95.4, 65.6, 59.4, 66.3, 47.3, 44.0, 32.0, 69.3),
            "PEARL-base": (76.3, 97.1, 72.7, 60.9, 72.3, 50.2, 43.6, 40.9, 69.5),
            "String Distance": (64.7,),
        },
    ),
    (
        ("twitter_s", "twitter_l", "atis_s", "atis_l"),
        {
            "PEARL-small": (72.8, 78.5, 93.7, 96.7),
            "Phrase-BERT": (71.9, 77.0, 50.6, 79.5),
            "E5-small": (70.7, 78.1, 92.7, 94.1),
            "E5-base": (72.4, 79.5, 93.0, 96.2),
            "PEARL-base": (73.7, 77.1, 93.2, 97.4),
        },
    ),
    (
        ("analogy_word", "analogy_phrase", "analogy_sentence"),
        {"GloVe": (80.3, 20.5, 20.0), "BERT-base": (55.8, 34.8, 34.2), "ULR-BERT-base": (70.8, 34.0, 32.3)},
    ),
    (
        ("geogranno_top1", "geogranno_top5", "geogranno_top10"),
        {
            "BM25": (27.1, 62.5, 76.4),
            "BERT-base": (29.6, 58.9, 67.1),
            "MLM-BERT-base": (37.0, 66.8, 72.6),
            "ULR-BERT-base": (39.7, 66.0, 77.3),
        },
    ),
)
"""Figures of both papers in percent, by model: tables 1 and 2 of the first one; of the second one, the means of
semantic and syntactic accuracy on all questions, and top-1, top-5 and top-10 accuracy."""
